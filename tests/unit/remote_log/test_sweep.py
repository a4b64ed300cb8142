"""What nothing refers to is deleted, and nothing else."""

import os
from pathlib import Path
from uuid import UUID

import pytest

from sparklog.errors import StorageError
from sparklog.remote_log import names
from sparklog.remote_log.service import SweptOrphans, SweptTopic
from sparklog.remote_log.sweep import find_orphans, sweep_topic
from sparklog.storage_backends.base import TEMPORARY_PREFIX, FileHalf, StorageBackend
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.registry import open_backend
from tests.unit.remote_log.segments import commit, manifest_of
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
)

A, B = copied(0, 10), copied(10, 20)
KNOWN, GONE, OTHER = UUID(int=5), UUID(int=6), UUID(int=7)


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileHalf:
    return MemoryBackend() if request.param == "memory" else LocalBackend(tmp_path / "bucket")


# -- orphans of a partition


def test_the_orphans_among_the_names_of_a_folder() -> None:
    manifest = manifest_of(A, B, log_start=0)
    commit(manifest, manifest.move_log_start(10, 0))
    old, young = copied(10, 20, copy=1), copied(10, 20, copy=2, copied_ms=8)
    ours = object_names(A, B, old, young)
    strange = [old.segment_id, f"{old.segment_id}.txt", f"{old.segment_id}.log.gz", "x.log", ""]
    assert find_orphans([*ours, *strange], manifest, 7) == (object_names(old), len(strange))
    assert find_orphans(ours, manifest, 8) == (object_names(old, young), 0)


def test_only_orphans_of_some_age_are_deleted(store: FileHalf) -> None:
    service = leading(store, [A, B])
    service.move_log_start(PARTITION, 1, 10, 0)
    old, young = copied(20, 30, copy=1), copied(20, 30, copy=2, copied_ms=1)
    half = copied(20, 30, copy=3)
    put_objects(store, A, B, old, young)
    store.put(f"{SEGMENTS}/{half.segment_id}.log", b"x")
    store.put(f"{SEGMENTS}/notes.txt", b"x")
    assert service.sweep_orphans(PARTITION, DAY_MS - 1, DAY_MS) == SweptOrphans(0, 1)
    assert service.sweep_orphans(PARTITION, DAY_MS, DAY_MS) == SweptOrphans(3, 1)
    assert store.list(SEGMENTS) == [*object_names(A, B, young), "notes.txt"]
    assert service.sweep_orphans(PARTITION, 3 * DAY_MS, DAY_MS) == SweptOrphans(2, 1)
    assert service.sweep_orphans(PARTITION, 3 * DAY_MS, DAY_MS) == SweptOrphans(0, 1)


def test_a_sweep_that_fails_half_way_goes_on_later() -> None:
    store = MemoryBackend()
    service = leading(store, [A])
    orphans = [copied(10, 20, copy=each) for each in (1, 2)]
    put_objects(store, A, *orphans)
    store.faults.fail_next(operation="delete", under=orphans[1].segment_id)
    with pytest.raises(StorageError):
        service.sweep_orphans(PARTITION, DAY_MS, DAY_MS)
    assert service.sweep_orphans(PARTITION, DAY_MS, DAY_MS) == SweptOrphans(2, 0)
    assert store.list(SEGMENTS) == object_names(A)


def test_a_sweep_reads_what_the_leader_has_written_elsewhere() -> None:
    """A former process of the same leader has added a segment whose answer was lost."""
    store = MemoryBackend()
    former = leading(store, [A])
    log = leader_log(40, (1, 0))
    service = service_of(store)
    service.begin_leadership(PARTITION, 1, "leader-1", log, 0)
    former.add_segment(PARTITION, B, 0)
    put_objects(store, A, B)
    assert service.sweep_orphans(PARTITION, DAY_MS, DAY_MS) == SweptOrphans(0, 0)
    assert store.list(SEGMENTS) == object_names(A, B)


def test_unfinished_uploads_to_a_folder_go_a_day_after_the_last_write(tmp_path: Path) -> None:
    store = LocalBackend(tmp_path)
    service = leading(store, [A])
    put_objects(store, A)
    uploads = [tmp_path / SEGMENTS / f"{TEMPORARY_PREFIX}{number}" for number in (1, 2)]
    for number, upload in enumerate(uploads):
        upload.write_bytes(b"x")
        os.utime(upload, (0, HOUR_MS / 1000 * number))
    assert service.sweep_orphans(PARTITION, DAY_MS - 1, DAY_MS) == SweptOrphans(0, 0)
    assert service.sweep_orphans(PARTITION, DAY_MS, DAY_MS) == SweptOrphans(1, 0)
    assert [upload.exists() for upload in uploads] == [False, True]
    assert service.sweep_orphans(PARTITION, DAY_MS + HOUR_MS, DAY_MS) == SweptOrphans(1, 0)
    assert store.list(SEGMENTS) == object_names(A)
    assert not uploads[1].exists()


# -- topics


def put_topic(store: StorageBackend, topic_id: UUID) -> None:
    """A topic with two partitions, in three files each."""
    for partition in (0, 12):
        folder = names.segments_folder(topic_id, partition)
        for path in names.objects(folder, A.segment_id):
            store.put(path, b"x")
        store.put(f"{names.manifest_folder(topic_id, partition)}/{1:020d}.json", b"{}")


