"""Direct reads of objects that are damaged: brokers, damaged indexes, and what is left out."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from sparklog.errors import CorruptBatchError
from sparklog.wire.records.batch import iter_batches
from tests.support.range_server import WRONG_BYTES
from tests.unit.dataframe.direct_reads_rig import (
    TOPIC_ID,
    Bucket,
    Reading,
    flip,
    local_offsets,
    served_bucket,
    served_copies,
)
from tests.unit.remote_log.remote_fixtures import RichLog, indexes_path, log_path


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with served_bucket() as served:
        yield served


def test_damage_is_left_out_up_to_where_the_brokers_begin(bucket: Bucket) -> None:
    whole = bucket.rich.bucket.read(log_path(bucket.segments[1]))
    header, position = next(
        (header, position) for header, position in iter_batches(whole) if header.record_count > 1
    )
    flip(bucket, log_path(bucket.segments[1]), position + header.size - 1)
    item, end = bucket.range(), header.last_offset
    assert item.remote is not None
    reading = Reading(bucket, replace(item, remote=replace(item.remote, end=end)), fail=False)
    assert max(reading.offsets()) < header.base_offset
    assert (reading.corrupt.batches, reading.direct.offset) == (1, end)


def test_bytes_that_are_wrong_once_are_read_again(bucket: Bucket) -> None:
    bucket.server.faults.extend([WRONG_BYTES, 0, 0, 0, WRONG_BYTES])
    reading = Reading(bucket, bucket.range())
    assert reading.offsets() == local_offsets(bucket, 0, bucket.end)


def test_a_damaged_object_is_an_error_that_names_it_and_the_offsets(bucket: Bucket) -> None:
    damaged = bucket.segments[1]
    flip(bucket, log_path(damaged), damaged.log_size // 2)
    with pytest.raises(CorruptBatchError) as caught:
        Reading(bucket, bucket.range()).offsets()
    assert f"{TOPIC_ID}/0/segments/{damaged.segment_id}.log" in str(caught.value)
    assert "t-0" in str(caught.value)


def test_damaged_offsets_are_left_out_if_that_is_wanted(bucket: Bucket) -> None:
    damaged = bucket.segments[1]
    flip(bucket, log_path(damaged), damaged.log_size // 2)
    reading = Reading(bucket, bucket.range(), fail=False)
    found = reading.offsets()
    everything = local_offsets(bucket, 0, bucket.end)
    left_out = set(everything) - set(found)
    assert found == [offset for offset in everything if offset not in left_out]
    assert all(damaged.base_offset <= each < damaged.next_offset for each in left_out)
    assert reading.corrupt.batches == 1
    assert reading.direct.offset == bucket.end


#: Index intervals in bytes -> the first offset of the batch at which reads find batches again,
#: when the batch of the offsets 10 to 19 is damaged: each batch has an entry, or every third one.
FOUND_AGAIN = {0: 20, 300: 30}


@contextmanager
def batches_of_ten(interval: int) -> Iterator[Bucket]:
    """A bucket with one segment of six batches of ten records; the second batch is damaged."""
    rich = RichLog()
    rich.log.close(0)
    rich.log = rich.desk.open(clean=True, segment_bytes=10**6, index_interval_bytes=interval)
    for _ in range(6):
        rich.put(*range(10), size=1)
    with served_copies(rich) as bucket:
        [segment] = bucket.segments
        flip(bucket, log_path(segment), 2 * segment.log_size // 6 - 1)
        yield bucket


@pytest.mark.parametrize("interval", FOUND_AGAIN)
def test_the_batch_behind_the_damage_is_read_whole(
    interval: int, caplog: pytest.LogCaptureFixture
) -> None:
    again = FOUND_AGAIN[interval]
    with batches_of_ten(interval) as bucket:
        reading = Reading(bucket, bucket.range(), fail=False)
        assert reading.offsets() == [*range(10), *range(again, 60)]
    assert (reading.corrupt.batches, reading.corrupt.offsets) == (1, again - 10)
    assert [(each.start, each.end) for each in reading.by_brokers] == [(10, again)]
    assert f"the records at offsets 10 to {again - 1} cannot be read" in caplog.text


@pytest.mark.parametrize("interval", FOUND_AGAIN)
def test_the_error_names_the_damaged_offsets_only(interval: int) -> None:
    with batches_of_ten(interval) as bucket, pytest.raises(CorruptBatchError) as caught:
        Reading(bucket, bucket.range()).offsets()
    last = FOUND_AGAIN[interval] - 1
    assert (caught.value.first_offset, caught.value.last_offset) == (10, last)


@pytest.mark.parametrize("interval", FOUND_AGAIN)
def test_a_task_that_begins_behind_the_damage_does_not_meet_it(interval: int) -> None:
    again = FOUND_AGAIN[interval]
    with batches_of_ten(interval) as bucket:
        for start in range(again, 60):
            assert Reading(bucket, bucket.range(start)).offsets() == [*range(start, 60)]


@pytest.mark.parametrize("interval", FOUND_AGAIN)
def test_no_record_comes_twice_when_the_brokers_have_the_damaged_batch(interval: int) -> None:
    with batches_of_ten(interval) as bucket:
        reading = Reading(bucket, bucket.range(), replica=bucket.rich.log)
        assert reading.offsets() == [*range(60)]
        again = FOUND_AGAIN[interval]
        reading = Reading(bucket, bucket.range(5, 45), replica=bucket.rich.log)
        assert reading.offsets() == [*range(5, 45)]
    assert [(each.start, each.end) for each in reading.by_brokers] == [(10, again)]


@pytest.mark.parametrize("position", [3, 20])
def test_two_damaged_batches_in_a_row_are_left_out_and_no_others(position: int) -> None:
    """The header of the second one is damaged: its base offset, or what the CRC covers."""
    with batches_of_ten(0) as bucket:
        [segment] = bucket.segments
        flip(bucket, log_path(segment), 2 * segment.log_size // 6 + position)
        reading = Reading(bucket, bucket.range(), fail=False)
        assert reading.offsets() == [*range(10), *range(30, 60)]
    assert reading.corrupt.offsets == 20


def test_the_brokers_are_asked_for_what_an_object_has_lost(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = bucket.segments[1]
    for each in (damaged, bucket.segments[3]):
        flip(bucket, log_path(each), each.log_size // 2)
    reading = Reading(bucket, bucket.range(), replica=bucket.rich.log)
    assert reading.offsets() == local_offsets(bucket, 0, bucket.end)
    first, second = reading.by_brokers
    assert damaged.base_offset <= first.start < first.end <= damaged.next_offset
    assert second.start > first.end
    assert (first.remote, second.remote, reading.direct.offset) == (None, None, bucket.end)
    assert reading.corrupt.batches == 0
    assert f"{damaged.segment_id}.log" in caplog.text


def test_the_brokers_are_asked_once_for_an_object_that_no_replica_has(bucket: Bucket) -> None:
    damaged = bucket.segments[1]
    path = log_path(damaged)
    flip(bucket, path, damaged.log_size // 3)
    flip(bucket, path, 2 * damaged.log_size // 3)
    reading = Reading(bucket, bucket.range(), fail=False)
    found = reading.offsets()
    assert reading.corrupt.batches == 2
    assert len(reading.by_brokers) == 1
    left_out = set(local_offsets(bucket, 0, bucket.end)) - set(found)
    assert left_out <= set(range(damaged.base_offset, damaged.next_offset))


def test_the_brokers_are_asked_for_wanted_offsets_only(bucket: Bucket) -> None:
    """Not for those before the damage, which the bounds of time rule out."""
    newest = max(bucket.segments, key=lambda each: each.max_timestamp)
    assert newest.base_offset > 0
    flip(bucket, log_path(newest), 20)
    item = replace(bucket.range(), min_timestamp_ms=newest.max_timestamp)
    reading = Reading(bucket, item, replica=bucket.rich.log)
    assert reading.offsets()
    assert [each.start for each in reading.by_brokers] == [newest.base_offset]


def test_an_object_that_is_cut_off_is_damaged(bucket: Bucket) -> None:
    last = bucket.segments[-1]
    bucket.server.objects[log_path(last)] = bucket.server.objects[log_path(last)][:-1]
    with pytest.raises(CorruptBatchError, match=f"the object ends at byte {last.log_size - 1}"):
        Reading(bucket, bucket.range()).offsets()


@pytest.mark.parametrize("name", ["index", "timeindex", "stats"])
def test_a_damaged_index_costs_time_only(bucket: Bucket, name: str) -> None:
    for each in bucket.segments:
        flip(bucket, indexes_path(each), each.parts[name].offset)  # type: ignore[index]
    item = replace(bucket.range(), max_timestamp_ms=10**9)
    assert Reading(bucket, item).offsets() == local_offsets(bucket, 0, bucket.end)


def test_brokers_read_a_segment_whose_indexes_are_gone(bucket: Bucket) -> None:
    gone = bucket.segments[1]
    del bucket.server.objects[indexes_path(gone)]
    reading = Reading(bucket, bucket.range())
    assert reading.offsets() == local_offsets(bucket, 0, gone.base_offset)
    assert reading.direct.offset == gone.base_offset
