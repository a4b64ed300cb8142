"""A shared folder that is not mounted for a while: its mount point is an empty folder then.

What is written below the mount point is gone from sight once the folder is mounted again.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.errors import StorageError
from sparklog.remote_log import names
from sparklog.remote_log.manifest_log import ManifestError
from sparklog.remote_log.remote_segment import RemoteSegment
from sparklog.remote_log.service import RemoteLogState
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from tests.unit.executors.log.log_fixtures import Desk
from tests.unit.remote_log.remote_fixtures import RichLog, fill
from tests.unit.remote_log.service_fixtures import (
    PARTITION,
    SEGMENTS,
    copied,
    leader_log,
    leading,
    service_of,
    stored,
)

A, B, C = copied(0, 10), copied(10, 20), copied(20, 30)


class SharedFolder:
    """A folder with the leader of epoch 1, which has added a segment."""

    def __init__(self, root: Path) -> None:
        self._point, self._away, self._below = root / "shared", root / "away", root / "below"
        self.store = LocalBackend(self._point)
        self.desk = Desk()
        self.service = service_of(self.store, self.desk.half)
        self.service.owner.claim("ours")
        self.service.owner.check("ours")
        self.begin()
        self.add(A)

    def begin(self) -> RemoteLogState:
        log = leader_log(100, (1, 0))
        return self.service.begin_leadership(PARTITION, 1, "leader-1", log, 0)

    def add(self, segment: RemoteSegment) -> RemoteLogState:
        return self.service.add_segment(PARTITION, segment, 0)

    def unmount(self) -> None:
        os.rename(self._point, self._away)
        self._point.mkdir()

    def mount(self) -> None:
        os.rename(self._point, self._below)
        os.rename(self._away, self._point)

    def live(self) -> list[str]:
        return [each.segment_id for each in stored(self.store).segments()]


@pytest.fixture
def shared(tmp_path: Path) -> SharedFolder:
    return SharedFolder(tmp_path)


def is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(StorageError, match=r"belongs to no cluster.*is it mounted"):
        call()


def test_no_segment_is_added_below_a_mount_point(shared: SharedFolder) -> None:
    """The commit lies below the mount point already when the leader notices."""
    shared.unmount()
    is_refused(lambda: shared.add(B))
    assert shared.store.list(names.manifest_folder(*PARTITION)) != []
    for _ in range(3):
        is_refused(shared.begin)
        is_refused(lambda: shared.add(C))
        is_refused(lambda: shared.service.state(PARTITION))
    shared.mount()
    assert shared.begin().end_offset == 10
    assert shared.add(B).end_offset == 20
    assert shared.live() == [A.segment_id, B.segment_id]


def test_no_segment_is_copied_below_a_mount_point(shared: SharedFolder) -> None:
    rich = RichLog(desk=shared.desk)
    fill(rich)
    job = rich.job(rich.seal()[0], folder=SEGMENTS)
    shared.unmount()
    is_refused(lambda: shared.service.copy(job))
    assert shared.store.list("") == []
    shared.mount()
    shared.service.copy(job)


def test_a_leader_goes_on_once_the_folder_is_mounted_again(shared: SharedFolder) -> None:
    shared.unmount()
    is_refused(lambda: shared.service.state(PARTITION))
    is_refused(lambda: shared.service.read(PARTITION, 50, 1, with_aborted=False))
    shared.mount()
    assert shared.add(B).end_offset == 20


def test_a_process_that_has_not_read_the_manifest_does_not_take_the_log_for_empty(
    shared: SharedFolder,
) -> None:
    reader = service_of(shared.store)
    reader.owner.check("ours")
    shared.unmount()
    for call in (
        lambda: reader.read(PARTITION, 0, 1, with_aborted=False),
        lambda: reader.find_timestamp(PARTITION, 0, 0),
        lambda: reader.follower_state(PARTITION, 10),
    ):
        is_refused(call)
    shared.mount()
    assert reader.state(PARTITION).end_offset == 10


def test_an_old_copy_of_the_store_deposes_nobody() -> None:
    """A leader that finds an older leader's manifest may go on when its own is back, or begin."""
    store = MemoryBackend()
    leading(store, [A])
    folder = names.manifest_folder(*PARTITION)
    old = {name: store.read(f"{folder}/{name}") for name in store.list(folder)}
    service = service_of(store)
    log = leader_log(100, (1, 0))
    service.begin_leadership(PARTITION, 2, "leader-2", log, 0)
    service.add_segment(PARTITION, copied(10, 20, by=2), 0)
    new = {name: store.read(f"{folder}/{name}") for name in store.list(folder)}
    put_back(store, old)
    assert service.state(PARTITION).end_offset == 10
    for _ in range(2):
        with pytest.raises(StorageError, match="is of leader epoch 1, and lacks the commits of"):
            service.move_log_start(PARTITION, 2, 5, 0)
    put_back(store, new)
    assert service.move_log_start(PARTITION, 2, 5, 0).end_offset == 20
    put_back(store, old)
    assert service.begin_leadership(PARTITION, 2, "leader-2", log, 0).end_offset == 10


def put_back(store: MemoryBackend, files: dict[str, bytes]) -> None:
    folder = names.manifest_folder(*PARTITION)
    for name in store.list(folder):
        store.delete(f"{folder}/{name}")
    for name, data in files.items():
        store.put(f"{folder}/{name}", data)


def test_commits_before_an_error_are_not_believed() -> None:
    """Behind a gap, they may be those of another store."""
    store = MemoryBackend()
    service = leading(store, [A])
    known = stored(store).version
    leading_again = service_of(store)
    leading_again.begin_leadership(PARTITION, 2, "leader-2", leader_log(100, (1, 0)), 0)
    store.delete(f"{names.manifest_folder(*PARTITION)}/{known:020d}.json")
    for _ in range(2):
        with pytest.raises(ManifestError, match="is missing although"):
            service.state(PARTITION)
        with pytest.raises(ManifestError, match="is missing although"):
            service.add_segment(PARTITION, B, 0)
