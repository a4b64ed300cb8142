"""Elections of leaders whose log is not what the bucket had, and reads across them."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.broker import Broker
from sparklog.executors.partition import Partition
from sparklog.executors.tiering import remote_log_manager
from sparklog.executors.tiering.leadership import remote_partition
from sparklog.executors.tiering.metrics import TieringMetrics
from sparklog.executors.tiering.remote_fetches import RemoteFetches
from sparklog.executors.tiering.remote_process import InlineRemoteLogs
from sparklog.remote_log.reading import RemoteRead
from sparklog.remote_log.remote_segment import UNBOUNDED
from sparklog.remote_log.service import LeaderLog, RemoteLogService
from sparklog.storage_backends.registry import open_file_half
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparklog.wire.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from sparklog.wire.records.builder import Record, encode_batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client
from tests.unit.executors.tiering.test_leaving import held, manager_of
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered


def test_records_that_a_leader_below_the_log_start_acknowledges_stay() -> None:
    """The log had been deleted up to 12 when a replica that ends at 5 was elected uncleanly."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(5)
        partition = tiered.partition
        former = RemoteLogService(tiered.bucket, open_file_half)
        deleted = LeaderLog(
            log_start_offset=12, local_log_start_offset=12, log_end_offset=12, leader_epochs=()
        )
        former.begin_leadership(
            remote_partition(partition), partition.leader_epoch, "former", deleted, 0
        )
        await tiered.rig.crash_broker()
        await tiered.rig.start_broker(new=False)
        await until(lambda: tiered.leader is not None)
        await tiered.fill(4)  # acknowledged at 5 to 8
        await tiered.tier()
        assert tiered.partition.log.log_start_offset <= 5
        assert await tiered.read_all(5) == tiered.values[5:]

    run_tiered(test)


class _Remote:
    """A bucket whose records are those of the newest leader epoch."""

    def __init__(self) -> None:
        self.data = b""
        self.asked: dict[str, dict[str, Any]] = {}

    async def call(self, method: str, *args: Any, **kwargs: Any) -> list[RemoteRead]:
        self.asked[method] = kwargs
        return (
            []
            if method != "read_several"
            else [RemoteRead(self.data, args[1].start, args[1].start + 1)]
        )

    async def close(self) -> None:
        """Nothing."""


class _Partition:
    topic_id = None
    topic_partition = TopicPartition("t", 0)
    log = SimpleNamespace(local_log_start_offset=1, log_start_offset=0, generation=0)
    leader_epoch = 5


async def _read(fetches: RemoteFetches, partition: Any) -> bytes:
    while (found := fetches.read(partition, 0, 1000, with_aborted=False)) is None:
        await asyncio.sleep(0)
    return bytes(found.records.read())


def test_all_calls_say_the_leader_epoch_so_that_an_old_manifest_is_read_again() -> None:
    remote = _Remote()
    remote.data = _batch(b"old")
    partition: Any = _Partition()

    async def test() -> None:
        fetches = RemoteFetches(remote, lambda tp: None, TieringMetrics())
        await _read(fetches, partition)
        await fetches.find_timestamp(partition, 7)
        await fetches.signed_segments(partition, 0, 1, UNBOUNDED, seconds=60, count_max=9)
        epochs = {method: kwargs.get("leader_epoch") for method, kwargs in remote.asked.items()}
        assert epochs == dict.fromkeys(("read_several", "find_timestamp", "signed_segments"), 5)

    asyncio.run(test())


def test_a_read_that_was_kept_in_an_older_leader_epoch_is_made_anew() -> None:
    """After an unclean election other records may have these offsets."""
    remote = _Remote()
    partition = _Partition()

    async def test() -> None:
        fetches = RemoteFetches(remote, lambda tp: None, TieringMetrics())
        remote.data = _batch(b"old")
        assert await _read(fetches, partition) == remote.data
        partition.leader_epoch = 6
        remote.data = _batch(b"new")
        assert await _read(fetches, partition) == remote.data

    asyncio.run(test())


def _batch(value: bytes) -> bytes:
    return encode_batch([Record(value=value)], base_offset=0)


