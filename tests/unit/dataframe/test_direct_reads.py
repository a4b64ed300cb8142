"""Direct reads of copied segments over HTTP, from a server with the faults that a test wants."""

import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from sparklog.client.remote_segments_api import RemoteSegments
from sparklog.dataframe.read import direct_reads
from sparklog.dataframe.read.plan import RemoteSource
from sparklog.dataframe.read.segment_source import SPARE_MS
from sparklog.errors import CorruptBatchError, ErrorCode, KafkaError
from sparklog.storage_backends.url_ranges import TRIES
from sparklog.types import NO_TIMESTAMP, Isolation
from sparklog.wire.records.builder import decode_records
from tests.support.range_server import TRUNCATE
from tests.unit.dataframe.direct_reads_rig import (
    Bucket,
    Reading,
    local_offsets,
    served_bucket,
)
from tests.unit.remote_log.remote_fixtures import indexes_path, log_path


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with served_bucket() as served:
        yield served


@pytest.mark.parametrize("isolation", list(Isolation))
def test_a_direct_read_gives_what_the_log_has(bucket: Bucket, isolation: Isolation) -> None:
    everything = local_offsets(bucket, 0, bucket.end, isolation)
    uncommitted = local_offsets(bucket, 0, bucket.end, Isolation.READ_UNCOMMITTED)
    has_aborted = len(everything) < len(uncommitted)
    assert has_aborted is (isolation is Isolation.READ_COMMITTED)
    for start, end in ((0, bucket.end), (3, 40), (17, 18), (30, bucket.end), (1, bucket.end - 1)):
        reading = Reading(bucket, bucket.range(start, end), isolation=isolation)
        assert reading.offsets() == [o for o in everything if start <= o < end]
        assert (reading.direct.offset, reading.source.asked) == (end, 0)


@pytest.mark.parametrize("isolation", list(Isolation))
def test_the_brokers_go_on_where_the_last_batch_of_the_bucket_ends(
    bucket: Bucket, isolation: Isolation
) -> None:
    """The files of a leader may begin inside a segment of an earlier one, or inside a batch."""
    everything = local_offsets(bucket, 0, bucket.end, isolation)
    for end in range(1, bucket.end):
        item = bucket.range()
        assert item.remote is not None
        item = replace(item, remote=replace(item.remote, end=end))
        reading = Reading(bucket, item, isolation=isolation)
        found = reading.offsets()
        goes_on = reading.direct.offset
        assert end <= goes_on <= bucket.end
        assert found == [offset for offset in everything if offset < goes_on], end


def test_the_reads_of_a_segment_overlap_but_their_requests_do_not(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_reads, "FIRST_READ_BYTES", 300)
    monkeypatch.setattr(direct_reads, "READ_BYTES", 300)
    reading = Reading(bucket, bucket.range())
    assert reading.offsets() == local_offsets(bucket, 0, bucket.end)
    requests = [asked for asked in bucket.server.asked if asked.path.endswith(".log")]
    assert len(requests) > 2 * len(bucket.segments)
    assert sum(asked.size for asked in requests) == sum(s.log_size for s in bucket.segments)


def test_a_few_offsets_cost_few_bytes(bucket: Bucket) -> None:
    segment = max(bucket.segments, key=lambda each: each.next_offset - each.base_offset)
    middle = (segment.base_offset + segment.next_offset) // 2
    assert Reading(bucket, bucket.range(middle, middle + 1)).offsets() in ([middle], [])
    indexes, log = bucket.server.asked
    assert (indexes.path, log.path) == (indexes_path(segment), log_path(segment))
    assert log.size < segment.log_size


