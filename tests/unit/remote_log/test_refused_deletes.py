"""Objects that the store refuses to delete hinder nothing else, and no manifest forgets them."""

import errno

import pytest

from sparklog.errors import StorageError
from sparklog.remote_log import garbage, names
from sparklog.remote_log.garbage import REFUSED_REST_MS, CollectedGarbage
from sparklog.remote_log.remote_segment import RemoteSegment
from sparklog.remote_log.service import RemoteLogService, SweptOrphans
from sparklog.remote_log.sweep import sweep_topic
from sparklog.storage_backends.base import RefusedDeletesError, storage_error
from sparklog.storage_backends.memory import MemoryBackend
from tests.unit.remote_log.segments import ids
from tests.unit.remote_log.service_fixtures import (
    DAY_MS,
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
from tests.unit.remote_log.test_sweep import GONE, sweep_until_finished

#: The last one stays in the log.
A, B, C, D = (copied(at, at + 10) for at in (0, 10, 20, 30))


def refusing(*refused: str) -> MemoryBackend:
    """A store that refuses to delete files whose paths contain one of these texts."""
    store = MemoryBackend()
    refuse(store, *refused)
    return store


def refuse(store: MemoryBackend, *refused: str) -> None:
    def slow(operation: str, where: str) -> None:
        if operation == "delete" and any(each in where for each in refused):
            raise storage_error("delete", where, OSError(errno.EACCES, ""))

    store.faults.slow = slow


def with_garbage(store: MemoryBackend) -> RemoteLogService:
    """A, B and C are garbage, D is live."""
    service = leading(store, [A, B, C, D])
    put_objects(store, A, B, C, D)
    service.move_log_start(PARTITION, 1, 30, 0)
    return service


def refused_text(store: MemoryBackend, segment: RemoteSegment, suffix: str = ".log") -> str:
    path = f"{store.url}/{SEGMENTS}/{segment.segment_id}{suffix}"
    return (
        f"cannot delete {path}: permission denied; give this user access or choose another folder"
    )


@pytest.mark.parametrize("suffix", [".log", ".indexes"])
def test_the_garbage_behind_a_refused_object_goes(suffix: str) -> None:
    store = refusing(f"{A.segment_id}{suffix}")
    service = with_garbage(store)
    found = service.collect_garbage(PARTITION, 0, 0)
    assert found == CollectedGarbage(2, refused_text(store, A, suffix))
    assert store.list(SEGMENTS) == sorted([f"{A.segment_id}{suffix}", *object_names(D)])
    assert stored(store).garbage_ids == (A.segment_id,)
    assert ids(stored(store).segments()) == [D.segment_id]


def test_a_refused_segment_does_not_take_the_turn_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(garbage, "GARBAGE_SEGMENTS_MAX", 1)
    store = refusing(A.segment_id, B.segment_id)
    service = with_garbage(store)
    found = [service.collect_garbage(PARTITION, 0, at_ms) for at_ms in range(4)]
    more = " (and 1 more files were not deleted)"
    assert found == [
        CollectedGarbage(0, refused_text(store, A) + more),
        CollectedGarbage(0, refused_text(store, B) + more),
        CollectedGarbage(1),
        CollectedGarbage(0),
    ]
    assert stored(store).garbage_ids == (A.segment_id, B.segment_id)


def test_a_refused_segment_is_tried_again_after_a_rest() -> None:
    store = refusing(A.segment_id)
    service = with_garbage(store)
    assert service.collect_garbage(PARTITION, 0, 0).segments == 2
    refuse(store)
    assert service.collect_garbage(PARTITION, 0, REFUSED_REST_MS - 1) == CollectedGarbage(0)
    assert service.collect_garbage(PARTITION, 0, REFUSED_REST_MS) == CollectedGarbage(1)
    assert (store.list(SEGMENTS), stored(store).garbage_ids) == (object_names(D), ())


def test_a_clock_that_was_set_back_makes_no_rest_longer() -> None:
    store = refusing(A.segment_id)
    service = with_garbage(store)
    assert service.collect_garbage(PARTITION, 0, 9 * DAY_MS).segments == 2
    refuse(store)
    assert service.collect_garbage(PARTITION, 0, DAY_MS) == CollectedGarbage(1)


def test_a_new_leader_tries_at_once() -> None:
    store = refusing(A.segment_id)
    assert with_garbage(store).collect_garbage(PARTITION, 0, 0).segments == 2
    refuse(store)
    new = service_of(store)
    new.begin_leadership(PARTITION, 2, "leader-2", leader_log(40, (1, 30), start=30), 0)
    assert new.collect_garbage(PARTITION, 0, 0) == CollectedGarbage(1)


def test_a_store_that_is_away_refuses_nothing() -> None:
    """Nothing tells which objects are gone, and the same segments are tried at the next call."""
    store = MemoryBackend()
    service = with_garbage(store)
    store.faults.fail_next(operation="delete", under=A.segment_id, after=True)
    with pytest.raises(StorageError):
        service.collect_garbage(PARTITION, 0, 0)
    assert stored(store).garbage_ids == tuple(ids([A, B, C]))
    assert service.collect_garbage(PARTITION, 0, 0) == CollectedGarbage(3)
    assert store.list(SEGMENTS) == object_names(D)


def test_the_orphans_behind_a_refused_one_go() -> None:
    first, second = copied(10, 20, copy=1), copied(10, 20, copy=2)
    store = refusing(first.segment_id)
    service = leading(store, [A])
    put_objects(store, A, first, second)
    found = service.sweep_orphans(PARTITION, DAY_MS, DAY_MS)
    assert (found.deleted, found.unknown) == (2, 0)
    assert found.error.startswith("cannot delete ")
    assert first.segment_id in found.error
    assert store.list(SEGMENTS) == object_names(A, first)
    refuse(store)
    assert service.sweep_orphans(PARTITION, DAY_MS, DAY_MS) == SweptOrphans(2, 0)


def put_topic(store: MemoryBackend, partitions: int) -> list[str]:
    """A deleted topic with three files in each partition."""
    paths: list[str] = []
    for partition in range(partitions):
        paths.append(f"{names.manifest_folder(GONE, partition)}/{1:020d}.json")
        paths += names.objects(names.segments_folder(GONE, partition), A.segment_id)
    for path in paths:
        store.put(path, b"x")
    return paths


@pytest.mark.parametrize("objects_max", [3, 4, 100])
def test_everything_of_a_deleted_topic_goes_but_the_refused_objects(objects_max: int) -> None:
    store = MemoryBackend()
    paths = put_topic(store, 3)
    refused = [paths[1], paths[4]]
    refuse(store, *refused)
    with pytest.raises(RefusedDeletesError, match=refused[0]):
        sweep_until_finished(store, GONE, objects_max)
    assert [path for path in paths if store.exists(path)] == refused
    refuse(store)
    sweep_until_finished(store, GONE, objects_max)
    assert not store.exists(str(GONE))


def test_a_sweep_of_a_topic_tries_a_bounded_number_of_refused_objects() -> None:
    store = MemoryBackend()
    put_topic(store, 5)
    refuse(store, str(GONE))
    with pytest.raises(RefusedDeletesError, match=r"and 1 more files"):
        sweep_topic(store, GONE, 2)
