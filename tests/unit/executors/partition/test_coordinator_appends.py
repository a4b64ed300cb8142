"""Batches of transactions that a coordinator of this broker writes: offsets of groups."""

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import Appended
from sparklog.executors.partition.partition import Partition
from sparklog.executors.partition.producer_state import TransactionEnd
from sparklog.types import NO_SEQUENCE
from sparklog.wire.records.control import ControlType, EndTxnMarker
from tests.unit.executors.partition.partition_maker import NODE, NOW, Maker, batch, led

PRODUCER = 7
#: The partition has a second replica that fetches nothing.
UNREPLICATED = led(replicas=(NODE, 2), isr=(NODE, 2), last_known=(NODE, 2))


def append(partition: Partition, *values: bytes, epoch: int = 3) -> Appended:
    data = batch(*values, producer_id=PRODUCER, epoch=epoch, transactional=True)
    return partition.append_as_coordinator(data, now_ms=NOW)


def end(partition: Partition, epoch: int) -> None:
    marker = EndTxnMarker(control_type=ControlType.COMMIT, coordinator_epoch=1)
    partition.end_transaction(
        TransactionEnd(producer_id=PRODUCER, producer_epoch=epoch, marker=marker), now_ms=NOW
    )


def code_of(partition: Partition, *values: bytes, epoch: int = 3) -> ErrorCode:
    log_end = partition.log.log_end_offset
    with pytest.raises(KafkaError) as refused:
        append(partition, *values, epoch=epoch)
    assert partition.log.log_end_offset == log_end
    return refused.value.code


def test_batches_without_sequence_open_a_transaction_and_are_never_repetitions() -> None:
    partition = Maker().open()
    first, second = append(partition, b"a", b"b"), append(partition, b"a", b"b")
    assert (first.base_offset, first.last_offset, first.required_offset) == (0, 1, None)
    assert (second.base_offset, second.last_offset) == (2, 3)
    entry = partition.producers.entries[PRODUCER]
    assert (entry.producer_epoch, entry.last_sequence) == (3, NO_SEQUENCE)
    assert entry.current_txn_first_offset == partition.last_stable_offset == 0
    end(partition, epoch=3)
    assert partition.last_stable_offset == partition.log.log_end_offset == 5
    partition.check_invariants()


def test_an_older_epoch_is_fenced() -> None:
    partition = Maker().open()
    append(partition, b"a", epoch=3)
    assert code_of(partition, b"b", epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    end(partition, epoch=4)
    assert code_of(partition, b"b", epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    append(partition, b"b", epoch=4)


def test_a_refusal_waits_for_the_records_that_have_caused_it() -> None:
    partition = Maker().open(UNREPLICATED)
    append(partition, b"a", epoch=4)
    late = append(partition, b"b", epoch=3)
    assert late.refusal is not None
    assert late.refusal.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert late.required_offset is not None
    assert late.required_offset.offset == partition.log.log_end_offset == 1


def test_a_batch_waits_for_all_replicas() -> None:
    partition = Maker().open(UNREPLICATED)
    required = append(partition, b"a").required_offset
    assert required is not None
    assert not partition.has_reached(required)
    partition.update_follower_fetch_state(2, 1)
    assert partition.has_reached(required)


def test_a_partition_that_takes_no_batch_changes_nothing() -> None:
    follower = Maker().open(led(leader=2))
    assert code_of(follower, b"a") is ErrorCode.NOT_LEADER_OR_FOLLOWER
    alone = Maker().open(led(replicas=(NODE, 2)), min_insync_replicas=2)
    assert code_of(alone, b"a") is ErrorCode.NOT_ENOUGH_REPLICAS
    small = Maker().open(max_message_bytes=1_000)
    assert code_of(small, bytes(1_000)) is ErrorCode.MESSAGE_TOO_LARGE
    short = Maker().open(segment_bytes=1_000)
    assert code_of(short, bytes(1_000)) is ErrorCode.RECORD_LIST_TOO_LARGE
