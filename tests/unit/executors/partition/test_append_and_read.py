"""The order of an append: role, checks, producer state, write, high watermark, acknowledgement."""

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log.steps import Steps, run_through
from sparklog.executors.partition import (
    Appended,
    CompleteDelayedDeleteRecords,
    CompleteDelayedFetches,
    CompleteDelayedFollowerFetches,
    CompleteDelayedProduces,
    FlushLog,
    PartitionRead,
    RequiredOffset,
)
from sparklog.executors.partition.partition import Partition
from sparklog.types import NO_NODE, OffsetSpec, OffsetTimestamp
from sparklog.wire.records.batch import pack_batch, read_header
from sparklog.wire.records.builder import decode_records
from tests.unit.executors.partition.partition_maker import (
    NODE,
    NOW,
    TP,
    Maker,
    asks_for_flush,
    batch,
    flush,
    led,
)

Open = Callable[..., Partition]
COMPLETE_ALL = (
    CompleteDelayedFetches(topic_partition=TP, size=0),
    CompleteDelayedProduces(topic_partition=TP),
    CompleteDelayedDeleteRecords(topic_partition=TP),
)


def find(partition: Partition, timestamp: int) -> OffsetTimestamp | None:
    return run_through(partition.find_offset(timestamp))


def append(partition: Partition, records: object, acks: int = -1, now_ms: int = NOW) -> Appended:
    appended = partition.append_as_leader(records, acks=acks, now_ms=now_ms)  # type: ignore[arg-type]
    partition.check_invariants()
    return appended


def refusal(partition: Partition, records: object, acks: int = -1) -> ErrorCode:
    end, size = partition.log.log_end_offset, partition.log.size
    with pytest.raises(KafkaError) as caught:
        append(partition, records, acks)
    assert (partition.log.log_end_offset, partition.log.size) == (end, size)
    return caught.value.code


def values(partition: Partition, offset: int = 0) -> list[bytes | None]:
    read = partition.read(offset, 1 << 20)
    if read.records is None:
        return []
    return [record.value for record in decode_records(read.records.read())]


def test_an_append_is_stamped_written_and_visible(open_partition: Open) -> None:
    partition = open_partition(led(epoch=3))
    first = append(partition, batch(b"a", b"b"))
    records = memoryview(bytearray(batch(b"c")))
    second = append(partition, records, acks=1)
    size = len(records)
    assert second == Appended(
        base_offset=2,
        last_offset=2,
        log_start_offset=0,
        size=size,
        effects=(
            CompleteDelayedFetches(topic_partition=TP, size=size),
            CompleteDelayedProduces(topic_partition=TP),
        ),
    )
    assert (first.base_offset, first.last_offset, first.required_offset) == (0, 1, None)
    assert partition.high_watermark == 3
    read = partition.read(2, 1 << 20)
    assert read.records is not None
    assert read == PartitionRead(
        records=read.records,
        size=size,
        high_watermark=3,
        last_stable_offset=3,
        log_start_offset=0,
        end_offset=3,
    )
    header = read_header(read.records.read())
    assert (header.base_offset, header.partition_leader_epoch) == (2, 3)
    assert values(partition) == [b"a", b"b", b"c"]


def test_log_append_time_replaces_the_timestamps(open_partition: Open) -> None:
    partition = open_partition(message_timestamp_type="LogAppendTime")
    appended = append(partition, batch(b"a", timestamp=5))
    assert appended.log_append_time == NOW
    read = partition.read(0, 1000)
    assert read.records is not None
    assert [r.timestamp for r in decode_records(read.records.read())] == [NOW]


def test_only_the_leader_appends_and_reads(open_partition: Open) -> None:
    partition = open_partition(led(leader=2, replicas=(1, 2), isr=(2,)))
    assert refusal(partition, batch(b"a")) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as caught:
        partition.read(0, 1)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_readers_with_another_leader_epoch_are_refused(
    open_partition: Open, epoch: int, code: ErrorCode
) -> None:
    partition = open_partition(led(epoch=5))
    assert partition.read(0, 1, current_leader_epoch=5).size == 0
    with pytest.raises(KafkaError) as caught:
        partition.read(0, 1, current_leader_epoch=epoch)
    assert caught.value.code == code


