"""Transactions through a partition: what is appended, what readers get, what failures leave."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log.steps import run_through
from sparklog.executors.log.txn_index import AbortedTxn
from sparklog.executors.partition import (
    Appended,
    CompleteDelayedFetches,
    CompleteDelayedFollowerFetches,
    CompleteDelayedProduces,
    PartitionRead,
    RequiredOffset,
)
from sparklog.executors.partition.partition import Partition
from sparklog.executors.partition.producer_state import TransactionEnd
from sparklog.types import NO_OFFSET, Isolation, OffsetSpec, OffsetTimestamp, TimestampType
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import decode_records
from sparklog.wire.records.control import ControlType, EndTxnMarker, read_marker
from tests.unit.executors.partition.partition_maker import NOW, TP, Maker, batch, flush, led

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
Opener = Callable[..., Partition]


def put(partition: Partition, *values: bytes, **fields: object) -> Appended:
    """Append a batch; with ``pid`` in a transaction of that producer, of epoch 0."""
    pid = fields.pop("pid", -1)
    if pid == -1:
        data = batch(*values, **fields)  # type: ignore[arg-type]
    else:
        entry = partition.producers.entries.get(pid)  # type: ignore[call-overload]
        sequence = 0 if entry is None else entry.last_sequence + 1
        data = batch(
            *values,
            producer_id=pid,  # type: ignore[arg-type]
            epoch=0,
            sequence=sequence,
            transactional=True,
            **fields,  # type: ignore[arg-type]
        )
    return partition.append_as_leader(data, acks=1, now_ms=NOW, verified=pid != -1)


def ending(pid: int, kind: ControlType, *, epoch: int = 0, coordinator: int = 0) -> TransactionEnd:
    return TransactionEnd(
        producer_id=pid,
        producer_epoch=epoch,
        marker=EndTxnMarker(control_type=kind, coordinator_epoch=coordinator),
    )


def finish(partition: Partition, pid: int, kind: ControlType, **fields: int) -> Appended:
    return partition.end_transaction(ending(pid, kind, **fields), now_ms=NOW)


def read(partition: Partition, offset: int = 0, isolation: Isolation = COMMITTED) -> PartitionRead:
    return partition.read(offset, 1 << 20, isolation=isolation)


def values(found: PartitionRead) -> list[bytes | None]:
    if found.records is None:
        return []
    data = found.records.read()
    found.records.release()
    return [record.value for record in decode_records(data)]


def seen(partition: Partition, isolation: Isolation) -> list[bytes | None]:
    return values(read(partition, isolation=isolation))


def test_an_open_transaction_holds_back_what_comes_after_its_first_record(
    open_partition: Opener,
) -> None:
    partition = open_partition()
    put(partition, b"a")
    put(partition, b"t", pid=7)
    put(partition, b"b")
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 1)
    assert seen(partition, COMMITTED) == [b"a"]
    assert seen(partition, UNCOMMITTED) == [b"a", b"t", b"b"]
    assert read(partition, 1) == PartitionRead(
        records=None,
        size=0,
        high_watermark=3,
        last_stable_offset=1,
        log_start_offset=0,
        end_offset=1,
    )
    finish(partition, 7, COMMIT)
    assert (partition.high_watermark, partition.last_stable_offset) == (4, 4)
    assert seen(partition, COMMITTED) == [b"a", b"t", b"b"]


@pytest.mark.parametrize("by_broker", [False, True])
@pytest.mark.parametrize("kind", ControlType)
def test_the_marker_is_a_control_batch_with_the_producers_epoch(
    open_partition: Opener, kind: ControlType, by_broker: bool
) -> None:
    timestamps = TimestampType.LOG_APPEND_TIME if by_broker else TimestampType.CREATE_TIME
    named = "LogAppendTime" if by_broker else "CreateTime"
    partition = open_partition(led(epoch=6), message_timestamp_type=named)
    put(partition, b"t", pid=7)
    answer = finish(partition, 7, kind, epoch=3, coordinator=12)
    records = read(partition, 1).records
    assert records is not None
    data = records.read()
    records.release()
    ((header, start),) = iter_batches(data)
    assert read_marker(data, start, header) == EndTxnMarker(control_type=kind, coordinator_epoch=12)
    assert (header.producer_id, header.producer_epoch, header.base_offset) == (7, 3, 1)
    assert (header.partition_leader_epoch, header.max_timestamp) == (6, NOW)
    assert header.timestamp_type is timestamps
    assert answer == Appended(
        base_offset=1,
        last_offset=1,
        log_append_time=NOW if by_broker else -1,
        log_start_offset=0,
        size=header.size,
        effects=(
            CompleteDelayedFetches(topic_partition=TP, size=0),
            CompleteDelayedProduces(topic_partition=TP),
        ),
    )


def test_the_aborted_transactions_of_a_read_come_with_it(open_partition: Opener) -> None:
    partition = open_partition(segment_bytes=300)
    put(partition, b"1", pid=1)
    put(partition, b"2", pid=2)
    put(partition, b"plain")
    finish(partition, 1, ABORT)
    put(partition, b"3", pid=1)
    finish(partition, 2, COMMIT)
    finish(partition, 1, ABORT)
    put(partition, b"4", pid=2)
    finish(partition, 2, ABORT)
    assert len(partition.log.segments) > 2
    first = AbortedTxn(1, 0, 3, 1)
    second = AbortedTxn(1, 4, 6, 7)
    third = AbortedTxn(2, 7, 8, 9)
    aborted = {}
    for offset in range(9):
        found = partition.read(offset, 1, isolation=COMMITTED)
        assert found.records is not None
        found.records.release()
        aborted[offset] = found.aborted
    # With a first offset below the end of the read, and a marker at or above its begin.
    assert aborted == {
        **dict.fromkeys(range(4), (first,)),
        4: (second,),
        5: (second,),
        6: (second,),
        7: (third,),
        8: (third,),
    }
    assert read(partition, 0, UNCOMMITTED).aborted == ()
    everything = partition.log.read(0, 1 << 20, end_offset=9, with_aborted=True)
    assert everything.region is not None
    everything.region.release()
    assert everything.aborted == (first,)  # one segment at a time, here without the second


def test_list_offsets_of_a_reader_of_committed_data_ends_at_the_last_stable_offset(
    open_partition: Opener,
) -> None:
    partition = open_partition(led(epoch=2))
    put(partition, b"a", timestamp=NOW + 1)
    put(partition, b"t", pid=7, timestamp=NOW + 2)
    put(partition, b"b", timestamp=NOW + 3)

    def answers(isolation: Isolation) -> list[OffsetTimestamp | None]:
        wanted = (OffsetSpec.LATEST, OffsetSpec.EARLIEST, NOW, NOW + 2, OffsetSpec.MAX_TIMESTAMP)
        return [run_through(partition.find_offset(timestamp, isolation)) for timestamp in wanted]

    at = OffsetTimestamp
    everything = [
        at(offset=3, leader_epoch=2),
        at(offset=0, leader_epoch=2),
        at(offset=0, timestamp=NOW + 1, leader_epoch=2),
        at(offset=1, timestamp=NOW + 2, leader_epoch=2),
        at(offset=2, timestamp=NOW + 3, leader_epoch=2),
    ]
    assert answers(UNCOMMITTED) == everything
    stable = [at(offset=1, leader_epoch=2), everything[1], everything[2], None, None]
    assert answers(COMMITTED) == stable
    finish(partition, 7, ABORT)
    assert answers(COMMITTED) == [at(offset=4, leader_epoch=2), *everything[1:]]


def test_a_marker_counts_once_it_is_replicated(open_partition: Opener) -> None:
    pair = led(replicas=(1, 2), isr=(1, 2), last_known=(1, 2))
    partition = open_partition(pair)
    put(partition, b"t", pid=7)
    put(partition, b"b")
    partition.update_follower_fetch_state(2, 2)
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 0)
    answer = finish(partition, 7, COMMIT)
    assert answer.required_offset == RequiredOffset(offset=3, leader_epoch=0, committed=True)
    assert [type(effect) for effect in answer.effects] == [CompleteDelayedFollowerFetches]
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 0)
    # Readers are to look again however few bytes the marker has.
    assert partition.update_follower_fetch_state(2, 3) == [
        CompleteDelayedFetches(topic_partition=TP, size=0),
        CompleteDelayedProduces(topic_partition=TP),
    ]
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 3)
    assert partition.has_reached(answer.required_offset)


def test_a_marker_needs_enough_replicas_and_the_leader(open_partition: Opener) -> None:
    pair = led(replicas=(1, 2), isr=(1,), last_known=(1, 2))
    partition = open_partition(pair, min_insync_replicas=2)
    put(partition, b"t", pid=7)
    with pytest.raises(KafkaError) as caught:
        finish(partition, 7, COMMIT)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    partition.make_leader_or_follower(replace(pair, leader=2, leader_epoch=1, partition_epoch=1), 0)
    with pytest.raises(KafkaError) as caught:
        finish(partition, 7, COMMIT)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.log.log_end_offset == 1


def test_a_marker_waits_for_a_promised_flush(open_partition: Opener) -> None:
    partition = open_partition(flush_messages=1)
    put(partition, b"t", pid=7)
    answer = finish(partition, 7, COMMIT)
    assert answer.required_offset is not None
    assert (partition.high_watermark, partition.last_stable_offset) == (0, 0)
    flush(partition)
    assert partition.has_reached(answer.required_offset)
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)


@pytest.mark.parametrize(
    ("kind", "coordinator", "epoch", "code"),
    [
        (ABORT, 3, 0, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (COMMIT, 5, -1, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_refused_marker_changes_nothing(
    open_partition: Opener, kind: ControlType, coordinator: int, epoch: int, code: ErrorCode
) -> None:
    partition = open_partition()
    finish(partition, 7, COMMIT, coordinator=4)
    put(partition, b"t", pid=7)
    before = dict(partition.producers.entries)
    with pytest.raises(KafkaError) as caught:
        finish(partition, 7, kind, coordinator=coordinator, epoch=epoch)
    assert caught.value.code is code
    assert partition.producers.entries == before
    assert (partition.log.log_end_offset, partition.last_stable_offset) == (2, 1)


@pytest.mark.parametrize("under", [".log", ".txnindex"])
def test_a_marker_that_cannot_be_written_changes_nothing(
    maker: Maker, open_partition: Opener, under: str
) -> None:
    partition = open_partition()
    put(partition, b"t", pid=7)
    before = dict(partition.producers.entries)
    maker.backend.faults.fail_next(operation="writev", under=under)
    with pytest.raises(KafkaError) as caught:
        finish(partition, 7, ABORT)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.producers.entries == before
    assert (partition.log.log_end_offset, partition.last_stable_offset) == (1, 0)
    finish(partition, 7, COMMIT)
    assert read(partition).aborted == ()
    assert seen(partition, COMMITTED) == [b"t"]
    assert [name for name in maker.backend.list("broker-1/t-0") if "txn" in name] == []


def test_a_transaction_survives_deletion_of_its_first_records(open_partition: Opener) -> None:
    partition = open_partition()
    put(partition, b"a", pid=7)
    put(partition, b"b")
    put(partition, b"c", pid=7)
    partition.delete_records(2)
    assert (partition.last_stable_offset, partition.unclamped_last_stable_offset) == (2, 0)
    partition.delete_records(3)
    assert (partition.last_stable_offset, read(partition, 3).size) == (3, 0)
    put(partition, b"d")
    assert (partition.high_watermark, partition.last_stable_offset) == (4, 3)
    finish(partition, 7, ABORT)
    assert partition.last_stable_offset == 5
    found = read(partition, 3)
    assert found.aborted == (AbortedTxn(7, 0, 4, 5),)
    assert values(found) == [b"d"]


def test_retention_takes_nothing_of_an_open_transaction(open_partition: Opener) -> None:
    partition = open_partition(retention_ms=1, segment_bytes=300)
    for _ in range(6):
        put(partition, b"old", timestamp=NOW - 100)
    put(partition, b"t", pid=7, timestamp=NOW - 100)
    for _ in range(6):
        put(partition, b"old", timestamp=NOW - 100)
    partition.log.delete_old_segments(NOW, partition.unclamped_last_stable_offset)
    start = partition.log.log_start_offset
    assert 0 < start <= 6
    assert start == max(s.base_offset for s in partition.log.segments if s.base_offset <= 6)
    finish(partition, 7, COMMIT)
    partition.log.delete_old_segments(NOW + 100, partition.unclamped_last_stable_offset)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (14, 14)
    # What was deleted is still known of its producer.
    assert partition.producers.entries[7].last_sequence == 0
    again = batch(b"t", producer_id=7, epoch=0, sequence=0, transactional=True)
    repeated = partition.append_as_leader(again, acks=1, now_ms=NOW, verified=True)
    assert (repeated.base_offset, repeated.size) == (6, 0)


def test_control_batches_and_batches_without_a_producer_are_refused(
    open_partition: Opener,
) -> None:
    partition = open_partition()
    put(partition, b"t", pid=7)
    control = batch(b"x", producer_id=7, epoch=0, sequence=1, transactional=True, control=True)
    without = batch(b"x", transactional=True)
    for refused in (control, without):
        with pytest.raises(KafkaError) as caught:
            partition.append_as_leader(refused, acks=1, now_ms=NOW, verified=True)
        assert caught.value.code is ErrorCode.INVALID_RECORD
    assert partition.log.log_end_offset == 1


def test_an_idempotent_batch_does_not_fit_into_an_open_transaction(open_partition: Opener) -> None:
    partition = open_partition()
    put(partition, b"t", pid=7)
    plain = batch(b"x", producer_id=7, epoch=0, sequence=1)
    with pytest.raises(KafkaError) as caught:
        partition.append_as_leader(plain, acks=1, now_ms=NOW)
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE
    finish(partition, 7, COMMIT)
    assert partition.append_as_leader(plain, acks=1, now_ms=NOW).base_offset == 2
    assert partition.producers.entries[7].current_txn_first_offset == NO_OFFSET


# what a crash and a stop leave


def state_of(partition: Partition) -> object:
    """What must be the same after opening again."""
    return (
        partition.log.log_start_offset,
        partition.log.log_end_offset,
        partition.last_stable_offset,
        dict(partition.producers.transactions.ongoing),
        dict(partition.producers.entries),
        _indexed(partition),
    )


def _indexed(partition: Partition) -> object:
    return [segment.txn_index.read_all() for segment in partition.log.segments]


def crowded(partition: Partition, until: int = 1000) -> None:
    for number in range(40):
        if partition.log.log_end_offset >= until:
            return
        pid = number % 5
        put(partition, b"v" * 20, pid=pid)
        if number % 3 == 2 and partition.log.log_end_offset < until:
            finish(partition, (number + 3) % 5, ABORT if number % 2 else COMMIT)


@pytest.mark.parametrize("how", ["clean stop", "crash", "crash that lost the snapshots"])
def test_opening_again_gives_the_same_state(maker: Maker, open_partition: Opener, how: str) -> None:
    partition = open_partition(segment_bytes=600)
    crowded(partition)
    before = state_of(partition)
    assert len(partition.log.segments) > 5
    if how == "clean stop":
        partition.log.close(NOW)
    else:
        partition.log.flush(NOW)
    # The machine stops too: what was not flushed is gone, names included.
    maker.backend.crash(lose_names=True)
    maker.files.close()
    if how.endswith("snapshots"):
        for name in maker.backend.list("broker-1/t-0"):
            if name.endswith(".snapshot"):
                maker.backend.delete(f"broker-1/t-0/{name}")
    clean = how == "clean stop"
    point = partition.log.recovery_point if how == "crash" else 0
    again = open_partition(segment_bytes=600, clean=clean, recovery_point=point)
    recovered = {"clean stop": 0, "crash": 1}.get(how, len(again.log.segments))
    assert again.log.recovery.segments_recovered == recovered
    assert state_of(again) == before


def test_an_abort_behind_the_last_flush_is_indexed_by_a_clean_stop(maker: Maker) -> None:
    partition = maker.open()
    put(partition, b"t", pid=7)
    partition.log.flush(NOW)
    finish(partition, 7, ABORT)
    before = state_of(partition)
    partition.log.close(NOW)
    maker.backend.crash(lose_names=True)
    maker.files.close()
    assert state_of(maker.open(clean=True)) == before


@pytest.mark.parametrize("lost", [".txnindex", ".index", ".timeindex", ".stats", ".snapshot"])
def test_a_clean_stop_leaves_aborted_data_hidden_whatever_the_machine_loses_then(
    maker: Maker, lost: str
) -> None:
    partition = maker.open()
    put(partition, b"t", pid=7)
    finish(partition, 7, ABORT)
    before = state_of(partition)
    partition.log.close(NOW)
    maker.backend.crash(lambda path, unflushed: 0 if path.endswith(lost) else unflushed)
    maker.files.close()
    assert state_of(maker.open(clean=True)) == before


def test_a_deleted_segment_takes_its_transaction_index_with_it(
    maker: Maker, open_partition: Opener
) -> None:
    partition = open_partition(segment_bytes=300, retention_ms=1, file_delete_delay_ms=5)
    for _ in range(4):
        put(partition, b"t" * 100, pid=7, timestamp=NOW - 100)
        finish(partition, 7, ABORT)
    indexed = [s.txn_index.path.rpartition("/")[2] for s in partition.log.segments[:-1]]
    assert len(indexed) > 1
    partition.log.delete_old_segments(NOW + 100, partition.unclamped_last_stable_offset)
    names = maker.backend.list("broker-1/t-0")
    assert [n for n in names if n.endswith(".txnindex")] == []
    assert {f"{name}.deleted" for name in indexed} <= set(names)
    partition.log.purge_deleted(NOW + 200)
    assert [n for n in maker.backend.list("broker-1/t-0") if "txn" in n] == []


@pytest.mark.parametrize("cut", [1, 5, 17, 18, 31, 44, 52])
def test_a_cut_log_forgets_the_transactions_behind_the_cut(cut: int) -> None:
    partition = Maker().open(segment_bytes=600)
    crowded(partition)
    assert partition.log.truncate_to(cut, NOW)
    never_longer = Maker().open(segment_bytes=600)
    crowded(never_longer, until=cut)
    open_ones = [p.producers.transactions.ongoing for p in (partition, never_longer)]
    assert open_ones[0] == open_ones[1]
    assert partition.producers.entries == never_longer.producers.entries
    assert _indexed(partition) == _indexed(never_longer)
    partition.producers.check_invariants()


def test_a_damaged_transaction_index_is_made_anew(maker: Maker, open_partition: Opener) -> None:
    partition = open_partition(segment_bytes=600)
    crowded(partition)
    before = state_of(partition)
    indexed = [s.txn_index.path for s in partition.log.segments if s.txn_index.entries]
    assert len(indexed) > 2
    partition.log.close(NOW)
    for path in indexed:
        raw = bytearray(maker.backend.read(path))
        raw[1] ^= 1
        maker.backend.put(path, raw)
    maker.files.close()
    partition = maker.open(segment_bytes=600, clean=True)
    assert state_of(partition) == before
    assert [s.txn_index.path for s in partition.log.segments if s.txn_index.entries] == indexed
    partition.log.close(NOW)
    maker.files.close()
    # On the disk too.
    assert state_of(maker.open(segment_bytes=600, clean=True)) == before
