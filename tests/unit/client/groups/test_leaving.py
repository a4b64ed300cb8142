"""How consumers leave their group when commits do not end, and when listeners fail or are slow."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.deadline import Deadline
from sparklog.client.groups import AsyncConsumer, RebalanceListener, async_consumer
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition
from tests.unit.client.groups.group_cluster import LEAVE_GROUP, OFFSET_COMMIT, GroupCluster
from tests.unit.client.groups.test_group_consumer import (
    T0,
    T1,
    consumer,
    fill,
    poll_until,
    read,
    run,
)

#: Longer than a test may take: it is for what must not be waited for.
LONG_S = 60.0


class Listener(RebalanceListener):
    """It notes what is revoked, and goes on with what the test wants."""

    def __init__(self, then: Callable[[], Any] = lambda: None) -> None:
        self.told: list[frozenset[TopicPartition]] = []
        self._then = then

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> Any:
        self.told.append(partitions)
        return self._then()


async def member(client: ClusterClient, listener: Listener, **options: Any) -> AsyncConsumer:
    ours = consumer(client, **options)
    ours.subscribe(["t"], listener=listener)
    await poll_until(lambda: len(ours.assignment) == 2, ours)
    return ours


@pytest.mark.parametrize("auto_commit", [True, False])
def test_a_commit_that_does_not_end_keeps_no_member_in_its_group(auto_commit: bool) -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        # The listener's commit does not end, either.
        listener = Listener(lambda: ours.commit_async({T1: 1}))
        ours = await member(client, listener, enable_auto_commit=auto_commit)
        cluster.commits_may_end.clear()
        ours.commit_async({T0: 1})
        async with asyncio.timeout(LONG_S / 4):
            await ours.close(1.0)
        assert listener.told == [frozenset({T0, T1})]
        assert cluster.asked(LEAVE_GROUP) == [1]
        cluster.commits_may_end.set()

    run(test)


def test_the_listener_is_called_while_there_is_time_although_a_commit_does_not_end() -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        left: list[bool] = []
        listener = Listener(lambda: left.append(not deadline.expired))
        ours = await member(client, listener, enable_auto_commit=False)
        cluster.commits_may_end.clear()
        ours.commit_async({T0: 1})
        deadline = Deadline(2.0)
        await ours.close(deadline.timeout_s)
        assert left == [True]
        cluster.commits_may_end.set()

    run(test)


@pytest.mark.parametrize("fails", [True, False])
def test_the_member_leaves_although_the_listener_takes_all_the_time(fails: bool) -> None:
    async def lose_the_coordinator() -> None:
        """So that LeaveGroup needs some messages until it is sent."""
        try:
            await ours.commit({T0: 1}, timeout_s=0.2)
        except KafkaError:
            if fails:
                raise

    ours: AsyncConsumer

    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        nonlocal ours
        ours = await member(client, Listener(lose_the_coordinator), enable_auto_commit=False)
        cluster.commits_may_end.clear()
        refused = pytest.raises(KafkaError) if fails else contextlib.nullcontext()
        with refused:
            await ours.close(0.1)
        assert cluster.asked(LEAVE_GROUP) == [1]
        assert cluster.coordinator.seats == {}
        cluster.commits_may_end.set()

    run(test)


def fail() -> None:
    raise RuntimeError("the listener failed")


def test_a_commit_has_no_more_time_than_it_is_given() -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        ours = await member(client, Listener())
        cluster.commits_may_end.clear()
        async with asyncio.timeout(LONG_S / 4):
            with pytest.raises(KafkaError) as late:
                await ours.commit({T0: 1}, timeout_s=0.1)
        assert late.value.code == ErrorCode.REQUEST_TIMED_OUT
        cluster.commits_may_end.set()
        await ours.close()

    run(test)


@pytest.mark.parametrize("ends", ["fails", "is cancelled"])
def test_commits_have_their_time_again_after_an_attempt_to_leave(
    ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_consumer, "CLOSE_TIMEOUT_S", 0.5)

    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        listener = Listener(fail if ends == "fails" else asyncio.Event().wait)
        ours = await member(client, listener)
        leaving = asyncio.ensure_future(ours.unsubscribe())
        deadline = Deadline(async_consumer.CLOSE_TIMEOUT_S)
        while not listener.told:
            await asyncio.sleep(0)
        leaving.cancel()  # too late for a listener that fails
        await asyncio.wait([leaving])
        assert leaving.cancelled() == (ends == "is cancelled")
        ours.subscribe(["t"])
        await poll_until(lambda: len(ours.assignment) == 2 and deadline.expired, ours)
        await fill(client, *range(4))
        await read(ours, 4)
        cluster.refuse(OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        async with consumer(client) as second:
            second.subscribe(["t"])
            await poll_until(
                lambda: len(ours.assignment) == len(second.assignment) == 1, ours, second
            )
            assert cluster.committed == {T0: 2, T1: 2}
        await ours.close()

    run(test)