def test_a_stale_image_changes_nothing(open_partition: Open) -> None:
    partition = open_partition(led(epoch=5))
    assert partition.make_leader_or_follower(led(epoch=4, leader=NO_NODE), 0) == []
    assert partition.is_leader


def test_losing_the_lead_wakes_everybody(open_partition: Open) -> None:
    partition = open_partition(led(epoch=5))
    assert partition.make_leader_or_follower(led(epoch=6, leader=NO_NODE), 0) == list(COMPLETE_ALL)
    assert partition.drop_role() == list(COMPLETE_ALL)
    assert partition.leader == NO_NODE


def test_acks_all_needs_enough_in_sync_replicas(open_partition: Open) -> None:
    partition = open_partition(led(replicas=(1, 2), isr=(1,)), min_insync_replicas=2)
    assert refusal(partition, batch(b"a")) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert append(partition, batch(b"a"), acks=1).required_offset is None
    # KIP-966: too small an ISR exposes nothing.
    assert partition.high_watermark == 0
    assert values(partition) == []


def test_min_insync_replicas_never_exceeds_the_replicas(open_partition: Open) -> None:
    partition = open_partition(min_insync_replicas=2)
    assert append(partition, batch(b"a")).required_offset is None
    assert partition.high_watermark == 1


def test_acks_all_waits_for_followers(open_partition: Open) -> None:
    partition = open_partition(led(replicas=(1, 2), isr=(1, 2)))
    appended = append(partition, batch(b"a", b"b"))
    assert appended.required_offset == RequiredOffset(offset=2, leader_epoch=0, committed=True)
    assert not partition.has_reached(appended.required_offset)
    assert values(partition) == []
    assert partition.read(0, 1000, replica_id=2).size > 0
    assert partition.update_follower_fetch_state(2, 0) == []
    effects = partition.update_follower_fetch_state(2, 2)
    assert [type(effect) for effect in effects] == [CompleteDelayedFetches, CompleteDelayedProduces]
    assert partition.has_reached(appended.required_offset)
    assert values(partition) == [b"a", b"b"]


def test_followers_are_woken_by_what_they_lack(open_partition: Open) -> None:
    partition = open_partition(led(replicas=(1, 2), isr=(1, 2)))
    records = batch(b"a")
    assert append(partition, records).effects == (
        CompleteDelayedFollowerFetches(topic_partition=TP, size=len(records)),
    )
    assert partition.read(1, 1000, replica_id=2).end_offset == 1
    assert append(open_partition(), records).effects == (
        CompleteDelayedFetches(topic_partition=TP, size=len(records)),
        CompleteDelayedProduces(topic_partition=TP),
    )


def test_the_low_watermark_is_that_of_all_replicas_that_live(open_partition: Open) -> None:
    partition = open_partition(led(replicas=(1, 2, 3), isr=(1, 2)))
    append(partition, batch(b"a"))
    append(partition, batch(b"b"))
    partition.update_follower_fetch_state(2, 2, 0)
    assert partition.high_watermark == 2
    assert partition.deletion_target(-1) == 2
    assert partition.delete_records(2) == list(COMPLETE_ALL)
    alive = {2, 3}
    assert partition.low_watermark(alive.__contains__) == -1
    assert partition.update_follower_fetch_state(3, 1, 1) == [
        CompleteDelayedDeleteRecords(topic_partition=TP)
    ]
    assert partition.low_watermark(alive.__contains__) == 0
    assert partition.update_follower_fetch_state(2, 2, 2) == [
        CompleteDelayedDeleteRecords(topic_partition=TP)
    ]
    assert partition.update_follower_fetch_state(2, 2, 2) == []
    assert partition.low_watermark(alive.__contains__) == 1
    alive.remove(3)
    assert partition.low_watermark(alive.__contains__) == 2
    partition.make_leader_or_follower(led(epoch=1, leader=2, replicas=(1, 2, 3), isr=(1, 2)), 0)
    with pytest.raises(KafkaError) as caught:
        partition.low_watermark(alive.__contains__)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_parked_append_fails_when_the_lead_is_lost(open_partition: Open) -> None:
    partition = open_partition(led(replicas=(1, 2), isr=(1, 2)))
    required = append(partition, batch(b"a")).required_offset
    assert required is not None
    partition.make_leader_or_follower(led(epoch=1, leader=2, replicas=(1, 2), isr=(2,)), 0)
    with pytest.raises(KafkaError) as caught:
        partition.has_reached(required)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_shrunken_isr_releases_what_waits(open_partition: Open) -> None:
    partition = open_partition(led(replicas=(1, 2), isr=(1, 2)))
    required = append(partition, batch(b"a")).required_offset
    assert required is not None
    partition.make_leader_or_follower(led(replicas=(1, 2), isr=(1,), partition_epoch=1), 0)
    assert partition.has_reached(required)


