"""Topics that leave the bucket (KIP-950): what every replica has in files stays."""

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sparklog.cli.app import run as cli
from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.broker import Broker
from sparklog.executors.log import Log
from sparklog.executors.replica_manager import apply_local_retention, apply_retention
from sparklog.executors.tiering.remote_log_manager import RemoteLogManager
from sparklog.types import ResourceType
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparklog.wire.protocol.private_replicas import ReadLocalStartRequest
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import OWN_BUCKET, Rig, run
from tests.unit.executors.tiering.test_lost_everywhere import ELECT_UNCLEAN, wipe
from tests.unit.executors.tiering.test_tiering_settings import objects_of, set_topic
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered

OFF = {"remote_storage_enable": "false", "remote_log_delete_on_disable": "true"}
ON = {"remote_storage_enable": "true"}


def manager_of(broker: Broker) -> RemoteLogManager:
    assert broker.tiering is not None
    return broker.tiering.manager


def log_of(tiered: TieredRig, broker: Broker) -> Log:
    found = tiered.partition_at(broker)
    assert found is not None
    return found.log


def starts(tiered: TieredRig) -> set[tuple[int, int]]:
    """The log starts and local log starts of all replicas."""
    logs = [log_of(tiered, broker) for broker in tiered.rig.brokers.values()]
    return {(log.log_start_offset, log.local_log_start_offset) for log in logs}


async def apart(tiered: TieredRig) -> tuple[Broker, Broker]:
    """Two replicas whose files begin at different offsets; returns the leader and the follower."""
    await tiered.start(2, local_retention_bytes="6000")
    await tiered.fill(60)
    await tiered.tier()
    await set_topic(tiered, local_retention_bytes="2000")
    leader = tiered.leader
    assert leader is not None
    (follower,) = (each for each in tiered.rig.brokers.values() if each is not leader)
    await apply_local_retention(follower.replica_manager)
    own, others = log_of(tiered, leader), log_of(tiered, follower)
    assert 0 < own.local_log_start_offset < others.local_log_start_offset
    return leader, follower


async def look(tiered: TieredRig) -> None:
    """Let all brokers look after their tiered partitions, and followers hear of the log start."""
    await tiered.settle()
    for broker in tiered.rig.brokers.values():
        await manager_of(broker).look_after_all()
    start = tiered.partition.log.log_start_offset
    await until(lambda: {first for first, _ in starts(tiered)} == {start})


async def lead(tiered: TieredRig, broker: Broker) -> None:
    """Make a broker the leader, by a stop of the other one."""
    for other in list(tiered.rig.brokers.values()):
        if other is not broker:
            broker_id = other.options.broker_id
            await tiered.rig.stop_broker(broker_id)
            await until(lambda: tiered.leader is broker)
            await tiered.rig.start_broker(broker_id, new=False)
    await until(lambda: len(tiered.partition.state.isr) == 2)  # type: ignore[union-attr]


