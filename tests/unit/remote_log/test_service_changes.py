"""What a leader changes through the service: segments, the log start, and garbage."""

from collections.abc import Callable

import pytest

from sparklog.errors import StorageError
from sparklog.remote_log.manifest import MisfitError
from sparklog.remote_log.manifest_log import DeposedLeaderError
from sparklog.remote_log.remote_segment import RemoteSegment
from sparklog.remote_log.service import (
    COPY_MS_MAX,
    GARBAGE_SEGMENTS_MAX,
    NotLeadingError,
    RemoteLogService,
    RemoteLogState,
    RemotePartition,
)
from sparklog.storage_backends.base import StorageBackend
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import NO_OFFSET
from tests.unit.remote_log.manifest_stores import Failure, ScriptedStore
from tests.unit.remote_log.segments import ids
from tests.unit.remote_log.service_fixtures import (
    DAY_MS,
    HOUR_MS,
    PARTITION,
    SEGMENTS,
    copied,
    leader_log,
    leading,
    object_names,
    put_objects,
    service_of,
    stored,
)

A, B, C = copied(0, 10, time=50), copied(10, 20, time=30), copied(20, 30, time=70)


def live(store: StorageBackend) -> list[str]:
    return ids(stored(store).segments())


# -- segments


def test_segments_follow_one_another() -> None:
    store = MemoryBackend()
    service = leading(store)
    assert service.add_segment(PARTITION, A, 0) == RemoteLogState(0, 10, 1, 100, A.size)
    assert service.add_segment(PARTITION, B, 0) == RemoteLogState(0, 20, 2, 200, 2 * A.size)
    with pytest.raises(MisfitError, match="does not begin at 20"):
        service.add_segment(PARTITION, copied(25, 30), 0)
    assert live(store) == ids([A, B])


@pytest.mark.parametrize(
    "failures",
    [
        ("before", "before"),  # nothing was written
        ("after", "before"),  # it was written, and the answer was lost
        ("late", "late"),  # it is written after the caller gave up
    ],
)
def test_a_segment_whose_answer_was_lost_is_added_once(failures: tuple[Failure, ...]) -> None:
    store = ScriptedStore()
    service = leading(store, [A])
    store.fail(*failures)
    with pytest.raises(StorageError):
        service.add_segment(PARTITION, B, 0)
    store.land()
    for _ in range(2):
        assert service.add_segment(PARTITION, B, 1).end_offset == 20
    assert live(store) == ids([A, B])


def test_a_new_copy_of_a_segment_that_was_added_tells_that_the_end_has_moved() -> None:
    """The broker has lost the first copy with its process; the new one becomes an orphan."""
    store = ScriptedStore()
    service = leading(store, [A])
    store.fail("after", "before")
    with pytest.raises(StorageError):
        service.add_segment(PARTITION, B, 0)
    again = copied(10, 20, copy=1)
    put_objects(store, A, B, again)
    state = service.add_segment(PARTITION, again, 1)
    assert (state.end_offset, live(store)) == (20, ids([A, B]))
    longer = copied(10, 25, copy=2)
    assert service.add_segment(PARTITION, longer, 1).end_offset == 20
    assert service.sweep_orphans(PARTITION, DAY_MS, DAY_MS).deleted == 2
    assert store.list(SEGMENTS) == object_names(A, B)


def test_a_late_commit_of_another_copy_arrives_while_the_new_copy_is_added() -> None:
    store = ScriptedStore()
    service = leading(store, [A])
    store.fail("late", "late")
    with pytest.raises(StorageError):
        service.add_segment(PARTITION, B, 0)
    land_before_the_next_put(store)
    assert service.add_segment(PARTITION, copied(10, 20, copy=1), 1).end_offset == 20
    assert live(store) == ids([A, B])


def land_before_the_next_put(store: ScriptedStore) -> None:
    """Late writes arrive when the next one is on its way."""
    put = store.put_if_absent

    def put_if_absent(path: str, data: bytes) -> bool:
        store.land()
        return put(path, data)

    store.put_if_absent = put_if_absent  # type: ignore[method-assign,assignment]


def test_a_copy_of_another_leader_epoch_is_refused() -> None:
    """The log may have been truncated between the two leaderships of the broker."""
    store = MemoryBackend()
    service = leading(store, [A])
    service.begin_leadership(PARTITION, 3, "n", leader_log(40, (1, 0), (3, 30)), 0)
    with pytest.raises(DeposedLeaderError) as refusal:
        service.add_segment(PARTITION, B, 0)
    assert str(refusal.value) == (
        f"segment {B.segment_id} was copied in leader epoch 1, and the manifest is of leader epoch "
        "3; only its leader may add a segment, from its own log"
    )
    own = copied(10, 20, by=3, epochs=[(1, 10)])
    assert service.add_segment(PARTITION, own, 0).end_offset == 20
    assert live(store) == ids([A, own])


