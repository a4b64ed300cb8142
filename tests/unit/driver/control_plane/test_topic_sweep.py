"""The end of deleted topics in the remote_dir: which topics the store is told of, and when."""

import asyncio
from uuid import UUID

import pytest

from sparklog.driver.control_plane import topic_sweep
from sparklog.driver.control_plane.controller import RemoteDeletesFinished
from sparklog.driver.control_plane.topic_sweep import DELETED_MS, TopicSweep
from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.metadata import (
    ClusterImage,
    RemoteDeleteFinished,
    RemoteDeleteMarked,
    TopicCreated,
)
from sparklog.remote_log import names
from sparklog.remote_log.service import RemoteLogService
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_disk import forget_disk, named_disk
from sparklog.storage_backends.registry import open_file_half
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.unit.driver.control_plane.control_plane_fakes import UnderTest, run

OLD, NEW = UUID(int=1), UUID(int=2)


def put_topic(store: MemoryBackend, topic_id: UUID) -> str:
    path = f"{names.manifest_folder(topic_id, 0)}/{1:020d}.json"
    store.put(path, b"{}")
    return path


class Rig:
    """A sweep of a store of two topics, of which one was deleted."""

    def __init__(self) -> None:
        self.store = MemoryBackend()
        self.store.put(names.CLUSTER_FILE, b'{"cluster_id": "ours"}')
        self.paths = {each: put_topic(self.store, each) for each in (OLD, NEW)}
        self.image = ClusterImage(cluster_id="ours")
        self.image.replay(RemoteDeleteMarked(topic_id=OLD, time_ms=7))
        self.image.replay(TopicCreated(topic="new", topic_id=NEW, partitions=()))
        self.now_ms = 0
        self.refusal: KafkaError | None = None
        self.sweep = TopicSweep(
            lambda: RemoteLogService(self.store, open_file_half),
            lambda: self.image,
            self.confirm,
            self.decide,
            lambda: self.now_ms,
        )

    async def confirm(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def decide(self, event: RemoteDeletesFinished) -> None:
        for topic_id in event.topic_ids:
            self.image.replay(RemoteDeleteFinished(topic_id=topic_id))

    def sweep_at(self, now_ms: int) -> set[UUID]:
        """Sweep; return the topics that are left."""
        self.now_ms = now_ms
        asyncio.run(self.sweep.sweep())
        return {each for each, path in self.paths.items() if self.store.exists(path)}


def test_a_deleted_topic_goes_a_day_later() -> None:
    rig = Rig()
    assert rig.sweep_at(6 + DELETED_MS) == {OLD, NEW}
    assert rig.image.remote_deletes == {OLD: 7}
    assert rig.sweep_at(7 + DELETED_MS) == {NEW}
    assert rig.image.remote_deletes == {}
    assert rig.sweep.status() == {"remote_topics_deleted": 1, "remote_topics_unknown": 0}


def test_a_topic_that_the_journal_does_not_know_stays(caplog: pytest.LogCaptureFixture) -> None:
    """The journal is an old copy, or was repaired."""
    rig = Rig()
    rig.image = ClusterImage(cluster_id="ours")
    for now_ms in (0, DELETED_MS, 9 * DELETED_MS):
        assert rig.sweep_at(now_ms) == {OLD, NEW}
    assert rig.sweep.status() == {"remote_topics_deleted": 0, "remote_topics_unknown": 2}
    [told] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told.startswith("the remote_dir has topics that the journal does not know; they are")
    assert told.endswith(f": {OLD}, {NEW}")


def test_a_controller_that_was_replaced_deletes_nothing() -> None:
    """The journal may have been repaired, and have the topic again."""
    rig = Rig()
    rig.refusal = KafkaError(ErrorCode.NOT_CONTROLLER, "another one has taken over")
    with pytest.raises(KafkaError):
        rig.sweep_at(9 * DELETED_MS)
    assert all(map(rig.store.exists, rig.paths.values()))


def test_a_long_deletion_ends_with_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_sweep, "OBJECTS_AT_ONCE", 1)
    rig = Rig()
    paths = [f"{names.manifest_folder(OLD, 0)}/{number:020d}.json" for number in range(2, 5)]
    for path in paths:
        rig.store.put(path, b"{}")
    confirmed = 0

    async def confirm() -> None:
        nonlocal confirmed
        confirmed += 1
        if confirmed == 4:  # the first one is that of the sweep
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "another one has taken over")

    rig.sweep._confirm_leadership = confirm
    with pytest.raises(KafkaError):
        rig.sweep_at(9 * DELETED_MS)
    assert [rig.store.exists(path) for path in paths] == [False, True, True]


def test_a_bucket_of_another_cluster_is_left_alone() -> None:
    rig = Rig()
    rig.store.put(names.CLUSTER_FILE, b'{"cluster_id": "theirs"}')
    with pytest.raises(StorageError, match="it belongs to cluster theirs now, not to ours"):
        rig.sweep_at(9 * DELETED_MS)
    assert all(map(rig.store.exists, rig.paths.values()))


def test_a_topic_that_cannot_be_deleted_does_not_keep_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    rig.image = ClusterImage(cluster_id="ours")
    for each in (OLD, NEW):
        rig.image.replay(RemoteDeleteMarked(topic_id=each, time_ms=0))
    rig.store.faults.fail_next(operation="delete", under=rig.paths[OLD])
    assert rig.sweep_at(DELETED_MS) == {OLD}
    assert rig.image.remote_deletes == {OLD: 0}
    assert f"the deleted topic {OLD} stays in the remote_dir for now" in caplog.text
    assert rig.sweep_at(DELETED_MS) == set()


def test_a_control_plane_sweeps_its_remote_dir(request: pytest.FixtureRequest) -> None:
    name = f"bucket-of-{request.node.name}"
    store = MemoryBackend(named_disk(name), "log")
    tiered = CreatableTopicConfig(name="remote.storage.enable", value="true")

    async def story(under_test: UnderTest) -> None:
        await under_test.register()
        for topic, configs in (("tiered", (tiered,)), ("local", ())):
            created = CreatableTopic(
                name=topic, num_partitions=1, replication_factor=1, configs=configs
            )
            await under_test.ask(CreateTopicsRequest(topics=(created,)))
        wanted = tuple(DeleteTopicState(name=each) for each in ("tiered", "local"))
        answer = await under_test.ask(DeleteTopicsRequest(topics=wanted))
        control_plane = under_test.control_plane
        [(deleted, time_ms)] = control_plane.image.remote_deletes.items()
        assert deleted == answer.responses[0].topic_id
        put_topic(store, OLD)
        put_topic(store, deleted)
        sweep = control_plane._topic_sweep
        assert sweep is not None
        await sweep.sweep()
        assert str(deleted) in store.list("")
        sweep._wall_ms = lambda: time_ms + DELETED_MS
        await sweep.sweep()
        assert control_plane.image.remote_deletes == {}
        assert store.list("") == [str(OLD), names.CLUSTER_FILE]
        told = control_plane.status()
        assert (told["remote_topics_deleted"], told["remote_topics_unknown"]) == (1, 1)

    try:
        run(request, story, remote_dir=f"memory://{name}/log")
    finally:
        forget_disk(name)
