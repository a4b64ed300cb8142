"""Sequence numbers of an idempotent producer, by partition."""

from sparklog.client.producer_sequences import BatchIdentity, ProducerIdentity, ProducerSequences
from sparklog.types import MAX_INT32, TopicPartition

FIRST = ProducerIdentity(producer_id=7, producer_epoch=0)
SECOND = ProducerIdentity(producer_id=8, producer_epoch=3)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_partitions_count_for_themselves() -> None:
    sequences = ProducerSequences()
    for tp in (T0, T1):
        sequences.start(tp, FIRST)
    sequences.advance(T0, 3)
    assert sequences.next_batch(T0) == BatchIdentity(
        producer_id=7, producer_epoch=0, base_sequence=3
    )
    assert sequences.next_batch(T1)["base_sequence"] == 0


def test_a_partition_whose_fate_is_unknown_starts_again_with_another_identity() -> None:
    sequences = ProducerSequences()
    sequences.start(T0, FIRST, 5)
    sequences.forget(T0)
    assert T0 not in sequences
    sequences.start(T0, SECOND)
    assert sequences.next_batch(T0) == BatchIdentity(
        producer_id=8, producer_epoch=3, base_sequence=0
    )


def test_sequence_numbers_of_a_partition_wrap() -> None:
    sequences = ProducerSequences()
    sequences.start(T0, FIRST, MAX_INT32)
    sequences.advance(T0, 2)
    assert sequences.next_batch(T0)["base_sequence"] == 1