def test_bounds_of_time_skip_what_the_statistics_rule_out(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_reads, "SKIPPED_BYTES_MIN", 1)
    everything = bucket.range()
    records = {
        record.offset: record.timestamp
        for each in bucket.segments
        for record in decode_records(bucket.rich.bucket.read(log_path(each)))
    }
    committed = set(local_offsets(bucket, 0, bucket.end))
    Reading(bucket, everything).offsets()
    whole, bucket.server.asked[:] = bucket.server.asked[:], []
    for lowest, highest in ((None, 110), (100, 130), (None, 310), (505, 595), (None, -5)):
        item = replace(everything, min_timestamp_ms=lowest, max_timestamp_ms=highest)
        found = set(Reading(bucket, item).offsets())
        wanted = {
            offset
            for offset in committed
            if (lowest is None or records[offset] >= lowest) and records[offset] <= highest
        }
        assert wanted <= found <= committed
        read, bucket.server.asked[:] = bucket.server.asked[:], []
        assert sum(asked.size for asked in read) < sum(asked.size for asked in whole)
    assert not any(asked.path.endswith(".log") for asked in read)


def test_a_segment_that_is_too_old_is_not_asked_for(bucket: Bucket) -> None:
    item = replace(bucket.range(), min_timestamp_ms=10_000)
    assert Reading(bucket, item).offsets() == []
    assert bucket.server.asked == []


def test_a_segment_that_is_too_new_is_not_asked_for(bucket: Bucket) -> None:
    known = [each.min_timestamp for each in bucket.segments if each.min_timestamp != NO_TIMESTAMP]
    assert max(known) > min(known) > 0
    records = {
        record.offset: record.timestamp
        for each in bucket.segments
        for record in decode_records(bucket.rich.bucket.read(log_path(each)))
    }
    for highest in sorted({*known, *(each - 1 for each in known)}):
        del bucket.server.asked[:]
        item = replace(bucket.range(), max_timestamp_ms=highest)
        found = Reading(bucket, item, isolation=Isolation.READ_UNCOMMITTED).offsets()
        committed = local_offsets(bucket, 0, bucket.end, Isolation.READ_UNCOMMITTED)
        assert {o for o in committed if records[o] <= highest} <= set(found)
        asked = {asked.path for asked in bucket.server.asked}
        for each in bucket.segments:
            assert (indexes_path(each) in asked) is (each.min_timestamp <= highest)


def test_segments_of_earlier_versions_are_asked_for(bucket: Bucket) -> None:
    bucket.segments = [replace(each, min_timestamp=NO_TIMESTAMP) for each in bucket.segments]
    assert Reading(bucket, replace(bucket.range(), max_timestamp_ms=-5)).offsets() == []
    assert {asked.path for asked in bucket.server.asked} == set(map(indexes_path, bucket.segments))


def test_statistics_that_are_damaged_save_nothing(bucket: Bucket) -> None:
    bucket.segments = [replace(each, min_timestamp=NO_TIMESTAMP) for each in bucket.segments]
    for each in bucket.segments:
        part = each.parts["stats"]  # type: ignore[index]
        damaged = bytearray(bucket.server.objects[indexes_path(each)])
        damaged[part.offset + 20] ^= 1
        bucket.server.objects[indexes_path(each)] = bytes(damaged)
    item = replace(bucket.range(), max_timestamp_ms=-5)
    assert Reading(bucket, item).offsets() == local_offsets(bucket, 0, bucket.end)


# URLs


def test_urls_that_are_refused_are_replaced(bucket: Bucket) -> None:
    item = bucket.range()
    bucket.server.signature += 1
    reading = Reading(bucket, item)
    assert reading.offsets() == local_offsets(bucket, 0, bucket.end)
    assert reading.source.asked == 1


def test_urls_that_are_refused_in_the_middle_are_replaced(bucket: Bucket) -> None:
    reading = Reading(bucket, bucket.range())
    bucket.server.faults.extend([0, 0, 0, 0, 0, 403])
    assert reading.offsets() == local_offsets(bucket, 0, bucket.end)
    assert reading.source.asked == 1


def test_urls_are_replaced_before_they_expire(bucket: Bucket) -> None:
    item = bucket.range()
    bucket.now_ms += 3_600_000 - SPARE_MS
    bucket.server.signature += 1
    reading = Reading(bucket, item)
    assert reading.offsets() == local_offsets(bucket, 0, bucket.end)
    assert reading.source.asked == 1
    assert len(bucket.server.asked) == 2 * len(bucket.segments)