def test_a_leadership_that_ended_before_its_turn_does_not_take_the_manifest_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When its turn comes, the broker follows in the leader epoch of the next leader."""
    monkeypatch.setattr(remote_log_manager, "AT_ONCE", 1)

    async def test(tiered: TieredRig) -> None:
        await tiered.start(2)
        client = await tiered.client()
        await client.create_topic("u", replication_factor=2, remote_storage_enable="true")
        former, heir = tiered.rig.brokers[1], tiered.rig.brokers[2]
        for name in "tu":
            await _lead(client, name, former)
        with held(manager_of(former), "begin_leadership") as go_on:
            looking = asyncio.create_task(manager_of(former).look_after_all())
            await asyncio.sleep(0.01)  # one partition is looked after, and the other one waits
            for name in "tu":
                await _lead(client, name, heir)
                await until(partial(_follows, former, name))
            go_on.set()
            await looking
        await manager_of(heir).look_after_all()
        for name in "tu":
            assert manager_of(heir).remote_sizes(_partition(heir, name)) is not None, name

    run_tiered(test)


def test_a_leadership_that_ended_during_a_call_that_fails_makes_no_other_one() -> None:
    """The log may be truncated by then: what it has would cut the manifest."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start(2)
        client = await tiered.client()
        former, heir = tiered.rig.brokers[1], tiered.rig.brokers[2]
        await _lead(client, "t", former)
        log = _partition(former, "t").log
        await tiered.fill(20)
        await tiered.tier()
        assert log.local_log_start_offset > log.log_start_offset
        log.leader_epochs.clear()
        manager = manager_of(former)
        manager._led.clear()
        asked: list[str] = []
        real = manager._remote.call

        async def call(name: str, *args: Any, **kwargs: Any) -> Any:
            asked.append(name)
            if name == "follower_state":
                await _lead(client, "t", heir)
                await until(partial(_follows, former, "t"))
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "no segment")
            return await real(name, *args, **kwargs)

        remote: Any = manager._remote
        remote.call = call
        await manager.look_after_all()
        assert asked == ["follower_state"]

    run_tiered(test)


def test_a_manifest_is_forgotten_when_its_leadership_ends_and_when_its_topic_is_deleted() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(2)
        client = await tiered.client()
        former, heir = tiered.rig.brokers[1], tiered.rig.brokers[2]
        await _lead(client, "t", former)
        await tiered.fill(20)
        await tiered.tier()
        assert _open_manifests(former) == 1
        await _lead(client, "t", heir)
        await until(partial(_follows, former, "t"))
        await tiered.tier()
        assert (_open_manifests(former), _open_manifests(heir)) == (0, 1)
        assert await tiered.read_all() == tiered.values
        await _lead(client, "t", former)
        await until(partial(_follows, heir, "t"))
        await tiered.tier()
        assert (_open_manifests(former), _open_manifests(heir)) == (1, 0)
        assert await tiered.read_all() == tiered.values
        client = await tiered.client()
        await client.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),)))
        await until(lambda: tiered.partition_at(former) is None)
        assert _open_manifests(former) == 0

    run_tiered(test)


def _open_manifests(broker: Broker) -> int:
    remote = manager_of(broker)._remote
    assert isinstance(remote, InlineRemoteLogs)
    return 0 if remote._service is None else len(remote._service._manifests._opened)


def _partition(broker: Broker, topic: str) -> Partition:
    found = broker.replica_manager.get(TopicPartition(topic, 0))
    assert found is not None
    return found


def _follows(broker: Broker, topic: str) -> bool:
    return not _partition(broker, topic).is_leader


async def _lead(client: Client, topic: str, broker: Broker) -> None:
    """Make a broker the preferred leader, and elect it."""
    leader = broker.options.broker_id
    replicas = (leader, 3 - leader)
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    await client.ask(
        AlterPartitionReassignmentsRequest(
            topics=(ReassignableTopic(name=topic, partitions=(partition,)),)
        )
    )
    await client.ask(
        ElectLeadersRequest(topic_partitions=(TopicPartitions(topic=topic, partitions=(0,)),))
    )
    await until(lambda: _partition(broker, topic).is_leader)
