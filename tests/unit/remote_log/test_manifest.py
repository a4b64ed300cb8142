"""The manifest: its decisions, its lookups, and what it refuses."""

import json
from dataclasses import replace
from typing import Any

import pytest

from sparklog.remote_log.manifest import Manifest, MisfitError
from sparklog.remote_log.manifest_records import (
    GarbageKept,
    LeaderBegan,
    LogStartMoved,
    ManifestRecord,
    ObjectsDeleted,
    SegmentAdded,
    SegmentsRemoved,
    TruncatedAfter,
    record_from_json,
)
from sparklog.remote_log.remote_segment import UNBOUNDED
from tests.unit.remote_log.segments import (
    INDEXES_SIZE,
    commit,
    ids,
    manifest_of,
    segment,
    segment_id,
)

A, B, C = segment(0, 10, time=50), segment(10, 25, time=30), segment(25, 40, time=70)


def reloaded(manifest: Manifest) -> Manifest:
    """The manifest that is built from a snapshot."""
    copy = Manifest()
    records = map(record_from_json, json.loads(manifest.encoded_snapshot()))
    copy.replay_commit(manifest.version, records)
    copy.check_invariants()
    return copy


# -- lookups


def test_an_empty_manifest_knows_nothing() -> None:
    empty = Manifest()
    assert (empty.version, empty.leader_epoch, empty.leader_nonce) == (0, -1, "")
    assert (empty.log_start_offset, empty.end_offset, empty.epoch_at_end) == (None, None, -1)
    assert (empty.segment_count, empty.log_bytes, empty.remote_bytes) == (0, 0, 0)
    assert (empty.segment_at(0), empty.first_by_time(0), empty.divergence((), 0)) == (None,) * 3
    assert (empty.segments_between(0, 9), empty.garbage_due(99, 0)) == ([], [])
    assert empty.encoded_snapshot() == b"[]"


def test_a_manifest_knows_its_ends_and_sizes() -> None:
    manifest = manifest_of(A, B, C, log_start=3)
    assert (manifest.version, manifest.log_start_offset, manifest.end_offset) == (2, 3, 40)
    assert (manifest.segment_count, manifest.log_bytes) == (3, 300)
    assert manifest.remote_bytes == 300 + 3 * INDEXES_SIZE
    assert list(manifest.segments()) == [A, B, C]
    assert manifest.epoch_at_end == 1


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(-1, None), (0, A), (9, A), (10, B), (24, B), (25, C), (39, C), (40, None)],
)
def test_the_segment_of_an_offset(offset: int, expected: Any) -> None:
    assert manifest_of(A, B, C).segment_at(offset) == expected


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 40, [A, B, C]),
        (-5, 1, [A]),
        (9, 10, [A]),
        (9, 11, [A, B]),
        (10, 25, [B]),
        (39, 99, [C]),
        (40, 99, []),
        (12, 12, []),
    ],
)
def test_the_segments_of_a_range(start: int, end: int, expected: list[Any]) -> None:
    assert manifest_of(A, B, C).segments_between(start, end) == expected
    for count_max in range(4):
        found = manifest_of(A, B, C).search(start, end, UNBOUNDED, count_max)
        assert found.segments == expected[:count_max]
        is_known = found.segments and start >= 0
        assert found.next_offset == (found.segments[-1].next_offset if is_known else start)
        assert found.bytes_behind == sum(each.log_size for each in expected[count_max:])


@pytest.mark.parametrize(("timestamp", "expected"), [(0, A), (50, A), (51, C), (70, C), (71, None)])
def test_the_first_segment_with_a_timestamp(timestamp: int, expected: Any) -> None:
    assert manifest_of(A, B, C).first_by_time(timestamp) == expected


def test_timestamps_of_removed_segments_are_forgotten() -> None:
    manifest = manifest_of(A, B, C)
    assert manifest.first_by_time(31) == A
    commit(manifest, manifest.remove_segments([A.segment_id], 0))
    assert manifest.first_by_time(31) == C
    commit(manifest, manifest.truncate_after(30, 0))
    assert manifest.first_by_time(31) is None
    late = segment(25, 30, copy=1, time=90)
    commit(manifest, manifest.add_segment(late))
    assert (manifest.first_by_time(31), manifest.first_by_time(30)) == (late, B)


def test_a_segment_is_live_until_it_is_removed() -> None:
    manifest = manifest_of(A, B)
    commit(manifest, manifest.remove_segments([A.segment_id], 0))
    assert [manifest.is_live(each) for each in (A.segment_id, B.segment_id)] == [False, True]
    assert not manifest.is_live(segment_id(10, copy=1))
    assert not manifest.is_live("somebody's")


# -- decisions


