"""The end of deleted topics in the remote_dir: which topics the store is told of, and when."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.driver.control_plane.control_plane import ControlPlane
from sparklog.driver.control_plane.topic_sweep import UNKNOWN_MS, TopicSweep
from sparklog.errors import ErrorCode, KafkaError
from sparklog.remote_log import names
from sparklog.remote_log.service import RemoteLogService
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_disk import forget_disk, named_disk
from sparklog.storage_backends.registry import open_file_half
from tests.unit.driver.control_plane.control_plane_fakes import options_of

OLD, NEW = UUID(int=1), UUID(int=2)


def put_topic(store: MemoryBackend, topic_id: UUID) -> str:
    path = f"{names.manifest_folder(topic_id, 0)}/{1:020d}.json"
    store.put(path, b"{}")
    return path


class Rig:
    """A sweep of a store of two topics, of which one exists."""

    def __init__(self) -> None:
        self.store = MemoryBackend()
        self.paths = {each: put_topic(self.store, each) for each in (OLD, NEW)}
        self.topic_ids = {NEW}
        self.now_ms = 0
        self.refusal: KafkaError | None = None
        self.sweep = TopicSweep(
            lambda: RemoteLogService(self.store, open_file_half),
            lambda: self.topic_ids,
            self.confirm,
            lambda: self.now_ms,
        )

    async def confirm(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def sweep_at(self, now_ms: int) -> set[UUID]:
        """Sweep; return the topics that are left."""
        self.now_ms = now_ms
        asyncio.run(self.sweep.sweep())
        return {each for each, path in self.paths.items() if self.store.exists(path)}


def test_a_deleted_topic_goes_a_day_after_it_was_missed(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    assert rig.sweep_at(7) == {OLD, NEW}
    [told] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told.startswith("topics in the remote_dir that are not known any more: 1; if they were")
    assert rig.sweep_at(6 + UNKNOWN_MS) == {OLD, NEW}
    assert rig.sweep_at(7 + UNKNOWN_MS) == {NEW}
    assert rig.sweep.topics_deleted == 1


def test_a_controller_that_was_replaced_deletes_nothing() -> None:
    """It does not know the topics that its successor has created."""
    rig = Rig()
    rig.topic_ids = set()
    rig.sweep_at(0)
    rig.refusal = KafkaError(ErrorCode.NOT_CONTROLLER, "another one has taken over")
    with pytest.raises(KafkaError):
        rig.sweep_at(UNKNOWN_MS)
    assert all(map(rig.store.exists, rig.paths.values()))


def test_the_topics_are_those_from_before_the_confirmation() -> None:
    """While the journal is asked, a former controller may learn of its end and drop its image."""
    rig = Rig()

    async def confirm() -> None:
        rig.topic_ids = set()

    rig.sweep._confirm_leadership = confirm
    rig.sweep_at(0)
    rig.topic_ids = {NEW}
    assert rig.sweep_at(UNKNOWN_MS) == {NEW}


def test_a_control_plane_sweeps_its_remote_dir(request: pytest.FixtureRequest) -> None:
    name = f"bucket-of-{request.node.name}"
    store = MemoryBackend(named_disk(name), "log")
    options = options_of(request)
    settings = {**options.settings, "remote.dir": f"memory://{name}/log"}
    control_plane = ControlPlane(replace(options, settings=settings))

    async def life() -> None:
        await control_plane.start()
        running = asyncio.create_task(control_plane.run())
        put_topic(store, OLD)
        sweep = control_plane._topic_sweep
        assert sweep is not None
        await sweep.sweep()
        control_plane.stop("the test ends")
        await running

    try:
        asyncio.run(life())
        assert store.exists(names.tombstone_file(OLD))
        assert control_plane.status()["remote_topics_deleted"] == 0
    finally:
        forget_disk(name)