def test_a_copy_that_may_have_been_swept_is_refused() -> None:
    store = MemoryBackend()
    service = leading(store, [A])
    with pytest.raises(MisfitError, match=f"{COPY_MS_MAX + 1} ms ago.*it is copied again"):
        service.add_segment(PARTITION, B, COPY_MS_MAX + 1)
    assert service.add_segment(PARTITION, B, COPY_MS_MAX).end_offset == 20
    with pytest.raises(AssertionError, match="may still be added"):
        service.sweep_orphans(PARTITION, 0, COPY_MS_MAX)


def test_an_id_that_is_not_ours_is_refused() -> None:
    service = leading(MemoryBackend())
    bad = RemoteSegment(
        segment_id="a", base_offset=0, next_offset=1, log_size=1, leader_epochs=A.leader_epochs,
        parts={},
    )  # fmt: skip
    with pytest.raises(MisfitError, match="'a' is no id of a segment"):
        service.add_segment(PARTITION, bad, 0)


def test_a_segment_that_was_deleted_while_it_was_copied_is_not_added() -> None:
    store = MemoryBackend()
    service = leading(store)
    service.move_log_start(PARTITION, 1, 12, 0)
    assert service.add_segment(PARTITION, A, 0) == RemoteLogState(12, NO_OFFSET, 0, 0, 0)
    assert service.add_segment(PARTITION, B, 0).end_offset == 20
    service.move_log_start(PARTITION, 1, 20, 0)
    assert service.add_segment(PARTITION, B, 0) == RemoteLogState(20, NO_OFFSET, 0, 0, 0)
    with pytest.raises(MisfitError, match="the log start 20 does not lie in the first segment"):
        service.add_segment(PARTITION, copied(21, 30), 0)
    assert live(store) == []


# -- all segments


def test_all_segments_are_removed_and_the_log_start_stays() -> None:
    store = MemoryBackend()
    service = leading(store, [A, B, C])
    put_objects(store, A, B, C)
    service.move_log_start(PARTITION, 1, 14, 0)
    state = service.remove_segments(PARTITION, 1, C.segment_id, 5)
    assert state == RemoteLogState(14, NO_OFFSET, 0, 0, 0)
    assert stored(store).log_start_offset == 14
    assert service.collect_garbage(PARTITION, 10, 14).segments == 1
    assert service.collect_garbage(PARTITION, 10, 15).segments == 2
    assert store.list(SEGMENTS) == []
    again = copied(14, 20, copy=1)
    assert service.add_segment(PARTITION, again, 6).log_start_offset == 14


@pytest.mark.parametrize("failures", [("before", "before"), ("after", "before"), ("late", "late")])
def test_a_removal_whose_answer_was_lost_does_not_remove_what_was_added_since(
    failures: tuple[Failure, ...],
) -> None:
    store = ScriptedStore()
    service = leading(store, [A, B])
    store.fail(*failures)
    with pytest.raises(StorageError):
        service.remove_segments(PARTITION, 1, B.segment_id, 0)
    store.land()
    assert service.remove_segments(PARTITION, 1, B.segment_id, 1).segments == 0
    again = copied(0, 10, copy=1)
    service.add_segment(PARTITION, again, 2)
    assert service.remove_segments(PARTITION, 1, B.segment_id, 3).segments == 1
    assert live(store) == ids([again])


def test_a_late_removal_of_a_former_leadership_changes_nothing() -> None:
    store = MemoryBackend()
    service = leading(store, [A, B])
    log = leader_log(20, (1, 0))
    service.begin_leadership(PARTITION, 3, "leader-3", log, 0)
    with pytest.raises(DeposedLeaderError, match="by the leader of epoch 1"):
        service.remove_segments(PARTITION, 1, B.segment_id, 0)
    assert live(store) == ids([A, B])


# -- the log start


