"""The journal is one history: numbers without gaps, epochs that ascend, and nobody who believes
in another one.
"""

from collections.abc import Iterator

from sparklog.metadata import ControllerChanged
from tests.simulation.final_state import FinalState, JournalCommit
from tests.simulation.history import History


def check(history: History, final: FinalState) -> list[str]:
    found = [*_numbers(final.journal), *_epochs(final.journal), *_nonces(final.journal)]
    return found or list(_beliefs(final))


def _numbers(journal: tuple[JournalCommit, ...]) -> Iterator[str]:
    for expected, commit in enumerate(journal, start=1):
        if commit.number != expected:
            yield f"commit {commit.number} where {expected} follows"
            return


def _epochs(journal: tuple[JournalCommit, ...]) -> Iterator[str]:
    """A commit is of the epoch that the last ControllerChanged began; only that raises it."""
    epoch = 0
    for commit in journal:
        for record in commit.records:
            if isinstance(record, ControllerChanged):
                if record.controller_epoch <= epoch:
                    yield f"commit {commit.number} begins epoch {record.controller_epoch} again"
                epoch = record.controller_epoch
        if commit.controller_epoch != epoch:
            yield (
                f"commit {commit.number} is of controller epoch {commit.controller_epoch} in "
                f"epoch {epoch}"
            )


def _nonces(journal: tuple[JournalCommit, ...]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for commit in journal:
        if commit.nonce in seen:
            yield f"commits {seen[commit.nonce]} and {commit.number} have the same nonce"
        seen[commit.nonce] = commit.number


def _beliefs(final: FinalState) -> Iterator[str]:
    """Every image that a process holds is the journal's as of its version."""
    for node in final.images:
        version = node.image.version
        if version > len(final.journal):
            yield f"{node.node} knows commit {version}, the journal ends at {len(final.journal)}"
        elif node.image != final.image_at(version):
            yield f"{node.node} knows another history than the journal up to commit {version}"
