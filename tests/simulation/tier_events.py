"""What happened in the bucket, as the bucket itself shows it: one event each.

Owns: the events.  Must not know how the bucket is watched, or what it has to hold.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from sparklog.remote_log.aborted_txns import RemoteAbortedTxn
from sparklog.remote_log.manifest_records import ManifestRecord
from sparklog.remote_log.remote_segment import EpochStart, RemoteSegment
from sparklog.remote_log.takeover import LeaderLog
from sparklog.types import NO_PRODUCER_ID, NO_TIMESTAMP
from tests.simulation.events import LogId


class TierBatch(NamedTuple):
    """A batch in a log object; ``checksum`` is of all its bytes, as in ``SeenBatch``.

    ``ends_transaction``: it is a marker; ``commits``: of a commit.  ``max_timestamp`` (ms) is the
    header's.
    """

    base_offset: int
    next_offset: int
    checksum: int
    leader_epoch: int = 0
    producer_id: int = NO_PRODUCER_ID
    is_transactional: bool = False
    ends_transaction: bool = False
    commits: bool = False
    max_timestamp: int = NO_TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSegment:
    """The two objects of a segment, read when a manifest first names it.

    ``damage`` says what cannot be read.  ``epochs`` are the leader epochs from the log start on,
    ``aborted`` the aborted transactions with records in the segment.  ``copied`` is the segment as
    it was copied, if only its beginning is left.
    """

    segment: RemoteSegment
    batches: tuple[TierBatch, ...] = ()
    epochs: tuple[EpochStart, ...] = ()
    aborted: tuple[RemoteAbortedTxn, ...] = ()
    damage: str = ""
    copied: RemoteSegment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierCommitted:
    """A commit of a manifest.

    ``broker`` wrote it, and had the log start at ``log_start`` then, -1 if it does not serve any
    more.  ``leader_log`` is its log then, if it led in ``leader_epoch``.  ``added`` are the
    segments of the commit.  From ``locked_ms`` (of the history's clock) on the writer has told
    nobody of the manifest; -1: from the commit on.
    """

    log: LogId
    number: int
    leader_epoch: int
    broker: int
    records: tuple[ManifestRecord, ...]
    added: tuple[TierSegment, ...] = ()
    log_start: int = -1
    leader_log: LeaderLog | None = None
    locked_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TierObjectDeleted:
    """An object of a segment was deleted."""

    log: LogId
    segment_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRefused:
    """A read was answered that its offset is out of range."""

    asked: int
    reader: str
    log: LogId
    offset: int


TierEvent: TypeAlias = TierCommitted | TierObjectDeleted | ReadRefused