@pytest.mark.parametrize(
    ("offset", "start", "left"),
    [
        (0, 0, [A, B, C]),
        (9, 9, [A, B, C]),
        (10, 10, [B, C]),
        (15, 15, [B, C]),
        (30, 30, []),
        (44, 44, []),
    ],
)
def test_the_log_start_moves(offset: int, start: int, left: list[RemoteSegment]) -> None:
    store = MemoryBackend()
    service = leading(store, [A, B, C])
    end = 30 if left else NO_OFFSET
    sizes = (sum(each.log_size for each in left), sum(each.size for each in left))
    expected = RemoteLogState(start, end, len(left), *sizes)
    assert service.move_log_start(PARTITION, 1, offset, 5) == expected
    assert service.move_log_start(PARTITION, 1, offset // 2, 6) == expected
    manifest = stored(store)
    assert (manifest.log_start_offset, live(store)) == (start, ids(left))
    assert manifest.garbage_ids == tuple(ids([A, B, C])[: 3 - len(left)])


@pytest.mark.parametrize("failures", [("after", "before"), ("late", "late"), ("before", "before")])
def test_a_move_whose_answer_was_lost_is_repeated(failures: tuple[Failure, ...]) -> None:
    """The time has gone on meanwhile, so the repeated records are not the same."""
    store = ScriptedStore()
    service = leading(store, [A, B, C])
    store.fail(*failures)
    with pytest.raises(StorageError):
        service.move_log_start(PARTITION, 1, 15, 5)
    land_before_the_next_put(store)
    assert service.move_log_start(PARTITION, 1, 15, 6).log_start_offset == 15
    assert (live(store), stored(store).garbage_ids) == (ids([B, C]), (A.segment_id,))


def test_a_late_move_of_a_former_leadership_changes_nothing() -> None:
    """The log of the new one, after an unclean election, may end below."""
    store = MemoryBackend()
    service = leading(store, [A, B])
    service.begin_leadership(PARTITION, 3, "leader-3", leader_log(12, (1, 0)), 0)
    with pytest.raises(DeposedLeaderError, match="by the leader of epoch 1, and that of epoch 3"):
        service.move_log_start(PARTITION, 1, 20, 0)
    assert stored(store).log_start_offset == 0
    assert service.move_log_start(PARTITION, 3, 5, 0).log_start_offset == 5


# -- retention


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "expected"),
    [
        (-1, -1, NO_OFFSET),
        (1000, 10**6, NO_OFFSET),
        # Ages at 130: 80, 100 and 60 ms.
        (80, -1, NO_OFFSET),
        (79, -1, 20),
        (99, -1, NO_OFFSET),  # the oldest segment stays, and so the next one does
        (59, -1, 30),
        # 300 bytes here, and 50 in files above.
        (-1, 251, NO_OFFSET),
        (-1, 250, 10),
        (-1, 150, 20),
        (-1, 0, 30),
        # Either limit is enough for a segment.
        (79, 150, 20),
        (59, 250, 30),
        (1000, 250, 10),
    ],
)
def test_retention_counts_both_tiers(
    retention_ms: int, retention_bytes: int, expected: int
) -> None:
    store = MemoryBackend()
    service = leading(store, [A, B, C])
    found = service.retained_from(
        PARTITION,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        local_bytes_above=50,
        now_ms=130,
    )
    assert found == expected
    assert live(store) == ids([A, B, C])  # the caller moves the log start
    if expected != NO_OFFSET:
        assert service.move_log_start(PARTITION, 1, expected, 0).log_start_offset == expected
        assert live(store) == ids([A, B, C])[expected // 10 :]


def test_retention_of_a_log_without_segments() -> None:
    found = leading(MemoryBackend()).retained_from(
        PARTITION, retention_ms=0, retention_bytes=0, local_bytes_above=50, now_ms=130
    )
    assert found == NO_OFFSET


# -- garbage


def with_garbage(store: StorageBackend, now_ms: int = 0) -> RemoteLogService:
    """A and B are garbage, C is live."""
    service = leading(store, [A, B, C])
    put_objects(store, A, B, C)
    service.move_log_start(PARTITION, 1, 20, now_ms)
    return service


def test_objects_are_deleted_after_the_delay_only() -> None:
    store = MemoryBackend()
    service = leading(store, [A, B, C])
    put_objects(store, A, B, C)
    service.move_log_start(PARTITION, 1, 10, 1000)
    service.move_log_start(PARTITION, 1, 20, 1500)
    assert service.collect_garbage(PARTITION, HOUR_MS, 999 + HOUR_MS).segments == 0
    assert store.list(SEGMENTS) == object_names(A, B, C)
    assert service.collect_garbage(PARTITION, HOUR_MS, 1000 + HOUR_MS).segments == 1
    assert store.list(SEGMENTS) == object_names(B, C)
    assert stored(store).garbage_ids == (B.segment_id,)
    assert service.collect_garbage(PARTITION, HOUR_MS, 9 * HOUR_MS).segments == 1
    assert store.list(SEGMENTS) == object_names(C)
    assert (live(store), stored(store).garbage_ids) == ([C.segment_id], ())
    version = stored(store).version
    assert service.collect_garbage(PARTITION, 0, DAY_MS).segments == 0
    assert stored(store).version == version


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("worked", range(4))
def test_a_deletion_that_fails_half_way_is_repeated(worked: int, after: bool) -> None:
    store = MemoryBackend()
    service = with_garbage(store)
    path = sorted(object_names(A, B), key=lambda name: (name[:20], "indexes" in name))[worked]
    store.faults.fail_next(operation="delete", under=path, after=after)
    with pytest.raises(StorageError):
        service.collect_garbage(PARTITION, 0, 0)
    assert stored(store).garbage_ids == tuple(ids([A, B]))
    assert len(store.list(SEGMENTS)) == 6 - worked - after
    assert service.collect_garbage(PARTITION, 0, 0).segments == 2
    assert store.list(SEGMENTS) == object_names(C)
    assert stored(store).garbage_ids == ()


@pytest.mark.parametrize("failures", [("after", "before"), ("late", "late"), ("before", "before")])
def test_a_collection_whose_answer_was_lost_is_repeated(failures: tuple[Failure, ...]) -> None:
    store = ScriptedStore()
    service = with_garbage(store)
    store.fail(*failures)
    with pytest.raises(StorageError):
        service.collect_garbage(PARTITION, 0, 0)
    land_before_the_next_put(store)
    service.collect_garbage(PARTITION, 0, 0)
    assert (store.list(SEGMENTS), stored(store).garbage_ids) == (object_names(C), ())


def test_one_call_deletes_so_many_segments_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert GARBAGE_SEGMENTS_MAX == 1000
    monkeypatch.setattr("sparklog.remote_log.garbage.GARBAGE_SEGMENTS_MAX", 1)
    store = MemoryBackend()
    service = with_garbage(store)
    assert [service.collect_garbage(PARTITION, 0, 0).segments for _ in range(3)] == [1, 1, 0]
    assert store.list(SEGMENTS) == object_names(C)


def test_garbage_of_an_old_leader_is_collected_by_the_new_one() -> None:
    store = MemoryBackend()
    with_garbage(store, now_ms=1000)
    new = service_of(store)
    new.begin_leadership(PARTITION, 2, "n", leader_log(30, (1, 20), start=20), 0)
    assert new.collect_garbage(PARTITION, HOUR_MS, HOUR_MS).segments == 0
    assert new.collect_garbage(PARTITION, HOUR_MS, 1000 + HOUR_MS).segments == 2
    assert store.list(SEGMENTS) == object_names(C)


# -- who may change


CHANGES: dict[str, Callable[[RemoteLogService], object]] = {
    "add": lambda service: service.add_segment(PARTITION, copied(30, 40), 0),
    "move": lambda service: service.move_log_start(PARTITION, 1, 25, 0),
    "collect": lambda service: service.collect_garbage(PARTITION, 0, 0),
    "sweep": lambda service: service.sweep_orphans(PARTITION, DAY_MS, DAY_MS),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_deposed_leader_changes_nothing(change: str) -> None:
    store = MemoryBackend()
    old = with_garbage(store)
    new = service_of(store)
    new.begin_leadership(PARTITION, 2, "n", leader_log(45, (1, 20), start=20), 0)
    orphan = copied(0, 10, copy=9)
    put_objects(store, orphan)
    before = stored(store).encoded_snapshot()
    for _ in range(2):
        with pytest.raises(DeposedLeaderError):
            CHANGES[change](old)
        assert stored(store).encoded_snapshot() == before
        assert set(store.list(SEGMENTS)) >= {*object_names(C, orphan)}


@pytest.mark.parametrize("change", CHANGES)
def test_a_process_in_which_no_leader_has_begun_changes_nothing(change: str) -> None:
    store = MemoryBackend()
    leader = with_garbage(store)
    before = stored(store).encoded_snapshot()
    other = service_of(store)
    assert other.state(PARTITION).end_offset == 30
    leader.forget(PARTITION)
    for service in (other, leader):
        with pytest.raises(NotLeadingError):
            CHANGES[change](service)
    assert stored(store).encoded_snapshot() == before
    assert store.list(SEGMENTS) == object_names(A, B, C)


def test_the_locks_of_partitions_are_separate() -> None:
    store = MemoryBackend()
    service = leading(store, [A])
    other = RemotePartition(PARTITION.topic_id, 1)
    service.begin_leadership(other, 1, "n", leader_log(0), 0)
    assert service.state(other).end_offset == NO_OFFSET
    assert service.state(PARTITION).end_offset == 10
