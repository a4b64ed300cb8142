"""The first batch of a transaction needs the word of the transaction coordinator."""

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import Appended, Partition, UnverifiedTransactionError
from sparklog.executors.partition.producer_state import TransactionEnd
from sparklog.wire.records.control import ControlType, EndTxnMarker
from tests.unit.executors.partition.partition_maker import NODE, NOW, Maker, batch, led

PRODUCER = 7


def sent(
    sequence: int, epoch: int = 3, transactional: bool = True, acks: int = 1
) -> tuple[bytes, int]:
    data = batch(
        b"a", producer_id=PRODUCER, epoch=epoch, sequence=sequence, transactional=transactional
    )
    return data, acks


def append(
    partition: Partition, *batches: tuple[bytes, int], verified: bool = False
) -> list[int | ErrorCode | str]:
    """The base offset of each batch, its error code, or ``unverified``."""

    def word(outcome: Appended | KafkaError) -> int | ErrorCode | str:
        if isinstance(outcome, UnverifiedTransactionError):
            assert (outcome.producer_id, outcome.code) == (PRODUCER, ErrorCode.INVALID_TXN_STATE)
            return f"unverified {outcome.producer_epoch}"
        return outcome.code if isinstance(outcome, KafkaError) else outcome.base_offset

    outcomes = partition.append_all_as_leader(batches, now_ms=NOW, verified=verified)
    partition.check_invariants()
    return [word(outcome) for outcome in outcomes]


def end(partition: Partition, epoch: int) -> None:
    marker = EndTxnMarker(control_type=ControlType.COMMIT, coordinator_epoch=1)
    partition.end_transaction(
        TransactionEnd(producer_id=PRODUCER, producer_epoch=epoch, marker=marker), now_ms=NOW
    )


@pytest.fixture
def partition() -> Partition:
    return Maker().open()


def test_no_batch_of_a_transaction_is_appended_before_the_first_is_verified(
    partition: Partition,
) -> None:
    assert append(partition, sent(0), sent(1)) == ["unverified 3"] * 2
    assert partition.log.log_end_offset == 0
    assert append(partition, sent(0), sent(1), verified=True) == [0, 1]
    assert append(partition, sent(2), sent(3)) == [2, 3]


def test_each_transaction_is_verified_anew(partition: Partition) -> None:
    append(partition, sent(0), verified=True)
    end(partition, epoch=3)
    assert append(partition, sent(1)) == ["unverified 3"]
    assert append(partition, sent(1), verified=True) == [2]


def test_a_transaction_is_verified_before_followers_have_the_marker_of_the_last_one() -> None:
    """Other refusals wait until what they depend on is acknowledged."""
    in_sync = (NODE, 2)
    partition = Maker().open(led(replicas=in_sync, isr=in_sync, last_known=in_sync))
    append(partition, sent(0, acks=-1), verified=True)
    end(partition, epoch=3)
    assert partition.high_watermark == 0
    assert append(partition, sent(1, acks=-1)) == ["unverified 3"]


def test_an_open_transaction_confirms_its_own_epoch_only(partition: Partition) -> None:
    append(partition, sent(0), verified=True)
    assert append(partition, sent(0, epoch=4), sent(1)) == ["unverified 4", 1]


def test_a_repetition_needs_no_word(partition: Partition) -> None:
    append(partition, sent(0), verified=True)
    end(partition, epoch=3)
    assert append(partition, sent(0)) == [0]


def test_a_fenced_producer_is_refused_at_once(partition: Partition) -> None:
    append(partition, sent(0), verified=True)
    end(partition, epoch=4)
    assert append(partition, sent(1)) == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_plain_batches_in_a_transaction_are_refused(partition: Partition) -> None:
    append(partition, sent(0), verified=True)
    assert append(partition, sent(1, transactional=False)) == [ErrorCode.INVALID_TXN_STATE]
    assert append(partition, sent(1)) == [1]
