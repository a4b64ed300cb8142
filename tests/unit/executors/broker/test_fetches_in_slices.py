"""Fetches that look at many partitions in slices, while records arrive."""

import asyncio

import pytest

from sparklog.executors.replica_manager.replica_manager import ReplicaManager
from sparklog.transport import slice_scheduler
from sparklog.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.batches import batch
from tests.unit.executors.broker.broker_rig import Rig, run

PARTITIONS = 300
LONG_MS = 20_000


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records arrive between two slices of a look."""
    monkeypatch.setattr(slice_scheduler, "TURN_UNITS", 1)


def fetch_all(session_epoch: int, session_id: int = 0) -> FetchRequest:
    parts = tuple(
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
        for number in range(PARTITIONS)
    )
    return FetchRequest(
        max_wait_ms=LONG_MS,
        min_bytes=1,
        max_bytes=50 << 20,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=(FetchTopic(topic="t", partitions=parts),),
    )


def append(replica_manager: ReplicaManager) -> None:
    """To the partition that was looked at first."""
    partition = replica_manager.find("t", 0)
    result = partition.append_as_leader(batch(b"record"), acks=1, now_ms=replica_manager.now_ms())
    replica_manager.carry_out(result.effects)


@pytest.mark.parametrize("has_session", [False, True])
def test_records_that_arrive_during_a_look_end_the_wait(has_session: bool) -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(PARTITIONS)
        session_id = 0
        if has_session:
            session_id = (await client.ask(fetch_all(0), 12)).session_id
            assert session_id
        server = rig.brokers[1]._server
        assert server is not None
        again = fetch_all(1, session_id) if has_session else fetch_all(-1)
        fetching = asyncio.ensure_future(client.ask(again, 12))
        while not len(server.scheduler):
            await asyncio.sleep(0)
        append(rig.brokers[1].replica_manager)
        async with asyncio.timeout(LONG_MS / 1000 / 4):
            response = await fetching
        [topic] = response.responses
        assert [part.partition_index for part in topic.partitions if part.records] == [0]

    run(test)
