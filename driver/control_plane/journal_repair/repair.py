"""The repair of a journal's files, as a repair plan says.

Owns: the order of the writes, and where old files go.  Must not know what the records mean.

The order makes every interruption harmless.  The repair's commit and checkpoint have numbers above
all others.  Once the checkpoint is there, the journal starts from it and ignores every file before
it.  Only then are the damaged and the lost files moved to ``damaged-<time>/``.  No file is deleted.
Each lost commit is replaced by an empty commit with the controller epoch of the repair: a
controller that was stalled since before the damage collides with it and learns that it was
replaced.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sparklog.commit_log import checkpoint_name, commit_name
from sparklog.driver.control_plane.journal import SECRET_NAME, Journal
from sparklog.driver.control_plane.journal_files import CommitHeader, encode_file
from sparklog.driver.control_plane.journal_repair.repair_plan import RepairPlan
from sparklog.driver.control_plane.journal_repair.survey import State, Survey
from sparklog.errors import SparklogError
from sparklog.metadata import encode_records
from sparklog.storage_backends.base import FileHalf, StorageBackend

#: Most lost commits that are replaced by an empty commit.
FILLED_MAX = 10_000
REPORT_NAME = "report.json"


class RepairError(SparklogError):
    """The journal cannot be repaired, or was changed during the repair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """The result of a repair.

    ``folder``, below the journal, has the ``moved`` files under their former names.  ``version`` is
    the number of the journal's last commit.
    """

    folder: str
    moved: tuple[str, ...]
    version: int


def repair_journal(
    backend: StorageBackend,
    survey: Survey,
    plan: RepairPlan | None,
    *,
    now_ms: int,
    nonce: str,
    report: Mapping[str, Any],
) -> Repaired:
    """Make the journal usable again.  No other process may use the journal meanwhile.

    Args:
        survey: the survey of the journal.
        plan: the commit to write; None when no commit is lost.
        now_ms: the time of day, in milliseconds since the epoch.
        nonce: a unique text, for the headers of new commits.
        report: a JSON object that is kept with the old files.

    Raises:
        RepairError: another process has changed the journal.
        StorageError: the store failed.  The repair can be started again.
    """
    folder = _free_folder(backend, now_ms)
    if isinstance(backend, FileHalf):
        backend.make_folder(folder)
    backend.put(f"{folder}/{REPORT_NAME}", json.dumps(dict(report), indent=1).encode())
    if plan is not None:
        _write_repair(backend, plan, now_ms, nonce)
    moved = _move_away(backend, survey, folder)
    if plan is not None:
        _write_empty_commits(backend, survey, plan, now_ms, nonce)
    image = Journal(backend).load()
    if plan is not None and image != plan.image:
        raise RepairError(
            f"{backend.url} was changed by another process during its repair; stop that process "
            "and check the journal again"
        )
    return Repaired(folder=folder, moved=moved, version=image.version)


def _free_folder(backend: StorageBackend, now_ms: int) -> str:
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    name = f"damaged-{moment:%Y%m%dT%H%M%SZ}"
    taken = set(backend.list(""))
    count = 1
    while (name if count == 1 else f"{name}-{count}") in taken:
        count += 1
    return name if count == 1 else f"{name}-{count}"


def _write_repair(backend: StorageBackend, plan: RepairPlan, now_ms: int, nonce: str) -> None:
    """Write the commit, then the checkpoint from which the journal will start."""
    header = CommitHeader(
        version=plan.version,
        controller_epoch=plan.controller_epoch,
        nonce=nonce,
        time_ms=now_ms,
    )
    commit = encode_file(header, encode_records(plan.records))
    checkpoint = encode_file(header, encode_records(plan.image.snapshot_records()))
    for name, data in (
        (commit_name(plan.version), commit),
        (checkpoint_name(plan.version), checkpoint),
    ):
        if not backend.put_if_absent(name, data):
            raise RepairError(
                f"{backend.url}/{name} was written by another process; stop every cluster that "
                "uses this journal and check it again"
            )


def _move_away(backend: StorageBackend, survey: Survey, folder: str) -> tuple[str, ...]:
    names = {each.name for each in survey.damaged}
    names |= {commit_name(each.number) for each in survey.lost if each.state is not State.MISSING}
    for name in sorted(names):
        backend.rename(name, f"{folder}/{name}")
        if isinstance(backend, FileHalf):
            backend.flush_folder(folder)
    if isinstance(backend, FileHalf):
        backend.flush_folder("")
    return tuple(sorted(names))


def _write_empty_commits(
    backend: StorageBackend, survey: Survey, plan: RepairPlan, now_ms: int, nonce: str
) -> None:
    for lost in survey.lost[-FILLED_MAX:]:
        header = CommitHeader(
            version=lost.number,
            controller_epoch=plan.controller_epoch,
            nonce=nonce,
            time_ms=now_ms,
        )
        backend.put_if_absent(commit_name(lost.number), encode_file(header, b"[]"))


def moves_secret(survey: Survey) -> bool:
    """Whether the repair moves a damaged secret away, so that a new secret is made."""
    return any(each.name == SECRET_NAME for each in survey.damaged)
