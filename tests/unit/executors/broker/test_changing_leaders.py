"""Brokers and elections: handing over before a stop, and whose log leads after all have died."""

import asyncio
from typing import Any

import pytest

from sparklog.driver.control_plane.controller import Event
from sparklog.errors import StorageError
from sparklog.executors.replica_manager.log_end_reports import LogEndReports
from sparklog.metadata import PartitionImage
from sparklog.wire.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from sparklog.wire.protocol.messages.elect_leaders import ElectLeadersRequest, ReplicaElectionResult
from sparklog.wire.protocol.private import LostBroker, ReportLogEndsRequest, ReportLossRequest
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig, run


async def with_replicas(rig: Rig, *replicas: int) -> Client:
    """Topic t with one partition, on brokers that are started."""
    for broker_id in replicas:
        await rig.start_broker(broker_id)
    client = await rig.client(replicas[0])
    topic = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=replicas),),
    )
    response = await client.ask(CreateTopicsRequest(topics=(topic,)))
    assert response.topics[0].error_code == 0, response
    await rig.leads(1, replicas[0])
    return client


def state_of(rig: Rig) -> PartitionImage:
    return rig.control.image.topics["t"].partitions[0]


async def tell(rig: Rig, event: Event) -> Any:
    outcome: Any = rig.control.decide(event)
    return await outcome if hasattr(outcome, "__await__") else outcome


async def lose(rig: Rig, *brokers: int) -> None:
    lost = tuple(LostBroker(broker_id=broker_id) for broker_id in brokers)
    await tell(rig, ReportLossRequest(brokers=lost))


def test_another_leads_before_a_broker_that_stops_closes_its_logs() -> None:
    async def test(rig: Rig) -> None:
        await with_replicas(rig, 1, 2)
        replica_manager = rig.brokers[1].replica_manager
        close, leaders = replica_manager.close, []

        async def closing() -> Any:
            leaders.append(
                (
                    replica_manager.image.topics["t"].partitions[0].leader,
                    replica_manager.image.is_alive(1),
                )
            )
            return await close()

        replica_manager.close = closing  # type: ignore[method-assign]
        await rig.stop_broker(1)
        assert leaders == [(2, True)]
        assert (state_of(rig).isr, rig.control.image.is_alive(1)) == ((2,), False)
        await rig.leads(1, 2)

    run(test)


def test_a_stop_waits_for_nobody_when_the_control_plane_is_away() -> None:
    async def test(rig: Rig) -> None:
        await with_replicas(rig, 1, 2)
        await rig.stop_control()
        await rig.stop_broker(1)
        assert rig.disk.exists("broker-1/.kafka_cleanshutdown")
        await rig.start_control()

    run(test)


def test_after_everything_died_the_longest_log_leads() -> None:
    async def test(rig: Rig) -> None:
        client = await with_replicas(rig, 1, 2)
        assert (await client.produce("t", batch(b"a", b"b"), acks=1)).error_code == 0
        await rig.crash_broker(1)
        await rig.crash_broker(2)
        await lose(rig, 1, 2)
        assert (state_of(rig).isr, state_of(rig).eligible) == ((), (1, 2))
        await rig.start_broker(2, new=False)
        assert (state_of(rig).eligible, state_of(rig).leader) == ((1,), -1)
        await rig.start_broker(1, new=False)
        await rig.leads(1, 1)
        assert (state_of(rig).leader, rig.control.unclean_recoveries) == (1, 1)
        client = await rig.client(1)
        assert await client.fetch("t") == (0, [b"a", b"b"])

    run(test)


def test_log_ends_are_told_again_to_a_new_controller() -> None:
    async def test(rig: Rig) -> None:
        await with_replicas(rig, 1, 2)
        await rig.crash_broker(1)
        await rig.crash_broker(2)
        await lose(rig, 1, 2)
        await rig.start_broker(1, new=False)
        await rig.crash_broker(1)
        await rig.start_broker(2, new=False)
        await until(
            lambda: rig.brokers[2].replica_manager.image.version == rig.control.image.version
        )
        assert (state_of(rig).leader, state_of(rig).last_known) == (-1, (1, 2))
        await rig.stop_control()
        await rig.start_control()
        await until(lambda: state_of(rig).leader == 2)

    run(test, unclean_recovery_timeout_ms="200", broker_session_timeout_ms="1500")


def test_log_ends_are_told_once_while_nothing_new_is_to_be_told() -> None:
    async def test(rig: Rig) -> None:
        await with_replicas(rig, 1, 2)
        await rig.crash_broker(1)
        await rig.crash_broker(2)
        await lose(rig, 1, 2)
        await rig.start_broker(2, new=False)
        told = str(ReportLogEndsRequest.API_KEY)
        await until(lambda: rig.control.status()["requests"].get(told) == 1)
        client = await rig.client(2)
        for name in ("u", "v"):
            await client.create_topic(name)
        await rig.leads(2, 2)
        assert rig.control.status()["requests"][told] == 1

    run(test)


@pytest.mark.parametrize("steps", range(4))
def test_a_broker_that_ends_while_there_are_news_ends(steps: int) -> None:
    async def test(rig: Rig) -> None:
        await with_replicas(rig, 1, 2)
        await rig.crash_broker(1)
        await rig.crash_broker(2)
        await lose(rig, 1, 2)
        await rig.start_broker(2, new=False)
        reports = LogEndReports(rig.brokers[2].replica_manager, tell_nobody)
        running = asyncio.create_task(reports.run())
        for _ in range(10):
            await asyncio.sleep(0)
        reports.image_changed()
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait((running,), timeout=1)
        assert running.cancelled()

    run(test)


async def tell_nobody(_: object) -> None:
    """Believes everything."""


def test_any_broker_passes_elections_on() -> None:
    async def test(rig: Rig) -> None:
        client = await with_replicas(rig, 2, 1)
        response = await client.ask(ElectLeadersRequest())
        nothing_to_do = ReplicaElectionResult(topic="t")
        assert (response.error_code, response.replica_election_results) == (0, (nothing_to_do,))

    run(test)


def test_brokers_tell_their_rack() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        assert rig.control.image.brokers[1].rack == "left"

    run(test, broker_rack="left")


def test_a_log_that_does_not_work_is_led_elsewhere() -> None:
    async def test(rig: Rig) -> None:
        await with_replicas(rig, 1, 2)
        (partition,) = rig.brokers[1].replica_manager
        partition.log.offline = StorageError("the disk is gone")
        await rig.leads(1, 2)
        assert (state_of(rig).leader, state_of(rig).isr) == (2, (2,))

    run(test)
