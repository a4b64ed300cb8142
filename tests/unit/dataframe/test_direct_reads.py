"""Direct reads of copied segments, over HTTP from a server that has faults when a test wants them.

The log is the same as in the tests of ``remote_log``: transactions, compression, times in no order.
"""

import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

import pytest

from sparklog.client.remote_segments_api import RemoteSegments
from sparklog.dataframe.corrupt_batches import CorruptBatches
from sparklog.dataframe.read import direct_reads
from sparklog.dataframe.read.direct_reads import DirectReads
from sparklog.dataframe.read.plan import OffsetRange, RemoteSource
from sparklog.dataframe.read.segment_source import SPARE_MS, SegmentSource
from sparklog.errors import CorruptBatchError, ErrorCode, KafkaError
from sparklog.remote_log.remote_segment import RemoteSegment
from sparklog.remote_log.signed_segments import SignedSegment
from sparklog.storage_backends.url_ranges import TRIES, UrlRanges
from sparklog.types import NO_TIMESTAMP, Isolation, TopicPartition
from sparklog.wire.protocol.messages.fetch import AbortedTransaction
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import decode_records
from sparklog.wire.records.columns import decode_columns
from tests.support.range_server import TRUNCATE, WRONG_BYTES, RangeServer, range_server
from tests.unit.remote_log.remote_fixtures import RichLog, fill, indexes_path, log_path

TP = TopicPartition("t", 0)
TOPIC_ID = UUID(int=3)
NOW_MS = 1_000_000


@dataclass
class Bucket:
    """Copied segments behind a server, and the leader that gives URLs for them."""

    server: RangeServer
    rich: RichLog
    segments: list[RemoteSegment]
    now_ms: int = NOW_MS

    @property
    def end(self) -> int:
        return self.segments[-1].next_offset

    def signed(self) -> RemoteSegments:
        return RemoteSegments(
            segments=tuple(
                SignedSegment(
                    segment=each,
                    log_url=self.server.url(log_path(each)),
                    indexes_url=self.server.url(indexes_path(each)),
                )
                for each in self.segments
            ),
            expires_at_ms=self.now_ms + 3_600_000,
        )

    def range(self, start: int = 0, end: int | None = None) -> OffsetRange:
        """A range with the URLs that are good now."""
        signed = self.signed()
        end = self.end if end is None else end
        return OffsetRange(
            topic_partition=TP,
            start=start,
            end=end,
            topic_id=TOPIC_ID,
            remote=RemoteSource(
                end=end, segments=signed.segments, expires_at_ms=signed.expires_at_ms
            ),
        )

    def log_requests(self) -> int:
        return sum(asked.path.endswith(".log") for asked in self.server.asked)


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    rich = RichLog()
    fill(rich)
    segments = rich.copy_all()
    assert len(segments) > 4
    with range_server() as server:
        for each in segments:
            for path in (log_path(each), indexes_path(each)):
                server.objects[path] = rich.bucket.read(path)
        yield Bucket(server, rich, segments)


class Reading:
    """One task's direct read; ``offsets`` are those of the records that it gives."""

    def __init__(
        self,
        bucket: Bucket,
        item: OffsetRange,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        fail: bool = True,
        ask: Callable[[int, int], RemoteSegments] | None = None,
    ) -> None:
        self.item = item
        self.source = SegmentSource(
            item, ask or (lambda start, end: bucket.signed()), lambda: bucket.now_ms
        )
        self.corrupt = CorruptBatches(TP, item.start, item.end, fail=fail)
        self.ranges = UrlRanges(pause_seconds=0)
        self.direct = DirectReads(item, self.source, self.ranges, isolation, self.corrupt)

    def offsets(self) -> list[int]:
        return [
            offset
            for start, fetched in self.direct
            for batch in decode_columns(
                fetched.records,
                start_offset=start,
                end_offset=self.item.end,
                columns=frozenset(("offset",)),
                aborted=fetched.aborted,
            )
            for offset in batch.column("offset").to_pylist()
        ]


def local_offsets(
    bucket: Bucket, start: int, end: int, isolation: Isolation = Isolation.READ_COMMITTED
) -> list[int]:
    """The same from the local log."""
    committed = isolation is Isolation.READ_COMMITTED
    found: list[int] = []
    offset = start
    while offset < end:
        read = bucket.rich.log.read(
            offset, 10**6, end_offset=bucket.end, min_one=True, with_aborted=committed
        )
        assert read.region is not None
        data = read.region.read()
        for batch in decode_columns(
            data,
            start_offset=offset,
            end_offset=end,
            columns=frozenset(("offset",)),
            aborted=[
                AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
                for txn in read.aborted
            ],
        ):
            found += batch.column("offset").to_pylist()
        *_, (last, _) = iter_batches(data)
        offset = last.next_offset
    return found


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


# damage


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


def test_a_reader_that_stops_early_leaves_nothing_behind(bucket: Bucket) -> None:
    reading = Reading(bucket, bucket.range())
    iterator = iter(reading.direct)
    next(iterator)
    iterator.close()  # type: ignore[attr-defined]
    assert reading.ranges._connections == {}


def flip(bucket: Bucket, path: str, position: int) -> None:
    data = bytearray(bucket.server.objects[path])
    data[position] ^= 1
    bucket.server.objects[path] = bytes(data)
