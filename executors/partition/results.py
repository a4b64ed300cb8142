"""The results of a partition's calls, and what a response must wait for.

Owns: the values.  Must not know how a result comes about.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log import AbortedTxn
from sparklog.executors.partition.effects import Effect
from sparklog.storage_backends.base import Region
from sparklog.types import NO_OFFSET, NO_TIMESTAMP
from sparklog.wire.records.batch import Buffer

ACKS_ALL = -1
ACKS_NONE = 0
#: A produce request's part for one partition: the record batch, and acks.
SentBatch: TypeAlias = tuple[Buffer | None, int]


class RequiredOffset(NamedTuple):
    """The offset that must be reached in ``leader_epoch`` before a batch is acknowledged.

    With ``committed`` (acks=all), the high watermark must reach ``offset``, so that all records
    below are committed (``Partition.checkEnoughReplicasReachOffset``).  Otherwise the recovery
    point of this leader must reach ``offset``, so that all records below are flushed.  A tuple,
    because every batch makes a ``RequiredOffset``.
    """

    offset: int
    leader_epoch: int
    committed: bool


class TieredState(NamedTuple):
    """Everything in [``log_start_offset``, ``tiered_end_offset``) is in the bucket; the leader's
    files begin at ``local_log_start_offset``."""

    log_start_offset: int
    local_log_start_offset: int
    tiered_end_offset: int


class Appended(NamedTuple):
    """The result of an append: the response, what it waits for, and the effects for the shell.

    The response waits until ``required_offset`` is reached; None: it does not wait.  With
    ``refusal`` the response is that error.  A refusal waits too, because the batch was refused by
    records that must be acknowledged first.  A tuple, because every batch makes an ``Appended``.
    """

    base_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    log_append_time: int = NO_TIMESTAMP
    log_start_offset: int = NO_OFFSET
    size: int = 0
    refusal: KafkaError | None = None
    required_offset: RequiredOffset | None = None
    effects: tuple[Effect, ...] = ()


class UnverifiedTransactionError(KafkaError):
    """The batch is the first of a transaction that the coordinator has not confirmed here.

    Nothing was changed.  The batch may be appended once the transaction coordinator has confirmed
    that the partition belongs to the transaction of this producer.
    """

    def __init__(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        super().__init__(
            ErrorCode.INVALID_TXN_STATE,
            f"the batch of producer {producer_id}, epoch {producer_epoch}, belongs to no open "
            "transaction of the partition",
        )
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence


class EpochEnd(NamedTuple):
    """A leader epoch, and the offset where its records end."""

    epoch: int
    end_offset: int


class PartitionRead(NamedTuple):
    """The records of a read, and the offsets that travel with them.

    A tuple, because every read makes one.

    Attributes:
        records: the batches, or None without any.  The caller sends or releases the region.
        size: bytes of ``records``.
        end_offset: where the log ends for this reader.
        aborted: aborted transactions with data among the records, for read_committed.
        diverging: the reader's log is not this log before the fetch offset: the largest epoch up
            to the reader's, and where that epoch ended here (KIP-595).
        is_remote: nothing was read, although there are records and the reader may have some: the
            fetch offset is below the local log start, so they are in the bucket.
    """

    records: Region | None
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    end_offset: int
    aborted: tuple[AbortedTxn, ...] = ()
    diverging: EpochEnd | None = None
    is_remote: bool = False


class FetchPosition(NamedTuple):
    """The position that a follower fetches from; ``offset`` is the end of its log.

    ``last_fetched_epoch`` is the leader epoch of the record before ``offset``, -1 without one.  A
    tuple, because every comparison makes a new position.
    """

    offset: int
    last_fetched_epoch: int
    current_leader_epoch: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """The ISR that a leader asks for: broker ids and broker epochs (-1: not known, KIP-903)."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


class Truncated(NamedTuple):
    """The result of a truncation; ``committed`` truncated records were below the high watermark."""

    end_before: int
    end_after: int
    committed: int
    effects: tuple[Effect, ...] = ()
