"""What a partition hands back: outcomes, what they wait for, and effects for the shell.

Owns: the values.  Must not know how any of it is decided or done.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from sparklog.errors import KafkaError
from sparklog.executors.log import AbortedTxn
from sparklog.storage_backends.base import Region
from sparklog.types import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from sparklog.wire.records.batch import Buffer

ACKS_ALL = -1
ACKS_NONE = 0
#: What a client sent to a partition: one batch, and its acks.
SentBatch: TypeAlias = tuple[Buffer | None, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeReaders:
    """Look at delayed fetches again: about ``size`` more bytes may be read, or the role changed."""

    topic_partition: TopicPartition
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeFollowers:
    """Look at the followers' delayed fetches again: ``size`` bytes wait to be replicated."""

    topic_partition: TopicPartition
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeDeleters:
    """Look at parked deletions of records again: a log start has moved, or the role."""

    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeWriters:
    """Look at parked acknowledgements again."""

    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushLog:
    """Flush the log off the loop at ``at_ms`` (the past: now), then call ``flushed``."""

    topic_partition: TopicPartition
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStatistics:
    """Segments were sealed: write their ``.stats``, when there is time."""

    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeIsr:
    """The leader wants another ISR: send ``isr_proposal`` to the controller."""

    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeFetching:
    """A follower has a ``fetch_position`` that it had not: fetch from its leader."""

    topic_partition: TopicPartition


Effect: TypeAlias = (
    WakeReaders
    | WakeFollowers
    | WakeWriters
    | WakeDeleters
    | FlushLog
    | WriteStatistics
    | ProposeIsr
    | ResumeFetching
)


def wake_all(topic_partition: TopicPartition) -> list[Effect]:
    """Whoever waits for a partition must look at it again."""
    return [
        WakeReaders(topic_partition=topic_partition, size=0),
        WakeWriters(topic_partition=topic_partition),
        WakeDeleters(topic_partition=topic_partition),
    ]


class AckWait(NamedTuple):
    """What an answer waits for: everything below ``end_offset`` is safe under ``leader_epoch``.

    ``replicated``: safe means below the high watermark; else flushed by this leader.  A tuple,
    because one is made for every batch.
    """

    end_offset: int
    leader_epoch: int
    replicated: bool


class Appended(NamedTuple):
    """Outcome of an append: the answer, what it waits for, and what the shell must do.

    With ``refusal`` the answer is that error, which too waits for the state that it was judged by.
    A tuple, because one is made for every batch.
    """

    base_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    log_append_time: int = NO_TIMESTAMP
    log_start_offset: int = NO_OFFSET
    size: int = 0
    refusal: KafkaError | None = None
    wait: AckWait | None = None
    effects: tuple[Effect, ...] = ()


class EpochEnd(NamedTuple):
    """A leader epoch, and where its records end."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRead:
    """Records of a read and the marks that travel with them; ``records`` None when there are none.

    ``aborted``: transactions with data among them, for who reads committed data.
    Whoever takes the region sends or releases it.  ``end_offset`` is where this reader's part of
    the log ends.  ``diverging``: what the reader has before its offset is not what this log has
    there; the largest epoch up to the reader's, and where that ended here (KIP-595).
    """

    records: Region | None
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    end_offset: int
    aborted: tuple[AbortedTxn, ...] = ()
    diverging: EpochEnd | None = None


class FetchPosition(NamedTuple):
    """What a follower says when it fetches; ``offset`` is the end of its log.

    ``last_fetched_epoch``: of the record before that, -1 when there is none.  A tuple, because it
    is made anew for every comparison.
    """

    offset: int
    last_fetched_epoch: int
    current_leader_epoch: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """What a leader asks the controller for: ids and broker epochs (-1: not known, KIP-903)."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


class Truncated(NamedTuple):
    """What a follower's truncation came to; ``committed`` records of it were below its HW."""

    end_before: int
    end_after: int
    committed: int
    effects: tuple[Effect, ...] = ()
