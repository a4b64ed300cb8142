"""What transactional producers asked and saw, and what was decided: one event each.

Owns: the events of transactions; ``events`` has the others.  Must not know how anything was asked,
nor what follows from it.  A transaction is named by a number of the history, whoever began it.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tests.simulation.events import LogId

#: The code of an ``OffsetCommitRefused`` of offsets that were taken, in an aborted transaction.
ABORTED = "aborted"


class Producer(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerInitialized:
    """InitProducerId was answered; the attempt was asked for at position ``asked``.

    ``instance`` is one producer object of one process; it starts with this event.
    """

    asked: int
    transactional_id: str
    instance: str
    producer: Producer


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionBegun:
    """An instance begins a transaction; nothing is sent yet."""

    transaction: int
    transactional_id: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalRecordSent:
    """A record of a transaction; no two have the same value."""

    transaction: int
    log: LogId
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalRecordAcked:
    """The record is in the log."""

    transaction: int
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxnInvoked:
    """One attempt to end a transaction; a retry is an attempt of its own."""

    op: int
    transaction: int
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxnAnswered:
    """The coordinator's answer to an attempt; an empty ``code``: the end is decided."""

    op: int
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRead:
    """A read_committed fetch: the records that the reader keeps.

    Records of aborted transactions and markers are dropped already, as every client does.
    """

    asked: int
    reader: str
    log: LogId
    offset: int
    last_stable_offset: int
    high_watermark: int
    records: tuple[tuple[int, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTaken:
    """A consistent cut: how far a reader of committed records reads each of these partitions."""

    reader: str
    ends: tuple[tuple[LogId, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStateCommitted:
    """A record of ``__transaction_state`` is below the high watermark of its partition.

    ``state`` is Kafka's name of it, "Dead" for a tombstone.
    """

    log: LogId
    offset: int
    transactional_id: str
    state: str
    producer: Producer
    partitions: frozenset[tuple[str, int]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerAppended:
    """A marker is below the high watermark of its partition."""

    log: LogId
    offset: int
    producer: Producer
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsSettled:
    """After the healing: what is still open after ``took_ms``, for coordinators and in partitions.

    ``unstable`` are partitions whose last stable offset is below their high watermark.
    """

    took_ms: int
    open: tuple[str, ...] = ()
    unstable: tuple[LogId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainDrained:
    """After the healing: a chain has processed each input partition up to its end.

    Without ``ends`` it has not, and ``error`` says why.
    """

    group: str
    ends: tuple[tuple[LogId, int], ...]
    took_ms: int
    error: str = ""


TransactionEvent: TypeAlias = (
    ProducerInitialized
    | TransactionBegun
    | TransactionalRecordSent
    | TransactionalRecordAcked
    | EndTxnInvoked
    | EndTxnAnswered
    | CommittedRead
    | CutTaken
    | TransactionStateCommitted
    | MarkerAppended
    | TransactionsSettled
    | ChainDrained
)
