"""Segments of which only the beginning is left: in the manifest, and when they are read."""

from dataclasses import replace

import pytest

from sparklog.remote_log.manifest import Manifest, MisfitError
from sparklog.remote_log.manifest_records import SegmentShortened, TruncatedAfter
from sparklog.remote_log.parts import PartCache
from sparklog.remote_log.reading import RemoteReader
from sparklog.remote_log.remote_segment import EpochStart, RemoteSegment
from sparklog.wire.records.batch import iter_batches
from tests.unit.remote_log.remote_fixtures import FOLDER, RichLog, fill, local_read
from tests.unit.remote_log.segments import commit, ids, manifest_of, segment

A, B, C = segment(0, 10), segment(10, 25, epochs=[(1, 10), (2, 20)], size=150), segment(25, 40)
B_BEGINNING = replace(B, next_offset=15, log_size=60, leader_epochs=(EpochStart(1, 10),))


def manifest() -> Manifest:
    return manifest_of(A, B, segment(25, 40, epochs=[(2, 25)]), log_start=3)


# -- in the manifest


def test_the_beginning_of_a_segment_stays_and_those_behind_it_go() -> None:
    found = manifest()
    records = found.truncate_after(15, 9, B_BEGINNING)
    assert records == (
        TruncatedAfter(offset=25, removed_ms=9),
        SegmentShortened(segment=B_BEGINNING),
    )
    commit(found, records)
    assert list(found.segments()) == [A, B_BEGINNING]
    assert (found.end_offset, found.epoch_at_end, found.log_bytes) == (15, 1, 160)
    assert found.garbage_ids == (C.segment_id,)
    added = segment(15, 30, epochs=[(4, 15)])
    commit(found, found.add_segment(added))
    assert [found.segment_at(each) for each in (14, 15)] == [B_BEGINNING, added]


def test_a_manifest_that_ends_there_already_stays_as_it_is() -> None:
    found = manifest()
    commit(found, found.truncate_after(15, 9, B_BEGINNING))
    assert found.truncate_after(15, 10, B_BEGINNING) == ()


@pytest.mark.parametrize(
    ("offset", "beginning"),
    [
        (16, B_BEGINNING),
        (15, replace(B_BEGINNING, segment_id=segment(10, 25, copy=1).segment_id)),
        (15, segment(0, 15)),
        (
            15,
            replace(B_BEGINNING, leader_epochs=(EpochStart(1, 10), EpochStart(2, 20))),
        ),
    ],
)
def test_another_segment_is_no_beginning(offset: int, beginning: RemoteSegment) -> None:
    with pytest.raises(MisfitError):
        manifest().truncate_after(offset, 9, beginning)


def test_only_the_last_segment_is_shortened_and_only_behind_the_log_start() -> None:
    found = manifest()
    with pytest.raises(MisfitError, match="is no beginning of the last segment"):
        found.check([SegmentShortened(segment=B_BEGINNING)])
    with pytest.raises(MisfitError, match="is no beginning of the last segment"):
        Manifest().check([SegmentShortened(segment=B_BEGINNING)])
    commit(found, found.move_log_start(15, 9))
    with pytest.raises(MisfitError, match="the log start 15 does not lie in the first segment"):
        found.truncate_after(15, 9, B_BEGINNING)


def test_a_segment_is_shortened_twice_and_with_its_own_commit() -> None:
    found = Manifest()
    half, less = replace(A, next_offset=5), replace(A, next_offset=2)
    commit(found, (*found.add_segment(A), SegmentShortened(segment=half)))
    assert list(found.segments()) == [half]
    commit(found, found.truncate_after(2, 0, less))
    assert (ids(found.segments()), found.end_offset) == ([A.segment_id], 2)
    assert found.garbage_ids == ()


# -- reads


@pytest.fixture(scope="module")
def rich() -> RichLog:
    found = RichLog()
    fill(found)
    return found


@pytest.fixture(scope="module")
def copies(rich: RichLog) -> list[RemoteSegment]:
    return rich.copy_all()


def batch_ends(rich: RichLog, segment: RemoteSegment) -> list[int]:
    data = rich.bucket.read(f"{FOLDER}/{segment.segment_id}.log")
    return [header.next_offset for header, _ in iter_batches(data)]


def test_a_beginning_reads_as_the_local_log_up_to_its_end(
    rich: RichLog, copies: list[RemoteSegment]
) -> None:
    reader = RemoteReader(rich.bucket.read, FOLDER, PartCache())
    shortened = 0
    for whole in copies:
        for end in batch_ends(rich, whole)[:-1]:
            segment = reader.beginning(whole, end)
            assert segment is not None
            shortened += 1
            for offset in range(segment.base_offset, end):
                found = reader.read_batches(
                    segment, offset, 10**6, end_offset=end, with_aborted=True
                )
                assert found == local_read(rich.log, offset, 10**6, end_offset=end, min_one=True), (
                    offset,
                    end,
                )
            entries = [each for each in rich.log.leader_epochs.entries if each.start_offset < end]
            assert reader.leader_epochs(segment) == tuple(
                EpochStart(each.epoch, each.start_offset) for each in entries
            )
            assert reader.producer_snapshot(whole) is not None
            assert reader.producer_snapshot(segment) is None
    assert shortened > 20


def test_a_search_by_time_ends_where_a_beginning_ends(
    rich: RichLog, copies: list[RemoteSegment]
) -> None:
    reader = RemoteReader(rich.bucket.read, FOLDER, PartCache())
    missed = 0
    for whole in copies:
        for end in batch_ends(rich, whole)[:-1]:
            segment = reader.beginning(whole, end)
            assert segment is not None
            for timestamp in (0, 90, 110, 150, 201, 231, 300, 316, 400, 505, 591, 600):
                in_whole = reader.find_timestamp(whole, timestamp)
                expected = in_whole if in_whole is not None and in_whole.offset < end else None
                assert reader.find_timestamp(segment, timestamp) == expected, (timestamp, end)
                missed += in_whole is not None and expected is None
    assert missed > 20


def test_a_segment_has_no_beginning_that_ends_inside_a_batch_or_at_its_ends(
    rich: RichLog, copies: list[RemoteSegment]
) -> None:
    reader = RemoteReader(rich.bucket.read, FOLDER, PartCache())
    for whole in copies:
        ends = batch_ends(rich, whole)
        others = {*range(whole.base_offset, whole.next_offset), whole.next_offset + 1} - {*ends}
        for end in (*others, whole.next_offset):
            assert reader.beginning(whole, end) is None
