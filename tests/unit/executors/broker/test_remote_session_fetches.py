"""Fetches below the local log start with a session, and of many partitions in slices."""

import asyncio

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.transport import slice_scheduler
from sparklog.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig, run, values_of
from tests.unit.executors.broker.remote_rig import (
    LOCAL_START,
    RECORDS,
    Asked,
    ScriptedRemoteReads,
    fill_and_move,
    stored,
    tiered,
)
from tests.unit.executors.broker.test_remote_fetches import (
    LONG_MS,
    PATIENT,
    SHORT,
    waiting_fetches,
)
from tests.unit.executors.broker.test_session_fetches import Found, Reader

#: More than a fetch reads at once.
MANY = 210


async def begun(rig: Rig, reader: Reader, offsets: dict[int, int]) -> "asyncio.Task[list[Found]]":
    """A fetch of the session that waits."""
    fetching = asyncio.create_task(reader.fetch(offsets))
    await until(lambda: waiting_fetches(rig.brokers[1].replica_manager) == 1)
    return fetching


def test_a_session_keeps_a_partition_whose_records_are_on_their_way() -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)
        reader = Reader(client, "t")
        # The offsets of the partition are news, but no records come in time.
        assert await reader.fetch({0: 0}) == [(0, 0, RECORDS, 0, [])]
        assert await reader.fetch() == []
        assert remote.asked == [Asked(0, 0)] * 4
        # They come while no fetch waits, and the session reads the partition again.
        remote.come(0, 0, stored(0))
        assert await reader.fetch() == [(0, 0, RECORDS, 0, [b"remote 0"])]
        remote.hold(0, 1, stored(1))
        assert await reader.fetch({0: 1}) == [(0, 0, RECORDS, 0, [b"remote 1"])]
        assert await reader.fetch({0: LOCAL_START}) == [(0, 0, RECORDS, 0, [b"local 4"])]
        assert await reader.fetch({0: RECORDS}) == []
        rig.brokers[1].replica_manager.delayed_operations.sessions.check_invariants()

    run(test, **SHORT)


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_records_that_come_wake_the_fetch_of_a_session(version: int) -> None:
    async def test(rig: Rig) -> None:
        client, topic_id, remote = await tiered(rig, 2)
        reader = Reader(client, topic_id if version >= 13 else "t", version)
        first = await begun(rig, reader, {0: 0, 1: 0})
        remote.come(0, 0, stored(0))
        nothing = (1, 0, 0, 0, [])
        assert await first == [(0, 0, RECORDS, 0, [b"remote 0"]), nothing]
        second = await begun(rig, reader, {0: 1})
        remote.come(0, 1, stored(1))
        assert await second == [(0, 0, RECORDS, 0, [b"remote 1"])]
        third = await begun(rig, reader, {0: 2})
        remote.come(0, 2, KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "it is gone"))
        gone = (0, int(ErrorCode.OFFSET_OUT_OF_RANGE), -1, -1, [])
        assert await third == [gone]
        assert await reader.fetch() == [gone]
        remote.hold(0, 2, stored(2))
        assert await reader.fetch() == [(0, 0, RECORDS, 0, [b"remote 2"])]
        rig.brokers[1].replica_manager.delayed_operations.sessions.check_invariants()

    run(test, **PATIENT)


def test_a_session_with_local_and_remote_partitions() -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig, 2)
        reader = Reader(client, "t")
        await client.produce("t", batch(b"a"), partition=1)
        assert await reader.fetch({0: 0, 1: 0}) == [(0, 0, RECORDS, 0, []), (1, 0, 1, 0, [b"a"])]
        waiting = await begun(rig, reader, {1: 1})
        await (await rig.client()).produce("t", batch(b"b"), partition=1)
        assert await waiting == [(1, 0, 2, 0, [b"b"])]
        waiting = await begun(rig, reader, {1: 2})
        remote.come(0, 0, stored(0))
        assert await waiting == [(0, 0, RECORDS, 0, [b"remote 0"])]
        rig.brokers[1].replica_manager.delayed_operations.sessions.check_invariants()

    run(test, **PATIENT)


def fetch_many(session_epoch: int, session_id: int = 0, max_wait_ms: int = 0) -> FetchRequest:
    parts = tuple(
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
        for number in range(MANY)
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=50 << 20,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=(FetchTopic(topic="t", partitions=parts),),
    )


async def ask(client: Client, request: FetchRequest) -> tuple[int, dict[int, list[bytes | None]]]:
    """The session, and the partitions with records."""
    response = await client.ask(request, 12)
    assert response.error_code == 0
    found = {
        data.partition_index: values_of(data.records)
        for topic in response.responses
        for data in topic.partitions
        if data.records
    }
    return response.session_id, found


async def come_between_slices(rig: Rig, remote: ScriptedRemoteReads) -> None:
    """The records arrive after their partition was read, while the fetch reads the others."""
    server = rig.brokers[1]._server
    assert server is not None
    while not len(server.scheduler):
        await asyncio.sleep(0)
    assert remote.asked == [Asked(0, 0)]
    remote.come(0, 0, stored(0))


@pytest.mark.parametrize("between_slices", [False, True])
@pytest.mark.parametrize("has_session", [False, True])
def test_fetches_in_slices_wait_too(
    has_session: bool, between_slices: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slice_scheduler, "TURN_UNITS", 1)

    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig, MANY)
        session_id = 0
        if has_session:
            # The first response of a session has news, so it does not wait.
            session_id, found = await ask(client, fetch_many(0))
            assert (session_id > 0, found) == (True, {})
            remote.asked.clear()
        request = fetch_many(1 if has_session else -1, session_id)
        fetching = asyncio.create_task(ask(client, request))
        if between_slices:
            await come_between_slices(rig, remote)
        else:
            await until(lambda: waiting_fetches(rig.brokers[1].replica_manager) == 1)
            remote.come(0, 0, stored(0))
        async with asyncio.timeout(LONG_MS / 1000 / 4):
            assert await fetching == (session_id, {0: [b"remote 0"]})
        assert remote.asked == [Asked(0, 0)] * 2

    run(test, **{**PATIENT, "fetch_max_bytes": str(1 << 20)})


def test_a_fetch_in_slices_whose_records_do_not_come() -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig, MANY)
        await fill_and_move(rig, client, MANY - 1)
        assert await ask(client, fetch_many(-1)) == (0, {})
        assert remote.reads_of == {0: 2, MANY - 1: 2}

    run(test, **SHORT)