def files_of(store: FileHalf, folder: str) -> list[str]:
    """All files below a folder."""
    found: list[str] = []
    for name in store.list(folder):
        path = f"{folder}/{name}" if folder else name
        found += files_of(store, path) if store.is_folder(path) else [path]
    return found


def sweep_until_finished(store: StorageBackend, topic_id: UUID, objects_max: int = 4) -> int:
    """Sweep a topic; return how many objects went."""
    objects = 0
    while True:
        swept = sweep_topic(store, topic_id, objects_max)
        assert swept.objects <= objects_max
        objects += swept.objects
        if swept.is_finished:
            return objects


def test_a_deleted_topic_goes_and_others_stay(store: FileHalf) -> None:
    for each in (KNOWN, GONE):
        put_topic(store, each)
    store.put("cluster.json", b"{}")
    store.put("not-a-topic/file", b"x")
    others = [path for path in files_of(store, "") if str(GONE) not in path]
    service = service_of(store)
    assert service.sweep_topic(GONE, 100) == SweptTopic(6, is_finished=True)
    assert files_of(store, "") == others
    assert not store.exists(str(GONE))
    assert service.sweep_topic(GONE, 100) == SweptTopic(0, is_finished=True)
    assert files_of(store, "") == others


@pytest.mark.parametrize("objects_max", [1, 2, 3, 4, 13, 14, 1000])
def test_a_topic_goes_in_parts_of_bounded_size(store: FileHalf, objects_max: int) -> None:
    put_topic(store, GONE)
    store.put(names.lost_file(GONE, 12), b"{}")
    assert sweep_until_finished(store, GONE, objects_max) == 7
    assert not store.exists(str(GONE))


def test_topics_that_are_not_known_are_told_and_stay(store: FileHalf) -> None:
    for each in (KNOWN, GONE, OTHER):
        put_topic(store, each)
    store.put("cluster.json", b"{}")
    store.put("not-a-topic/file", b"x")
    before = files_of(store, "")
    assert service_of(store).unknown_topics({KNOWN}) == [GONE, OTHER]
    assert files_of(store, "") == before


def test_nothing_is_deleted_after_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    """Someone has put an old copy of the manifest into the bucket.

    The leader's files begin above it, and the objects between may be all that is left.
    """
    store = MemoryBackend()
    leading(store, [A])
    service = service_of(store)
    service.begin_leadership(PARTITION, 1, "leader-1", leader_log(40, (1, 0), local=30), 0)
    path = names.lost_file(*PARTITION)
    assert store.read(path) == b'{"from": 0, "to": 30}'
    assert f"until you delete {store.url}/{path}" in caplog.text
    put_objects(store, A, B)
    for _ in range(2):
        assert service.sweep_orphans(PARTITION, 9 * DAY_MS, DAY_MS) == SweptOrphans(0, 0)
        assert service.collect_garbage(PARTITION, HOUR_MS, 9 * DAY_MS).segments == 0
        assert store.list(SEGMENTS) == object_names(A, B)
        service.begin_leadership(PARTITION, 2, "leader-2", leader_log(50, (1, 0), local=30), 0)
    store.delete(path)
    assert service.collect_garbage(PARTITION, HOUR_MS, 9 * DAY_MS).segments == 1
    assert service.sweep_orphans(PARTITION, 9 * DAY_MS, DAY_MS) == SweptOrphans(2, 0)
    assert store.list(SEGMENTS) == []


def test_names_that_are_not_ours_stay_in_the_folder_of_a_topic(store: FileHalf) -> None:
    put_topic(store, GONE)
    strange = [
        f"{GONE}/00/segments/a",
        f"{GONE}/0/other",
        f"{GONE}/0/segments/notes.txt",
        f"{GONE}/12/manifest/notes.txt",
        f"{GONE}/notes.txt",
    ]
    for path in strange:
        store.put(path, b"x")
    assert sweep_until_finished(store, GONE) == 6
    assert files_of(store, "") == sorted(strange)


@pytest.mark.parametrize("worked", range(6))
def test_a_deletion_of_a_topic_that_fails_half_way_goes_on(worked: int) -> None:
    store = MemoryBackend()
    put_topic(store, GONE)
    put_topic(store, OTHER)
    store.faults.fail_next(operation="delete", under=files_of(store, str(GONE))[worked])
    with pytest.raises(StorageError):
        sweep_until_finished(store, GONE)
    sweep_until_finished(store, GONE)
    assert not store.exists(str(GONE))
    assert len(files_of(store, "")) == 6


def test_leftovers_in_the_folders_of_a_deleted_topic_go_with_it(tmp_path: Path) -> None:
    store = LocalBackend(tmp_path)
    put_topic(store, GONE)
    (tmp_path / names.segments_folder(GONE, 0) / f"{TEMPORARY_PREFIX}1").write_bytes(b"x")
    assert sweep_until_finished(store, GONE) == 6
    assert list(tmp_path.iterdir()) == []


def test_a_store_without_folders_keeps_nothing_of_a_topic() -> None:
    store = open_backend("fsspec+memory://swept-topics")
    assert not isinstance(store, FileHalf)
    put_topic(store, GONE)
    assert sweep_until_finished(store, GONE) == 6
    assert store.list("") == []