def test_a_leader_begins() -> None:
    manifest = Manifest()
    records = manifest.begin_leadership(4, "n")
    assert records == (LeaderBegan(leader_epoch=4, nonce="n"),)
    commit(manifest, records)
    assert (manifest.leader_epoch, manifest.leader_nonce) == (4, "n")
    for epoch in (3, 4):
        with pytest.raises(MisfitError, match=f"leader epoch {epoch} is not above 4"):
            manifest.begin_leadership(epoch, "other")


def test_the_log_start_moves_and_takes_whole_segments_along() -> None:
    manifest = manifest_of(A, B, C, log_start=3)
    assert manifest.move_log_start(2, 9) == manifest.move_log_start(3, 9) == ()
    assert manifest.move_log_start(9, 9) == (LogStartMoved(log_start_offset=9),)
    records = manifest.move_log_start(26, 9)
    assert records == (
        SegmentsRemoved(segment_ids=(A.segment_id, B.segment_id), removed_ms=9),
        LogStartMoved(log_start_offset=26),
    )
    commit(manifest, records)
    assert (manifest.log_start_offset, list(manifest.segments())) == (26, [C])
    commit(manifest, manifest.move_log_start(45, 10))
    assert (manifest.log_start_offset, manifest.end_offset) == (45, None)
    assert manifest.garbage_ids == (A.segment_id, B.segment_id, C.segment_id)


def test_removed_segments_move_the_log_start() -> None:
    manifest = manifest_of(A, B, C)
    records = manifest.remove_segments([A.segment_id, B.segment_id], 5)
    assert records == (SegmentsRemoved(segment_ids=(A.segment_id, B.segment_id), removed_ms=5),)
    commit(manifest, records)
    assert (manifest.log_start_offset, manifest.segment_count, manifest.log_bytes) == (25, 1, 100)
    commit(manifest, manifest.remove_segments([C.segment_id], 6))
    assert (manifest.log_start_offset, manifest.end_offset) == (40, None)
    commit(manifest, manifest.add_segment(segment(40, 50)))
    assert manifest.end_offset == 50


def test_a_truncation_removes_what_reaches_above_it() -> None:
    manifest = manifest_of(A, B, C, log_start=12)
    assert manifest.truncate_after(40, 5) == ()
    records = manifest.truncate_after(39, 5)
    assert records == (TruncatedAfter(offset=39, removed_ms=5),)
    commit(manifest, records)
    assert (list(manifest.segments()), manifest.log_start_offset) == ([B], 12)
    commit(manifest, manifest.truncate_after(24, 6))
    assert (manifest.end_offset, manifest.log_start_offset) == (None, 12)
    assert manifest.garbage_ids == (A.segment_id, C.segment_id, B.segment_id)
    commit(manifest, manifest.add_segment(segment(10, 30, copy=1)))


def test_garbage_is_due_after_its_delay_and_forgotten_after_its_deletion() -> None:
    manifest = manifest_of(A, B, C)
    commit(manifest, manifest.remove_segments([A.segment_id], 1000))
    commit(manifest, manifest.remove_segments([B.segment_id], 1500))
    due = [manifest.garbage_due(now, 500) for now in (1499, 1500, 1999, 2000)]
    assert due == [[], [A.segment_id], [A.segment_id], [A.segment_id, B.segment_id]]
    records = manifest.delete_objects([A.segment_id])
    assert records == (ObjectsDeleted(segment_ids=(A.segment_id,)),)
    commit(manifest, records)
    assert manifest.garbage_ids == (B.segment_id,)
    with pytest.raises(MisfitError, match="is not garbage"):
        manifest.delete_objects([A.segment_id])


def test_a_snapshot_builds_the_same_manifest() -> None:
    manifest = manifest_of(A, B, C)
    commit(manifest, manifest.begin_leadership(7, "n"))
    commit(manifest, manifest.move_log_start(12, 5))
    commit(manifest, manifest.truncate_after(39, 6))
    documents = [record_from_json(each) for each in json.loads(manifest.encoded_snapshot())]
    assert documents == [
        LeaderBegan(leader_epoch=7, nonce="n"),
        SegmentAdded(segment=B),
        LogStartMoved(log_start_offset=12),
        GarbageKept(segment_ids=(A.segment_id,), removed_ms=5),
        GarbageKept(segment_ids=(C.segment_id,), removed_ms=6),
    ]
    copy = reloaded(manifest)
    assert copy.encoded_snapshot() == manifest.encoded_snapshot()
    assert (copy.version, copy.remote_bytes) == (manifest.version, manifest.remote_bytes)


# -- retention


def expired(manifest: Manifest, **rules: int) -> list[str]:
    values = {"retention_ms": -1, "retention_bytes": -1, "local_bytes_above": 0, "now_ms": 0}
    return manifest.expired(**(values | rules))


def test_without_limits_nothing_expires() -> None:
    assert expired(manifest_of(A, B, C), now_ms=10**15, local_bytes_above=10**15) == []


