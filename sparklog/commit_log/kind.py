"""What a user of a commit log brings: its state, its records, its header, and its words.

Owns: the shape of these.  Must not know how a commit log works.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from sparklog.commit_log.documents import Header, HeaderT, RecordT
from sparklog.errors import SparklogError

_ReplayedT = TypeVar("_ReplayedT", contravariant=True)


class CommitLogError(SparklogError):
    """A commit log cannot be read; the message names the file, the damage, and the remedy."""


class CommitState(Protocol[_ReplayedT]):
    """A state that is built from commits.  ``version`` is the last one, 0 in an empty state."""

    @property
    def version(self) -> int: ...

    def replay_commit(self, number: int, records: Iterable[_ReplayedT], /) -> None:
        """Replay the records of commit ``number``, or of a checkpoint as of that commit.

        Raises:
            DecodeError, LookupError: a record does not fit the state.
        """


StateT = TypeVar("StateT", bound=CommitState[Any])


def _fits(header: Header, state: CommitState[Any]) -> None:
    """Every header fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLogKind(Generic[StateT, RecordT, HeaderT]):
    """The kind of a commit log.

    Args:
        name: what its errors call it, such as "journal".
        state_name: what its log messages call the state, such as "image".
        header_type: the dataclass of its header (see ``documents.Header``).
        new_state: makes an empty state.
        encode_records: encodes records as a JSON array.
        record_from_json: makes a record of JSON values.  Raises DecodeError.
        error: the error for a damaged or missing file.
        damage_remedy: the remedy for such a file in the log with this URL.
        store_remedy: the remedy for a store on which two writers could win the same commit.
        check_header: called with the header of a commit and the state before its records are
            replayed.  Raises DecodeError for a commit that cannot follow.
    """

    name: str
    state_name: str
    header_type: type[HeaderT]
    new_state: Callable[[], StateT]
    encode_records: Callable[[Iterable[RecordT]], bytes]
    record_from_json: Callable[[Any], RecordT]
    error: type[CommitLogError]
    damage_remedy: Callable[[str], str]
    store_remedy: str
    check_header: Callable[[HeaderT, StateT], None] = _fits
