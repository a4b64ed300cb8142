"""What was seen of compacted topics: one event each.

Owns: the events of compaction; ``events`` has the others.  Must not know how anything was looked
at, nor what follows from it.  Records are (offset, text) pairs (``keyed_records``).
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from sparklog.types import NO_LEADER_EPOCH, NO_PRODUCER_ID
from tests.simulation.events import LogId


class CommittedRecord(NamedTuple):
    """A record below a high watermark.  ``producer_id`` is that of its transaction, if any."""

    offset: int
    text: bytes
    timestamp: int
    producer_id: int = NO_PRODUCER_ID


class CommittedMarker(NamedTuple):
    """The end of a transaction below a high watermark."""

    offset: int
    producer_id: int
    commits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsCommitted:
    """A leader's high watermark went to ``end``; the records are those between, as on its disk."""

    log: LogId
    broker: int
    leader_epoch: int
    begin: int
    end: int
    records: tuple[CommittedRecord | CommittedMarker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderBegan:
    """A broker leads a compacted partition from now on, with its log up to ``log_end``."""

    log: LogId
    broker: int
    leader_epoch: int
    log_end: int


class Step(NamedTuple):
    """A reader came to offset ``end`` at this time."""

    end: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRead:
    """A reader has read from the log's start to ``end``, and has this last record of each key.

    ``asked`` and ``began_ms`` are the position and the time at which the reader began; ``start`` is
    where the log began then.
    """

    reader: str
    log: LogId
    asked: int
    began_ms: int
    start: int
    end: int
    steps: tuple[Step, ...]
    table: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedReplica:
    """The records of a compacted partition that a broker holds below its high watermark."""

    broker: int
    log: LogId
    start: int
    high_watermark: int
    records: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLookedUp:
    """ListOffsets named the first record from a timestamp on; ``offset`` -1: there is none.

    ``leader_epoch`` is that of the leader that has answered, if it is known.
    """

    asked: int
    log: LogId
    timestamp: int
    offset: int
    found_timestamp: int
    leader_epoch: int = NO_LEADER_EPOCH


CompactionEvent: TypeAlias = (
    RecordsCommitted | LeaderBegan | TableRead | CompactedReplica | TimeLookedUp
)