@pytest.mark.parametrize(("now_ms", "count"), [(149, 0), (150, 0), (151, 2), (170, 2), (171, 3)])
def test_old_segments_expire_from_the_oldest_offset_on(now_ms: int, count: int) -> None:
    """B is older than A, but goes after it."""
    found = expired(manifest_of(A, B, C), retention_ms=100, now_ms=now_ms)
    assert found == ids([A, B, C])[:count]


def test_a_segment_without_timestamps_is_as_old_as_its_copy() -> None:
    manifest = manifest_of(segment(0, 5, time=-1, copied_ms=1000))
    ages = [len(expired(manifest, retention_ms=100, now_ms=now)) for now in (1100, 1101)]
    assert ages == [0, 1]


@pytest.mark.parametrize(
    ("retention_bytes", "local", "count"),
    [(300, 0, 0), (300, 99, 0), (300, 100, 1), (201, 0, 0), (200, 0, 1), (100, 50, 2), (0, 0, 3)],
)
def test_a_large_log_loses_segments_while_enough_is_left(
    retention_bytes: int, local: int, count: int
) -> None:
    rules = {"retention_bytes": retention_bytes, "local_bytes_above": local}
    assert expired(manifest_of(A, B, C), **rules) == ids([A, B, C])[:count]


def test_bytes_of_segments_that_expire_by_age_count_no_more() -> None:
    rules = {"retention_ms": 100, "now_ms": 151, "retention_bytes": 150}
    assert expired(manifest_of(A, B, C), **rules) == ids([A, B])


# -- refusals


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([SegmentAdded(segment=segment(41, 50))], "does not begin at 40, where the last one ends"),
        ([SegmentAdded(segment=segment(39, 50))], "does not begin at 40"),
        ([SegmentAdded(segment=segment(40, 50, epochs=[(0, 40)]))], "in leader epoch 0, after"),
        ([SegmentAdded(segment=segment(40, 50, epochs=[(2, 40), (2, 45)]))], "do not ascend"),
        ([SegmentAdded(segment=segment(40, 50, epochs=[(2, 40), (3, 50)]))], "begins behind it"),
        ([LogStartMoved(log_start_offset=2)], "the log start cannot go back from 3"),
        ([LogStartMoved(log_start_offset=10)], r"does not lie in the first segment.*\[0, 10\)"),
        ([SegmentsRemoved(segment_ids=(B.segment_id,), removed_ms=0)], "are not the oldest ones"),
        (
            [SegmentsRemoved(segment_ids=tuple(ids([A, B, C, A])), removed_ms=0)],
            "4 segments to remove are not the oldest ones",
        ),
        ([ObjectsDeleted(segment_ids=(A.segment_id,))], "is not garbage"),
        (
            [
                TruncatedAfter(offset=30, removed_ms=0),
                ObjectsDeleted(segment_ids=(C.segment_id,)),
                SegmentAdded(segment=C),
            ],
            "was removed before",
        ),
        (
            [TruncatedAfter(offset=0, removed_ms=0), SegmentAdded(segment=segment(5, 9, copy=1))],
            r"the log start 3 does not lie in the first segment, which has \[5, 9\)",
        ),
    ],
)
def test_records_that_do_not_fit_change_nothing(records: list[ManifestRecord], reason: str) -> None:
    manifest = manifest_of(A, B, C, log_start=3)
    before = manifest.encoded_snapshot()
    fitting = SegmentAdded(segment=segment(40, 45, copy=9))
    with pytest.raises(MisfitError, match=reason):
        manifest.check(records)
    for commit_records in (records, [*records, fitting]):
        with pytest.raises(MisfitError):
            manifest.replay_commit(3, commit_records)
    assert (manifest.version, manifest.encoded_snapshot()) == (2, before)


def test_an_id_names_its_base_offset() -> None:
    with pytest.raises(MisfitError, match="is no id of a segment with base offset 0"):
        Manifest().check([SegmentAdded(segment=replace(A, segment_id=segment_id(10)))])


def test_one_commit_may_add_and_remove_at_both_ends() -> None:
    manifest = manifest_of(A, B)
    more = segment(25, 30), segment(30, 35), segment(30, 36, copy=1)
    commit(
        manifest,
        (
            SegmentAdded(segment=more[0]),
            SegmentAdded(segment=more[1]),
            SegmentsRemoved(segment_ids=tuple(ids([A, B, more[0]])), removed_ms=1),
            TruncatedAfter(offset=34, removed_ms=2),
            SegmentAdded(segment=more[2]),
        ),
    )
    assert list(manifest.segments()) == [more[2]]
    assert manifest.garbage_ids == tuple(ids([A, B, more[0], more[1]]))
    assert (manifest.log_start_offset, manifest.log_bytes) == (30, 100)
