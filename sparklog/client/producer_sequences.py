"""Producer identity and sequence numbers of an idempotent producer, by partition.

Owns: which producer id and epoch a partition's batches carry, and the sequence number of its next
batch (as ``TxnPartitionMap`` of Java's producer does).  Must not know how batches are encoded or
sent, nor where producer ids come from.
"""

from dataclasses import dataclass
from typing import Final, TypedDict

from sparklog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from sparklog.wire.records.batch import add_sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """Producer id and epoch, for idempotent batches."""

    producer_id: int
    producer_epoch: int


class BatchIdentity(TypedDict):
    """The fields of a batch header that make it idempotent, as arguments of the encoders."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


NOT_IDEMPOTENT: Final = BatchIdentity(
    producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH, base_sequence=NO_SEQUENCE
)


@dataclass(slots=True)
class _PartitionState:
    identity: ProducerIdentity
    next_sequence: int


class ProducerSequences:
    """The identity and the next sequence number of each partition that was started."""

    __slots__ = ("_partitions",)

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _PartitionState] = {}

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._partitions

    def start(self, tp: TopicPartition, identity: ProducerIdentity, sequence: int = 0) -> None:
        """Use an identity for a partition from now on; its next batch is at ``sequence``."""
        self._partitions[tp] = _PartitionState(identity, sequence)

    def forget(self, tp: TopicPartition) -> None:
        """It is unknown whether a batch was written: do not use its sequence numbers again."""
        self._partitions.pop(tp, None)

    def next_batch(self, tp: TopicPartition) -> BatchIdentity:
        """The header fields of the next batch of a started partition; ``advance`` counts it."""
        state = self._partitions[tp]
        return BatchIdentity(
            producer_id=state.identity.producer_id,
            producer_epoch=state.identity.producer_epoch,
            base_sequence=state.next_sequence,
        )

    def advance(self, tp: TopicPartition, record_count: int) -> None:
        """Count a batch of ``record_count`` records; sequence numbers wrap to 0 (31 bits)."""
        state = self._partitions[tp]
        state.next_sequence = add_sequence(state.next_sequence, record_count)
