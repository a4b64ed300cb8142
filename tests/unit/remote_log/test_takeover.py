"""What a new leader changes in a manifest, by cases."""

import pytest

from sparklog.remote_log.manifest import Manifest
from sparklog.remote_log.takeover import (
    LeaderLog,
    ShortLineageError,
    diverges_at,
    log_start,
    lost_offsets,
    segment_to_shorten,
)
from tests.unit.remote_log.segments import manifest_of, segment
from tests.unit.remote_log.service_fixtures import leader_log

#: Epochs 1 [0, 10), 3 [10, 30), 5 [30, 40), in three segments.
SEGMENTS = (
    segment(0, 15, epochs=[(1, 0), (3, 10)]),
    segment(15, 25, epochs=[(3, 15)]),
    segment(25, 40, epochs=[(3, 25), (5, 30)]),
)
ALL = ((1, 0), (3, 10), (5, 30))


def manifest(log_start: int = 0) -> Manifest:
    return manifest_of(*SEGMENTS, log_start=log_start)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (leader_log(40, *ALL), None),
        (leader_log(50, *ALL, (7, 45)), None),
        (leader_log(40, *ALL, (7, 40), local=40), None),
        (leader_log(33, *ALL), 33),
        (leader_log(33, (1, 0), (3, 10), (6, 28)), 28),
        # What is known begins at the leader's log start, or at that of the manifest.
        (leader_log(40, (3, 20), (5, 30), start=20), None),
        (leader_log(40, (3, 20), (6, 28), start=20), 28),
        (leader_log(10, (1, 0)), 10),
        # Nothing stays anyway: the log starts above all segments, or its files do.
        (leader_log(50, (6, 40), start=40), None),
        (leader_log(50, (6, 41), local=41), None),
        (leader_log(41, local=41), None),
    ],
)
def test_where_the_segments_diverge_from_the_log(log: LeaderLog, expected: int | None) -> None:
    assert diverges_at(manifest(), log, "url") == expected


def test_offsets_below_the_log_start_of_the_manifest_need_no_epochs() -> None:
    found = manifest(log_start=12)
    assert diverges_at(found, leader_log(40, (3, 12), (5, 30), start=5, local=12), "url") is None
    with pytest.raises(ShortLineageError):
        diverges_at(found, leader_log(40, (3, 13), (5, 30), start=5, local=13), "url")


@pytest.mark.parametrize(
    ("log", "begin"),
    [
        # Each of these would lose segments if unknown epochs counted as different ones.
        (leader_log(45, (6, 35), local=35), "begin at offset 35"),
        (leader_log(45, (5, 35), local=35), "begin at offset 35"),
        (leader_log(45, (5, 1), local=35), "begin at offset 1"),
        (leader_log(45, (6, 40), local=40), "begin at offset 40"),
        # An epoch without records is none.
        (leader_log(40, (7, 40), local=40), "are unknown"),
        (leader_log(0, (7, 0)), "are unknown"),
    ],
)
def test_a_leader_that_does_not_know_its_older_epochs_is_refused(
    log: LeaderLog, begin: str
) -> None:
    with pytest.raises(ShortLineageError) as refusal:
        diverges_at(manifest(), log, "memory://bucket/manifest")
    assert str(refusal.value) == (
        f"the leader epochs of the leader's log [{log.local_log_start_offset}, "
        f"{log.log_end_offset}) {begin}, but the segments of memory://bucket/manifest have "
        "[0, 40); restore the leader epochs of the log from follower_state before it takes over"
    )


def test_a_leader_without_epochs_begins_an_empty_manifest() -> None:
    assert diverges_at(Manifest(), leader_log(0), "url") is None
    assert diverges_at(manifest_of(log_start=7), leader_log(0), "url") is None


@pytest.mark.parametrize(
    ("log_start", "local", "offset", "expected"),
    [
        (0, 26, 30, SEGMENTS[2]),
        (0, 30, 30, SEGMENTS[2]),
        (0, 20, 24, SEGMENTS[1]),
        (0, 25, 30, None),  # the files have the whole segment
        (0, 31, 30, None),  # there would be a gap nevertheless
        (0, 15, 15, None),  # the segment before it stays
        (14, 3, 14, None),  # the log starts there
        (13, 3, 14, SEGMENTS[0]),
    ],
)
def test_which_beginning_must_stay(
    log_start: int, local: int, offset: int, expected: object
) -> None:
    found = segment_to_shorten(manifest(log_start), leader_log(45, *ALL, local=local), offset)
    assert found == expected


@pytest.mark.parametrize(
    ("start", "local", "expected"),
    [(3, 30, 3), (3, 40, 3), (3, 41, 41), (40, 40, 40), (0, 0, 0)],
)
def test_the_log_starts_at_the_files_above_a_gap(start: int, local: int, expected: int) -> None:
    log = leader_log(50, (1, start), start=start, local=local)
    assert log_start(manifest(), log) == expected
    assert lost_offsets(manifest(), log) == range(start, expected)
    assert log_start(Manifest(), log) == local
    assert lost_offsets(Manifest(), log) == range(start, local)


def test_what_retention_has_deleted_is_not_lost() -> None:
    log = leader_log(50, (1, 3), start=3, local=30)
    assert not lost_offsets(manifest_of(log_start=30), log)
    assert lost_offsets(manifest_of(log_start=29), log) == range(29, 30)