def test_new_urls_that_have_expired_by_the_clock_here_are_used_until_they_are_refused(
    bucket: Bucket,
) -> None:
    """The clocks differ by more than the URLs are good for, or these are good for seconds."""
    item = replace(bucket.range(), remote=RemoteSource(end=bucket.end))
    told = replace(bucket.signed(), expires_at_ms=bucket.now_ms - 1)

    def ask(start: int, end: int) -> RemoteSegments:
        signed = bucket.signed()
        return replace(signed, expires_at_ms=told.expires_at_ms)

    reading = Reading(bucket, item, ask=ask)
    bucket.server.faults.extend([0, 0, 0, 0, 0, 403])
    assert reading.offsets() == local_offsets(bucket, 0, bucket.end)
    assert reading.source.asked == 2


def test_a_plan_without_urls_lets_the_task_ask(bucket: Bucket) -> None:
    item = replace(bucket.range(), remote=RemoteSource(end=bucket.end))
    reading = Reading(bucket, item)
    assert reading.offsets() == local_offsets(bucket, 0, bucket.end)
    assert reading.source.asked == 1


# the brokers take over


def refused(code: ErrorCode, start: int, end: int) -> RemoteSegments:
    raise KafkaError(code, f"[{start}, {end})")


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (lambda start, end: RemoteSegments(), "the leader knows no URL for offset 0"),
        (partial(refused, ErrorCode.UNKNOWN_TOPIC_ID), "UNKNOWN_TOPIC_ID"),
    ],
)
def test_without_other_urls_the_brokers_take_over(
    bucket: Bucket,
    ask: Callable[[int, int], RemoteSegments],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    item = bucket.range()
    bucket.server.signature += 1
    reading = Reading(bucket, item, ask=ask)
    assert reading.offsets() == []
    assert reading.direct.offset == 0
    (warning,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert warning.getMessage().startswith(
        f"t-0: the brokers read the offsets 0 to {bucket.end} from the bucket, "
        "because this task cannot: "
    )
    assert reason in warning.getMessage()


def test_a_url_that_is_refused_twice_is_given_up(bucket: Bucket) -> None:
    reading = Reading(bucket, bucket.range())
    bucket.server.faults.extend([403, 404])
    assert reading.offsets() == []
    assert (reading.direct.offset, len(bucket.server.asked)) == (0, 2)


def test_no_warning_or_error_of_a_task_shows_a_signature(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for fault in (403, 500, 307):
        bucket.server.faults.extend([fault] * (TRIES + 1))
        assert Reading(bucket, bucket.range()).offsets() == []
        bucket.server.faults.clear()
    path = log_path(bucket.segments[0])
    bucket.server.objects[path] = bytes(len(bucket.server.objects[path]))
    with pytest.raises(CorruptBatchError) as damaged:
        Reading(bucket, bucket.range()).offsets()
    text = caplog.text + "".join(traceback.format_exception(damaged.value))
    assert all(f"the store answers {fault}" in text for fault in (403, 500, 307))
    assert "startingOffsets" in text
    assert "signature=" not in text


def test_the_brokers_take_over_in_the_middle(bucket: Bucket) -> None:
    reading = Reading(bucket, bucket.range())
    second = bucket.segments[1]
    bucket.server.faults.extend([0, 0, *[500] * TRIES])
    assert reading.offsets() == local_offsets(bucket, 0, second.base_offset)
    assert reading.direct.offset == second.base_offset


def test_answers_that_are_cut_off_are_asked_for_again(bucket: Bucket) -> None:
    bucket.server.faults.extend([TRUNCATE, 0, TRUNCATE, TRUNCATE])
    reading = Reading(bucket, bucket.range())
    assert reading.offsets() == local_offsets(bucket, 0, bucket.end)


def test_a_reader_that_stops_early_leaves_nothing_behind(bucket: Bucket) -> None:
    reading = Reading(bucket, bucket.range())
    iterator = iter(reading.direct)
    next(iterator)
    iterator.close()  # type: ignore[attr-defined]
    assert reading.ranges._connections == {}