def test_a_new_leader_hides_its_end_until_the_high_watermark_is_there(
    open_partition: Open,
) -> None:
    partition = open_partition(led(replicas=(1, 2), isr=(1, 2)))
    append(partition, batch(b"a", b"b"), acks=1)
    partition.make_leader_or_follower(led(epoch=1, leader=2, replicas=(1, 2), isr=(1, 2)), 0)
    partition.make_leader_or_follower(led(epoch=2, replicas=(1, 2), isr=(1, 2)), 0)
    for timestamp in (OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP, NOW):
        with pytest.raises(KafkaError) as caught:
            find(partition, timestamp)
        assert caught.value.code == ErrorCode.OFFSET_NOT_AVAILABLE
    partition.update_follower_fetch_state(2, 2)
    assert find(partition, OffsetSpec.LATEST) == OffsetTimestamp(offset=2, leader_epoch=2)


def finish(search: Steps[OffsetTimestamp | None], work: Callable[[], Any]) -> NoReturn:
    while True:
        work = search.send(work())


def test_a_search_that_a_new_leader_began_too_early_finds_what_it_knows_at_the_end(
    open_partition: Open,
) -> None:
    partition = open_partition(led(replicas=(1, 2), isr=(1, 2)))
    append(partition, batch(b"a", b"b"), acks=1)
    partition.make_leader_or_follower(led(epoch=1, leader=2, replicas=(1, 2), isr=(1, 2)), 0)
    partition.make_leader_or_follower(led(epoch=2, replicas=(1, 2), isr=(1, 2)), 0)
    search = partition.find_offset(NOW)
    work = next(search)
    partition.update_follower_fetch_state(2, 2)
    with pytest.raises(StopIteration) as ended:
        finish(search, work)
    assert ended.value.value.offset == 0


def test_retries_of_an_idempotent_producer_are_written_once(open_partition: Open) -> None:
    partition = open_partition()
    first = batch(b"a", b"b", producer_id=9, epoch=0, sequence=0)
    append(partition, first)
    append(partition, batch(b"c", producer_id=9, epoch=0, sequence=2))
    again = append(partition, first)
    assert again == Appended(base_offset=0, last_offset=1, log_start_offset=0)
    gap = batch(b"d", producer_id=9, epoch=0, sequence=9)
    assert refusal(partition, gap) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values(partition) == [b"a", b"b", b"c"]


def test_duplicates_and_refusals_wait_for_what_they_rest_on(open_partition: Open) -> None:
    partition = open_partition(led(replicas=(1, 2), isr=(1, 2)))
    first = batch(b"a", producer_id=9, epoch=0, sequence=0)
    append(partition, first)
    required = RequiredOffset(offset=1, leader_epoch=0, committed=True)
    assert append(partition, first).required_offset == required
    refused = append(partition, batch(b"c", producer_id=9, epoch=0, sequence=4))
    assert refused.refusal is not None
    assert refused.refusal.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused.required_offset == required
    assert partition.log.log_end_offset == 1


def test_producer_state_survives_a_restart(maker: Maker) -> None:
    partition = maker.open()
    first = batch(b"a", producer_id=9, epoch=1, sequence=0)
    append(partition, first)
    partition.log.close(NOW, clean=False)
    partition = maker.open(led(epoch=1))
    assert append(partition, first) == Appended(base_offset=0, last_offset=0, log_start_offset=0)
    old = batch(b"b", producer_id=9, epoch=0, sequence=0)
    assert refusal(partition, old) == ErrorCode.INVALID_PRODUCER_EPOCH
    partition.log.close(NOW, clean=True)
    partition = maker.open(led(epoch=2))
    assert append(partition, first).size == 0


