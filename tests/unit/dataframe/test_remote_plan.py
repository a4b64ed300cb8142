"""What of a range tasks read from the bucket: nothing is lost between two pieces, or read twice."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.remote_segments_api import RemoteSegments
from sparklog.dataframe.read.plan import OffsetRange, split
from sparklog.dataframe.read.reader import RangePartition
from sparklog.dataframe.read.remote_plan import PIECES_MAX, cut_by_tier, with_own_segments
from sparklog.remote_log.remote_segment import EpochStart, RemoteSegment
from sparklog.remote_log.signed_segments import SignedSegment
from sparklog.types import NO_OFFSET, NO_TIMESTAMP, TopicPartition

TP = TopicPartition("t", 0)
EXPIRES_AT_MS = 77


def signed(
    base_offset: int,
    next_offset: int,
    size: int,
    max_timestamp: int = 0,
    min_timestamp: int = NO_TIMESTAMP,
) -> SignedSegment:
    segment = RemoteSegment(
        segment_id=str(base_offset),
        base_offset=base_offset,
        next_offset=next_offset,
        log_size=size,
        max_timestamp=max_timestamp,
        min_timestamp=min_timestamp,
        leader_epochs=(EpochStart(0, base_offset),),
        parts={},
    )
    return SignedSegment(segment=segment, log_url="log", indexes_url="indexes")


def remote(segments: Sequence[SignedSegment], local_start: int) -> RemoteSegments:
    """The segments are known up to the end of the last one; a gap means that nothing is wanted."""
    return RemoteSegments(
        segments=tuple(segments),
        end_offset=segments[-1].segment.next_offset if segments else NO_OFFSET,
        expires_at_ms=EXPIRES_AT_MS,
        local_start_offset=local_start,
    )


def span(start: int, end: int, oldest_ms: int | None = None) -> OffsetRange:
    return OffsetRange(topic_partition=TP, start=start, end=end, min_timestamp_ms=oldest_ms)


def cut(
    item: OffsetRange, segments: Sequence[SignedSegment], local_start: int, piece_bytes: int = 100
) -> list[tuple[int, int, int | None]]:
    """Start, end, and how far it is read from the bucket."""
    found = with_own_segments(cut_by_tier(item, remote(segments, local_start), piece_bytes))
    for each in found:
        if each.remote is not None:
            own = [
                s
                for s in segments
                if s.segment.base_offset < each.remote.end and each.start < s.segment.next_offset
            ]
            assert each.remote.segments == tuple(own)
            assert each.remote.expires_at_ms == EXPIRES_AT_MS
    return [(each.start, each.end, each.remote and each.remote.end) for each in found]


SEGMENTS = [signed(0, 10, 40), signed(10, 20, 40), signed(20, 30, 40), signed(30, 60, 300)]


def test_what_is_on_the_disks_is_left_to_the_brokers() -> None:
    assert cut(span(0, 90), SEGMENTS, 60, 500) == [(0, 60, 60), (60, 90, None)]
    assert cut(span(5, 90), SEGMENTS, 25, 120) == [(5, 25, 25), (25, 90, None)]
    assert cut(span(5, 22), SEGMENTS, 25, 1000) == [(5, 22, 22)]
    assert cut(span(40, 90), SEGMENTS[3:], 30, 1000) == [(40, 90, None)]
    assert cut(span(0, 90), [], 60) == [(0, 90, None)]
    assert cut(span(0, 90), SEGMENTS, -1) == [(0, 90, None)]
    assert cut(span(7, 7), SEGMENTS, 60) == []


def test_a_task_takes_a_small_rest_from_the_brokers() -> None:
    assert cut(span(0, 90), SEGMENTS, 60, 720) == [(0, 90, 60)]
    assert cut(span(0, 91), SEGMENTS, 60, 720) == [(0, 60, 60), (60, 91, None)]
    assert cut(span(5, 40), SEGMENTS, 25, 1000) == [(5, 40, 25)]
    parts = split(cut_by_tier(span(0, 90), remote(SEGMENTS, 60), 720), 9)
    assert [(each.start, each.remote is not None) for each in with_own_segments(parts)] == [
        (start, start < 60) for start in range(0, 90, 10)
    ]


def test_small_segments_go_together_and_large_ones_are_cut() -> None:
    assert cut(span(0, 60), SEGMENTS, 60) == [
        (0, 20, 20),
        (20, 30, 30),
        (30, 40, 40),
        (40, 50, 50),
        (50, 60, 60),
    ]
    assert cut(span(0, 2), [signed(0, 2, 10**6)], 9) == [(0, 1, 1), (1, 2, 2)]


def test_tasks_have_about_the_same_number_of_bytes() -> None:
    segments = [signed(start, start + 10, 16) for start in range(0, 100, 10)]
    assert cut(span(0, 110), segments, 100, 128) == [(0, 60, 60), (60, 110, 100)]
    assert cut(span(0, 100), segments, 100, 159) == [(0, 50, 50), (50, 100, 100)]


def test_segments_that_are_too_old_are_not_read() -> None:
    segments = [signed(0, 10, 40, 5), signed(10, 20, 40, 3), signed(20, 30, 40, 9)]
    assert cut(span(0, 60, 5), segments, 30, 120) == [
        (0, 10, 10),
        (20, 30, 30),
        (30, 60, None),
    ]
    assert cut(span(0, 40, 5), segments, 30, 1000) == [(0, 10, 10), (20, 40, 30)]
    assert cut(span(0, 30, 10), segments, 30, 1000) == []
    assert cut(span(0, 31, 10), segments, 30, 1000) == [(30, 31, None)]


def test_segments_that_are_too_new_are_not_read() -> None:
    segments = [signed(0, 10, 40, 5, 3), signed(10, 20, 40, 9, 6), signed(20, 30, 40, 9)]

    def pieces(newest_ms: int, end: int = 60) -> list[tuple[int, int, int | None]]:
        return cut(replace(span(0, end), max_timestamp_ms=newest_ms), segments, 30, 1000)

    assert pieces(6) == [(0, 60, 30)]
    assert pieces(5, 30) == [(0, 10, 10), (20, 30, 30)]
    assert pieces(3, 30) == [(0, 10, 10), (20, 30, 30)]
    assert pieces(2, 30) == [(20, 30, 30)], "a segment of an earlier version is always read"
    segments[2] = signed(20, 30, 40, 9, 7)
    assert pieces(5) == [(0, 10, 10), (30, 60, None)], "the files may have older records"
    assert pieces(2, 30) == []


@given(data=st.data(), times=st.lists(st.lists(st.integers(-1, 9), max_size=4), max_size=8))
def test_bounds_of_time_lose_no_record(data: st.DataObject, times: list[list[int]]) -> None:
    """Each segment has two offsets for each record, as if every second one were removed."""
    segments: list[SignedSegment] = []
    end = 0
    for stamps in times:
        lowest = min(stamps, default=NO_TIMESTAMP) if data.draw(st.booleans()) else NO_TIMESTAMP
        size, stop = data.draw(st.integers(1, 300)), end + 2 * max(len(stamps), 1)
        segments.append(signed(end, stop, size, max(stamps, default=NO_TIMESTAMP), lowest))
        end = stop
    bounds = st.none() | st.integers(-3, 11)
    lowest_ms, highest_ms = data.draw(bounds), data.draw(bounds)
    item = replace(span(0, end), min_timestamp_ms=lowest_ms, max_timestamp_ms=highest_ms)
    found = with_own_segments(cut_by_tier(item, remote(segments, end), 100))
    planned = {offset for each in found for offset in range(each.start, each.end)}
    wanted = {
        each.segment.base_offset + 2 * place
        for each, stamps in zip(segments, times, strict=True)
        for place, stamp in enumerate(stamps)
        if (lowest_ms is None or stamp >= lowest_ms) and (highest_ms is None or stamp <= highest_ms)
    }
    assert wanted <= planned


def test_segments_that_the_leader_has_ruled_out_are_not_read() -> None:
    assert cut(span(0, 90), [SEGMENTS[0], SEGMENTS[2]], 30) == [
        (0, 10, 10),
        (20, 30, 30),
        (30, 90, None),
    ]
    nothing = replace(remote([], 60), end_offset=40)
    assert cut_by_tier(span(0, 90), nothing) == [span(40, 90)]


def test_tasks_ask_for_segments_that_the_plan_does_not_have() -> None:
    """Behind the known segments come 40 offsets with 160 bytes that are in the bucket, and 30 that
    are not."""
    there = replace(remote(SEGMENTS[:2], 60), bytes_behind=160)
    found = cut_by_tier(span(0, 90), there, 90)
    assert [(each.start, each.end, _known(each)) for each in found] == [
        (0, 20, (20, 2)),
        (20, 40, (40, 0)),
        (40, 60, (60, 0)),
        (60, 90, None),
    ]
    whole = cut_by_tier(span(0, 90), there, 1000)
    assert [(each.start, each.end, _known(each)) for each in whole] == [(0, 90, (60, 2))]


def test_what_the_leader_knows_nothing_of_is_left_to_the_brokers() -> None:
    assert cut(span(0, 90), SEGMENTS[:2], 60, 100) == [(0, 20, 20), (20, 90, None)]
    assert cut(span(0, 90), SEGMENTS[1:], 60, 1000) == [(10, 90, 60)], "it was ruled out"


def test_segments_that_overlap_are_not_read_twice() -> None:
    """Two answers, between which a leader has cut its log and written on."""
    segments = [signed(0, 20, 40), signed(10, 30, 40)]
    found = cut_by_tier(span(0, 30), remote(segments, 30), 1000)
    assert [(each.start, each.end) for each in found] == [(0, 30)]


def test_the_number_of_pieces_is_limited() -> None:
    there = replace(remote(SEGMENTS[:1], 10**9), bytes_behind=10**12)
    found = cut_by_tier(span(0, 10**9), there, 100)
    assert len(found) <= PIECES_MAX + 1
    assert (found[0].start, found[-1].end) == (0, 10**9)


def _known(item: OffsetRange) -> tuple[int, int] | None:
    """How far a range is in the bucket, and how many of its segments have URLs."""
    return item.remote and (item.remote.end, len(item.remote.segments))


def test_a_plan_has_a_limited_number_of_urls() -> None:
    pieces = cut_by_tier(span(0, 60), remote(SEGMENTS, 60), 100)
    found = with_own_segments(pieces, count_max=3)
    assert [len(each.remote.segments) for each in found if each.remote] == [2, 1, 0, 0, 0]
    assert found == pieces


def test_the_oldest_pieces_of_each_partition_have_urls_first() -> None:
    """What they read may leave the log before their tasks begin."""
    other = replace(span(0, 60), topic_partition=TopicPartition("t", 1))
    there = remote(SEGMENTS, 60)
    pieces = [piece for item in (span(0, 60), other) for piece in cut_by_tier(item, there, 100)]
    found = with_own_segments(pieces, count_max=5)
    counts = [len(each.remote.segments) for each in found if each.remote]
    assert counts == [2, 1, 0, 0, 0, 2, 0, 0, 0, 0]
    assert [each.start for each in found] == [each.start for each in pieces]


@given(
    lengths=st.lists(st.integers(1, 40), max_size=8),
    data=st.data(),
    piece_bytes=st.integers(1, 400),
    pieces_min=st.none() | st.integers(1, 20),
)
def test_every_offset_is_read_once(
    lengths: list[int], data: st.DataObject, piece_bytes: int, pieces_min: int | None
) -> None:
    edges = [sum(lengths[:count]) for count in range(len(lengths) + 1)]
    segments = [
        signed(start, end, data.draw(st.integers(1, 1000))) for start, end in pairwise(edges)
    ]
    start, end = sorted(data.draw(st.integers(0, edges[-1] + 20)) for _ in range(2))
    first = next((n for n, s in enumerate(segments) if s.segment.next_offset > start), 0)
    local_start = data.draw(st.integers(-1, edges[-1] + 5))
    found = cut_by_tier(span(start, end), remote(segments[first:], local_start), piece_bytes)
    found = with_own_segments(split(found, pieces_min))
    assert [o for each in found for o in range(each.start, each.end)] == list(range(start, end))
    for each in found:
        if each.remote is not None:
            covered = [
                o
                for s in each.remote.segments
                for o in range(s.segment.base_offset, s.segment.next_offset)
            ]
            in_bucket = min(each.end, each.remote.end)
            assert each.start < in_bucket <= local_start
            assert set(range(each.start, in_bucket)) <= set(covered)
        else:
            assert each.end > min(local_start, edges[-1]) or not segments


def test_no_text_of_a_task_shows_a_url() -> None:
    """Spark puts partitions into logs and into the texts of errors."""
    [piece] = cut_by_tier(span(0, 10), remote(SEGMENTS[:1], 10))
    assert piece.remote is not None
    secret = "https://bucket/x?X-Amz-Signature=5ec2e7"
    segments = (replace(piece.remote.segments[0], log_url=secret, indexes_url=secret),)
    partition = RangePartition(replace(piece, remote=replace(piece.remote, segments=segments)))
    for text in (str(partition), repr(partition), repr(partition.value), repr([*segments])):
        assert "segment" in text
        assert "X-Amz" not in text


def test_a_range_keeps_everything_else() -> None:
    item = replace(span(0, 40, 0), max_timestamp_ms=9)
    first, rest = cut_by_tier(item, remote(SEGMENTS, 30), 120)
    assert (first, rest) == (replace(item, end=20), replace(item, start=20))
    assert cut_by_tier(item, remote(SEGMENTS, 30), 1000) == [item]
