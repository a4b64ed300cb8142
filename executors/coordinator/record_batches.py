"""The batches that the decisions of one turn of the event loop become.

Owns: how many decisions share a batch, and how large a batch may become.  Must not know logs, nor
what the records mean.

Sizes are upper bounds without compression, as in Kafka's ``CoordinatorRuntime``, so an encoded
batch is not larger than its bound.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from sparklog.executors.coordinator.state_machine import CoordinatorRecord, TransactionalProducer
from sparklog.types import Compression
from sparklog.wire.records.batch import BATCH_OVERHEAD
from sparklog.wire.records.builder import Record, encode_batch

#: Bytes of a record beside its key and value (Kafka's ``DefaultRecord.MAX_RECORD_OVERHEAD``).
RECORD_OVERHEAD_MAX: Final = 21

AnswerT = TypeVar("AnswerT")


@dataclass(slots=True)
class PendingBatch(Generic[AnswerT]):
    """Records to append together, and the answers that show them."""

    size: int = BATCH_OVERHEAD
    records: list[Record] = field(default_factory=list)
    answers: list[AnswerT] = field(default_factory=list)

    def encode(self, compression: Compression) -> bytes:
        return encode_batch(self.records, compression=compression)


def encode_in_transaction(
    records: Iterable[CoordinatorRecord],
    producer: TransactionalProducer,
    wall_ms: int,
    compression: Compression,
) -> bytes:
    """A batch of a producer's transaction; it has no sequence, as Kafka's coordinators write it."""
    return encode_batch(
        [Record(key=record.key, value=record.value, timestamp=wall_ms) for record in records],
        compression=compression,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transactional=True,
    )


class RecordBatches(Generic[AnswerT]):
    """The batches of one turn, in their order."""

    def __init__(self) -> None:
        self._batches: list[PendingBatch[AnswerT]] = []

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(
        self, records: Sequence[CoordinatorRecord], wall_ms: int, batch_bytes_max: int
    ) -> PendingBatch[AnswerT]:
        """Add the records of a decision, which ``fits`` has accepted; return their last batch.

        Args:
            wall_ms: the timestamp of the records.
            batch_bytes_max: the largest batch that the partition takes.
        """
        whole = decision_size(records)
        parts = (
            [(records, whole)]
            if BATCH_OVERHEAD + whole <= batch_bytes_max
            else [((record,), decision_size((record,))) for record in records]
        )
        for part, size in parts:
            if not self._batches or self._batches[-1].size + size > batch_bytes_max:
                self._batches.append(PendingBatch())
            batch = self._batches[-1]
            batch.size += size
            batch.records += [
                Record(key=record.key, value=record.value, timestamp=wall_ms) for record in part
            ]
        return self._batches[-1]

    @property
    def last(self) -> PendingBatch[AnswerT] | None:
        """The batch that was added last."""
        return self._batches[-1] if self._batches else None

    def take(self) -> list[PendingBatch[AnswerT]]:
        """Hand over all batches; nothing is left."""
        taken, self._batches = self._batches, []
        return taken


def decision_size(records: Iterable[CoordinatorRecord]) -> int:
    """The most bytes that the records can take in a batch."""
    return sum(RECORD_OVERHEAD_MAX + len(r.key) + len(r.value or b"") for r in records)


def fits(records: Sequence[CoordinatorRecord], batch_bytes_max: int, *, divisible: bool) -> bool:
    """Whether the records fit into one batch, or with ``divisible`` each of them into one."""
    if not divisible:
        return BATCH_OVERHEAD + decision_size(records) <= batch_bytes_max
    return all(BATCH_OVERHEAD + decision_size((record,)) <= batch_bytes_max for record in records)