def test_a_full_disk_refuses_and_changes_nothing(maker: Maker, open_partition: Open) -> None:
    partition = open_partition()
    append(partition, batch(b"a", producer_id=9, epoch=0, sequence=0))
    second = batch(b"b" * 5000, producer_id=9, epoch=0, sequence=1)
    maker.backend.disk.fill_after(100)
    assert refusal(partition, second) == ErrorCode.KAFKA_STORAGE_ERROR
    assert values(partition) == [b"a"]
    maker.backend.faults.clear()
    assert append(partition, second).base_offset == 1


def test_an_ack_that_promises_a_flush_waits_for_it(open_partition: Open) -> None:
    partition = open_partition(flush_messages=1)
    appended = append(partition, batch(b"a"), acks=1)
    assert appended.required_offset == RequiredOffset(offset=1, leader_epoch=0, committed=False)
    assert appended.effects == (FlushLog(topic_partition=TP, at_ms=NOW),)
    also = append(partition, batch(b"b"), acks=-1)
    assert also.required_offset == RequiredOffset(offset=2, leader_epoch=0, committed=True)
    # What a crash could still take back is not shown.
    assert values(partition) == []
    assert flush(partition) == [
        CompleteDelayedFetches(topic_partition=TP, size=partition.log.size),
        CompleteDelayedProduces(topic_partition=TP),
    ]
    assert appended.required_offset is not None
    assert also.required_offset is not None
    assert partition.has_reached(appended.required_offset)
    assert partition.has_reached(also.required_offset)
    assert values(partition) == [b"a", b"b"]


def test_flush_messages_promises_every_nth_record(open_partition: Open) -> None:
    partition = open_partition(flush_messages=3)
    assert append(partition, batch(b"a", b"b")).required_offset is None
    third = append(partition, batch(b"c"))
    assert third.required_offset is not None
    assert asks_for_flush(third.effects)
    flush(partition)
    assert partition.has_reached(third.required_offset)
    assert append(partition, batch(b"d")).required_offset is None


def test_flush_ms_plans_a_flush_that_no_ack_waits_for(open_partition: Open) -> None:
    partition = open_partition(flush_ms=500)
    appended = append(partition, batch(b"a"))
    assert appended.required_offset is None
    assert FlushLog(topic_partition=TP, at_ms=NOW + 500) in appended.effects
    assert values(partition) == [b"a"]


def test_a_failed_flush_takes_the_replica_offline(maker: Maker, open_partition: Open) -> None:
    partition = open_partition(flush_messages=1)
    required = append(partition, batch(b"a"), acks=1).required_offset
    job = partition.log.start_flush(NOW, force=True)
    assert job is not None
    assert required is not None
    maker.backend.faults.fail_next(operation="flush")
    with pytest.raises(Exception, match="device failed") as failed:
        job.run()
    partition.log.fail_flush(job, failed.value)  # type: ignore[arg-type]
    assert partition.flushed(NOW) == list(COMPLETE_ALL)
    for use in (
        lambda: partition.has_reached(required),
        lambda: append(partition, batch(b"b")),
        lambda: partition.read(0, 1),
    ):
        with pytest.raises(KafkaError) as caught:
            use()
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_reads_are_bounded(open_partition: Open) -> None:
    partition = open_partition()
    sizes = [append(partition, batch(b"x" * 100)).size for _ in range(3)]
    assert partition.read(0, sizes[0] + sizes[1]).size == sizes[0] + sizes[1]
    assert partition.read(0, 1).size == sizes[0]
    assert partition.read(0, 1, min_one=False).size == 0
    assert partition.read(3, 1000) == PartitionRead(
        records=None,
        size=0,
        high_watermark=3,
        last_stable_offset=3,
        log_start_offset=0,
        end_offset=3,
    )
    for offset in (-1, 4):
        with pytest.raises(KafkaError) as caught:
            partition.read(offset, 1)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_offsets_by_time(open_partition: Open) -> None:
    partition = open_partition(led(epoch=2))
    for timestamp in (NOW + 10, NOW + 30, NOW + 20):
        append(partition, batch(b"a", b"b", timestamp=timestamp))
    assert find(partition, OffsetSpec.EARLIEST) == OffsetTimestamp(offset=0, leader_epoch=2)
    assert find(partition, OffsetSpec.LATEST) == OffsetTimestamp(offset=6, leader_epoch=2)
    assert find(partition, OffsetSpec.LATEST_TIERED) is None
    expected = OffsetTimestamp(offset=2, timestamp=NOW + 30, leader_epoch=2)
    assert find(partition, OffsetSpec.MAX_TIMESTAMP) == expected
    assert find(partition, NOW + 11) == expected
    assert find(partition, NOW + 31) is None