@contextmanager
def held(manager: RemoteLogManager, method: str) -> Iterator[asyncio.Event]:
    """Hold calls of one method of the remote log until the event is set."""
    remote: Any = manager._remote
    real, go_on = remote.call, asyncio.Event()

    async def call(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == method:
            await go_on.wait()
        return await real(name, *args, **kwargs)

    remote.call = call
    yield go_on
    remote.call = real


def test_the_log_starts_where_the_files_of_all_replicas_have_begun() -> None:
    async def test(tiered: TieredRig) -> None:
        _, follower = await apart(tiered)
        start = log_of(tiered, follower).local_log_start_offset
        objects = objects_of(tiered)
        await set_topic(tiered, **OFF)
        assert await tiered.read_all() == tiered.values
        await look(tiered)
        assert starts(tiered) == {(start, start)}
        assert await tiered.read_all(start) == tiered.values[start:]
        assert (await tiered.rig.status())["remote_segments"] == 0
        assert objects_of(tiered) == objects
        client = await tiered.client()
        await client.alter(ResourceType.BROKER, "", remote_object_delete_delay_ms="0")
        assert tiered.leader is not None
        settings = tiered.leader.replica_manager
        await until(lambda: settings.broker_config.remote_object_delete_delay_ms == 0)
        await look(tiered)
        assert objects_of(tiered) == []
        await lead(tiered, follower)
        await look(tiered)
        assert starts(tiered) == {(start, start)}
        assert await tiered.read_all(start) == tiered.values[start:]

    run_tiered(test)


def test_what_is_left_in_the_bucket_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """A broker that is away keeps the topic in the bucket, so an operator has to see that."""

    async def shown(tiered: TieredRig) -> tuple[int | None, ...]:
        servers = f"127.0.0.1:{tiered.rig.control.port}"
        command = ["topics", "describe", "t", "-b", servers, "--json"]
        assert await asyncio.to_thread(cli, command) == 0
        (row,) = json.loads(capsys.readouterr().out)["partitions"]
        return tuple(row[name] for name in ("earliest_local", "latest_tiered", "remote_bytes"))

    async def test(tiered: TieredRig) -> None:
        leader, follower = await apart(tiered)
        log = tiered.partition.log
        start = log.local_log_start_offset
        in_bucket = await shown(tiered)
        assert in_bucket[:2] == (start, log.tiered_end_offset - 1)
        await tiered.rig.stop_broker(follower.options.broker_id)
        await set_topic(tiered, **OFF)
        await manager_of(leader).look_after_all()
        assert await shown(tiered) == (start, None, in_bucket[2])
        await tiered.rig.start_broker(follower.options.broker_id, new=False)
        await look(tiered)
        left = log.local_log_start_offset
        assert left == log.log_start_offset > start
        assert await shown(tiered) == (left, None, 0)

    run_tiered(test)


def test_the_only_replica_waits_for_nobody() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(40)
        await tiered.tier()
        local_start = tiered.partition.log.local_log_start_offset
        assert local_start > 0
        await set_topic(tiered, **OFF)
        await look(tiered)
        assert starts(tiered) == {(local_start, local_start)}
        assert await tiered.read_all(local_start) == tiered.values[local_start:]

    run_tiered(test)


def test_a_topic_that_has_left_may_come_back() -> None:
    async def test(tiered: TieredRig) -> None:
        _, follower = await apart(tiered)
        start = log_of(tiered, follower).local_log_start_offset
        await set_topic(tiered, **OFF)
        await look(tiered)
        await set_topic(tiered, **ON, local_retention_bytes="0")
        await tiered.fill(20)
        await tiered.tier()
        await tiered.tier()  # followers learn what the leader has copied
        log = tiered.partition.log
        assert log.tiered_end_offset == log.segments[-1].base_offset
        assert log.log_start_offset == start
        assert starts(tiered) == {(start, log.segments[-1].base_offset)}
        assert await tiered.read_all(start) == tiered.values[start:]

    run_tiered(test)


def test_a_replica_that_is_down_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async def test(tiered: TieredRig) -> None:
        _, follower = await apart(tiered)
        start = log_of(tiered, follower).local_log_start_offset
        broker_id = follower.options.broker_id
        await tiered.rig.stop_broker(broker_id)
        await set_topic(tiered, **OFF)
        for _ in range(2):
            await look(tiered)
        assert await tiered.read_all() == tiered.values
        told = [r.getMessage() for r in caplog.records if "has told where its files" in r.message]
        assert len(told) == 1
        assert f"no answer from broker {broker_id} " in told[0]
        await tiered.rig.start_broker(broker_id, new=False)
        await look(tiered)
        assert starts(tiered) == {(start, start)}
        assert await tiered.read_all(start) == tiered.values[start:]

    caplog.set_level(logging.WARNING)
    run_tiered(test)


def test_what_is_in_the_bucket_counts_again_when_a_topic_does_not_leave_after_all() -> None:
    """Otherwise local retention frees nothing, and no replica begins from the bucket."""

    async def test(tiered: TieredRig) -> None:
        leader, follower = await apart(tiered)
        end = log_of(tiered, leader).tiered_end_offset
        await tiered.rig.stop_broker(follower.options.broker_id)
        await set_topic(tiered, **OFF)
        await look(tiered)
        assert log_of(tiered, leader).tiered_end_offset == 0
        await set_topic(tiered, **ON, remote_log_copy_disable="true", local_retention_bytes="-2")
        await look(tiered)
        assert log_of(tiered, leader).tiered_end_offset == end > 0
        assert await tiered.read_all() == tiered.values

    run_tiered(test)


def test_an_empty_log_of_a_topic_that_leaves_begins_behind_the_bucket() -> None:
    """Below, its offsets have been other records'."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(40)
        await tiered.tier()
        end = tiered.partition.log.tiered_end_offset
        await tiered.rig.start_broker(2)
        await tiered.rig.lose_power(1)
        await tiered.rig.report_broker_death(1)
        wipe(tiered, 1)
        await set_topic(tiered, **OFF)
        await tiered.rig.start_broker(1)
        client = await tiered.rig.client(2)
        await client.ask(ELECT_UNCLEAN)
        await until(lambda: tiered.leader is not None)
        log = tiered.partition.log
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (
            0,
            end,
            end,
        )
        await manager_of(tiered.rig.brokers[1]).look_after_all()
        assert (log.log_start_offset, log.local_log_start_offset) == (end, end)
        assert tiered.partition.log.log_end_offset == end

    run_tiered(test)


def test_a_topic_that_has_left_needs_no_remote_dir() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**ON)
        await client.alter(ResourceType.TOPIC, "t", **OFF)
        settings = {**rig.settings, "remote.dir": ""}
        for _ in range(2):
            await rig.crash_broker()
            await rig.start_broker(new=False, settings=settings)
            await rig.leads(1)
        answer = await (await rig.client()).produce("t", batch(b"x"), acks=-1)
        assert answer.error_code == 0

    run(test, remote_dir=OWN_BUCKET)


def test_a_follower_does_not_start_in_the_bucket_that_its_topic_leaves() -> None:
    async def test(tiered: TieredRig) -> None:
        leader, follower = await apart(tiered)
        broker_id = follower.options.broker_id
        await tiered.rig.stop_broker(broker_id)
        wipe(tiered, broker_id)
        await set_topic(tiered, **OFF)
        await tiered.rig.start_broker(broker_id, new=True)
        follower = tiered.rig.brokers[broker_id]
        await until(lambda: tiered.partition_at(follower) is not None)
        await asyncio.sleep(0.3)
        assert log_of(tiered, follower).log_end_offset == 0
        local_start = log_of(tiered, leader).local_log_start_offset
        await manager_of(leader).look_after_all()
        await until(lambda: log_of(tiered, follower).log_end_offset == 60)
        assert starts(tiered) == {(local_start, local_start)}

    run_tiered(test)


def test_nothing_in_the_bucket_counts_while_its_segments_are_being_removed() -> None:
    """The topic is tiered again during the removal, whose answer is lost."""

    async def test(tiered: TieredRig) -> None:
        leader, follower = await apart(tiered)
        start = log_of(tiered, follower).local_log_start_offset
        await set_topic(tiered, **OFF)
        manager = manager_of(leader)
        with held(manager, "remove_segments") as go_on:
            looking = asyncio.create_task(manager.look_after_all())
            await until(lambda: bool(manager._leaving._removing))
            await set_topic(tiered, **ON, local_retention_bytes="0")
            await manager_of(follower).look_after_all()
            for broker in (leader, follower):
                assert log_of(tiered, broker).tiered_end_offset == 0
                await apply_local_retention(broker.replica_manager)
            go_on.set()
            await looking
        await tiered.tier()
        await tiered.tier()
        assert log_of(tiered, follower).local_log_start_offset > start
        assert await tiered.read_all(start) == tiered.values[start:]

    run_tiered(test)


def test_a_removal_that_has_begun_is_finished_after_a_failure() -> None:
    async def test(tiered: TieredRig) -> None:
        leader, follower = await apart(tiered)
        start = log_of(tiered, follower).local_log_start_offset
        await set_topic(tiered, **OFF)
        manager = manager_of(leader)
        remote: Any = manager._remote
        real = remote.call

        async def call(name: str, *args: Any, **kwargs: Any) -> Any:
            if name == "remove_segments":
                raise StorageError("the bucket is away")
            return await real(name, *args, **kwargs)

        remote.call = call
        await manager.look_after_all()
        assert manager.metrics.failures == 1
        await set_topic(tiered, **ON)
        remote.call = real
        with held(manager, "copy"):
            looking = asyncio.create_task(manager.look_after_all())
            await until(lambda: not manager._leaving._removing)
            assert objects_of(tiered)
            assert manager._led[tiered.partition.topic_partition].state is not None
            looking.cancel()
        await tiered.tier()
        assert await tiered.read_all(start) == tiered.values[start:]

    run_tiered(test)


def test_a_topic_is_switched_off_and_deleted() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        topic_id = tiered.partition.topic_id
        await set_topic(tiered, **OFF)
        client = await tiered.client()
        with pytest.raises(AssertionError, match="stays true while"):
            await client.alter(ResourceType.TOPIC, "t", remote_log_delete_on_disable="false")
        request = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),))
        (deleted,) = (await client.ask(request)).responses
        assert deleted.error_code == 0
        assert set(tiered.rig.control.image.remote_deletes) == {topic_id}

    run_tiered(test)


def test_what_a_follower_has_asked_before_does_not_count() -> None:
    async def test(tiered: TieredRig) -> None:
        leader, follower = await apart(tiered)
        manager = manager_of(follower)
        real, asked, go_on = manager._ask_leader, asyncio.Event(), asyncio.Event()

        async def ask_leader(*args: Any) -> Any:
            found = await real(*args)
            asked.set()
            await go_on.wait()
            return found

        manager._ask_leader = ask_leader
        learning = asyncio.create_task(manager._learn_from_leaders())
        await asked.wait()
        await set_topic(tiered, **OFF)
        await set_topic(tiered, **ON)
        go_on.set()
        await learning
        assert log_of(tiered, follower).tiered_end_offset == 0
        assert log_of(tiered, leader).tiered_end_offset == 0

    run_tiered(test)


def test_retention_goes_on_while_a_replica_is_missing() -> None:
    async def test(tiered: TieredRig) -> None:
        leader, follower = await apart(tiered)
        await tiered.rig.stop_broker(follower.options.broker_id)
        await set_topic(tiered, **OFF, retention_bytes="7000")
        local_start = log_of(tiered, leader).local_log_start_offset
        apply_retention(leader.replica_manager)
        assert log_of(tiered, leader).log_start_offset == 0
        await look(tiered)
        assert 0 < log_of(tiered, leader).log_start_offset < local_start

    run_tiered(test)


@pytest.mark.parametrize(
    "trouble", ["tiered", "truncating", "another epoch", "no role", "checkpoint", "closed"]
)
def test_a_replica_that_cannot_tell_gives_no_answer(trouble: str) -> None:
    async def test(tiered: TieredRig) -> None:
        leader, follower = await apart(tiered)
        if trouble != "tiered":
            await set_topic(tiered, **OFF)
        asking, asked = tiered.partition_at(leader), tiered.partition_at(follower)
        assert asking is not None
        assert asked is not None
        if trouble == "truncating":
            asked.log.truncating = True
        elif trouble == "another epoch":
            assert asking.state is not None
            asking.state = asking.state.__class__(
                **{f: getattr(asking.state, f) for f in asking.state.__dataclass_fields__}
                | {"leader_epoch": 9}
            )
        elif trouble == "no role":
            asked.state = None
        elif trouble == "closed":
            await follower._server.close()  # type: ignore[union-attr]
        elif trouble == "checkpoint":
            asked.log._local_log_start_offset -= 1  # the checkpoint tells a later start
            found = await leader.replication.local_starts.ask(asking)
            assert found == {follower.options.broker_id: asked.log.local_log_start_offset}
            assert follower.replica_manager.checkpoints.allow(asked.log)
            return
        (answer,) = (await leader.replication.local_starts.ask(asking)).values()
        assert not isinstance(answer, int)
        asked.log.truncating = False

    run_tiered(test)


def test_strangers_are_not_told_local_log_starts() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        client = await tiered.client()
        request = ReadLocalStartRequest(topic_id=tiered.partition.topic_id, partition=0)
        refused = await client.ask(request, 0)
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run_tiered(test)


def test_a_start_in_the_bucket_is_refused() -> None:
    async def test(tiered: TieredRig) -> None:
        leader, follower = await apart(tiered)
        partition = tiered.partition_at(follower)
        assert partition is not None
        find_start = follower.replication.tiered_states.find_start
        start = await find_start(partition)
        log_of(tiered, leader).tiered_end_offset = 0  # it does not know
        with pytest.raises(KafkaError, match="has not found out yet"):
            await find_start(partition)
        await set_topic(tiered, **OFF)
        with pytest.raises(KafkaError, match="leaves the remote_dir"):
            await find_start(partition)
        assert not partition.begin_start_in_tier(start, leader_epoch=partition.leader_epoch)

    run_tiered(test)