def test_records_that_cannot_be_decoded_are_passed_by_in_searches(
    open_partition: Open,
) -> None:
    partition = open_partition()
    append(partition, batch(b"a", timestamp=NOW))
    append(
        partition,
        pack_batch(
            b"no record",
            attributes=0,
            record_count=1,
            last_offset_delta=0,
            base_timestamp=NOW + 9,
            max_timestamp=NOW + 9,
        ),
    )
    assert find(partition, NOW) == OffsetTimestamp(offset=0, timestamp=NOW, leader_epoch=0)
    assert find(partition, NOW + 1) is None
    append(partition, batch(b"b", timestamp=NOW + 5))
    assert find(partition, NOW + 1) == OffsetTimestamp(offset=2, timestamp=NOW + 5, leader_epoch=0)


def test_nothing_is_tiered(open_partition: Open) -> None:
    partition = open_partition()
    append(partition, batch(b"a"))
    assert [find(partition, special) for special in (-5, -6)] == [None, None]


def test_epochs_end_where_the_next_begins(open_partition: Open) -> None:
    partition = open_partition(led(epoch=2))
    append(partition, batch(b"a", b"b"))
    partition.make_leader_or_follower(led(epoch=5), 0)
    append(partition, batch(b"c"))
    answers = {epoch: partition.end_of_epoch(epoch) for epoch in (-1, 1, 2, 4, 5, 6)}
    assert answers == {-1: (-1, -1), 1: (1, 0), 2: (2, 2), 4: (2, 2), 5: (5, 3), 6: (-1, -1)}


def test_deleted_records_are_out_of_range(open_partition: Open) -> None:
    partition = open_partition()
    append(partition, batch(b"a", b"b", b"c"))
    append(partition, batch(b"d"))
    assert partition.delete_records(2) == list(COMPLETE_ALL)
    assert find(partition, OffsetSpec.EARLIEST) == OffsetTimestamp(offset=2, leader_epoch=0)
    with pytest.raises(KafkaError) as caught:
        partition.read(1, 1000)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    partition.delete_records(1)
    assert partition.low_watermark(lambda _: True) == 2
    assert partition.deletion_target(-1) == 4
    partition.delete_records(4)
    assert partition.low_watermark(lambda _: True) == 4
    for offset in (5, -2):
        with pytest.raises(KafkaError) as caught:
            partition.deletion_target(offset)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_config_change_plans_the_flush_it_asks_for(open_partition: Open) -> None:
    from dataclasses import replace

    partition = open_partition()
    append(partition, batch(b"a"))
    effects = partition.configure(replace(partition.config, flush_ms=200), NOW + 50)
    assert effects == [FlushLog(topic_partition=TP, at_ms=NOW + 200)]
    assert partition.leader == NODE


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        (("compact",), ErrorCode.POLICY_VIOLATION),
        (("compact", "delete"), None),
        (("delete",), None),
    ],
)
def test_only_a_policy_that_deletes_lets_records_be_deleted(
    open_partition: Open, policy: tuple[str, ...], code: ErrorCode | None
) -> None:
    partition = open_partition(cleanup_policy=policy)
    append(partition, batch(b"a", b"b"))
    if code is None:
        assert partition.deletion_target(1) == 1
        return
    with pytest.raises(KafkaError, match=r"cleanup\.policy is compact") as caught:
        partition.deletion_target(1)
    assert caught.value.code == code
