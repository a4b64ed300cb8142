"""Fetches with a session over the wire (KIP-227)."""

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from sparklog.errors import ErrorCode, StorageError
from sparklog.executors.partition.partition import Partition
from sparklog.executors.replica_manager.log_maintenance import apply_retention
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig, run, values_of

LONG_MS = 20_000
#: Of one partition of an answer: number, error, high watermark, log start, values.
Found = tuple[int, int, int, int, list[bytes | None]]


class Reader:
    """A client's half of one session."""

    def __init__(self, client: Client, topic: str | UUID, version: int = 12) -> None:
        self.client = client
        self.topic = topic
        self.version = version
        self.session_id = 0
        self.epoch = 0

    async def fetch(self, offsets: dict[int, int] | None = None, **more: Any) -> list[Found]:
        """One request; what it told.  ``offsets``: partitions that are new or have moved."""
        response = await self.ask(offsets or {}, **more)
        assert response.error_code == 0, response
        self.session_id = response.session_id
        self.epoch += 1
        return found_in(response)

    async def ask(
        self,
        offsets: dict[int, int],
        *,
        forget: tuple[int, ...] = (),
        session: tuple[int, int] | None = None,
        **more: Any,
    ) -> FetchResponse:
        session_id, epoch = session or (self.session_id, self.epoch)
        by_id = isinstance(self.topic, UUID)
        names: dict[str, Any] = {"topic_id": self.topic} if by_id else {"topic": self.topic}
        parts = tuple(
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
            for number, offset in offsets.items()
        )
        request = FetchRequest(
            session_id=session_id,
            session_epoch=epoch,
            topics=(FetchTopic(**names, partitions=parts),) if parts else (),
            forgotten_topics_data=(ForgottenTopic(**names, partitions=forget),) if forget else (),
            **{"min_bytes": 1, "max_wait_ms": 0, "max_bytes": 1 << 20, **more},
        )
        response: FetchResponse = await self.client.ask(request, self.version)
        return response


def found_in(response: FetchResponse) -> list[Found]:
    return [
        (
            p.partition_index,
            p.error_code,
            p.high_watermark,
            p.log_start_offset,
            values_of(p.records),
        )
        for topic in response.responses
        for p in topic.partitions
    ]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each partition was read."""
    counted: Counter[int] = Counter()
    read = Partition.read

    def counting(self: Partition, *args: Any, **more: Any) -> Any:
        counted[self.topic_partition.partition] += 1
        return read(self, *args, **more)

    monkeypatch.setattr(Partition, "read", counting)
    return counted


@pytest.mark.parametrize("version", range(7, 19))
def test_every_version_has_sessions(version: int) -> None:
    async def test(rig: Rig) -> None:
        client, topic_id = await rig.with_topic(2)
        reader = Reader(client, topic_id if version >= 13 else "t", version)
        assert await reader.fetch({0: 0, 1: 0}) == [(0, 0, 0, 0, []), (1, 0, 0, 0, [])]
        assert reader.session_id > 0
        assert await reader.fetch() == []
        await client.produce("t", batch(b"a"), partition=1)
        assert await reader.fetch() == [(1, 0, 1, 0, [b"a"])]
        assert await reader.fetch({1: 1}) == []
        await client.produce("t", batch(b"b"), partition=1)
        await client.produce("t", batch(b"c"), partition=0)
        assert await reader.fetch(forget=(1,)) == [(0, 0, 1, 0, [b"c"])]
        # Until the client moves on, it is sent the same again.
        assert await reader.fetch() == [(0, 0, 1, 0, [b"c"])]

    run(test)


def test_idle_partitions_are_not_looked_at(reads: Counter[int]) -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(300)
        reader = Reader(client, "t")
        assert len(await reader.fetch(dict.fromkeys(range(300), 0))) == 300
        assert reads.total() == 300
        for _ in range(3):
            assert await reader.fetch(max_wait_ms=5) == []
        assert reads.total() == 300
        await client.produce("t", batch(b"a"), partition=77)
        assert await reader.fetch() == [(77, 0, 1, 0, [b"a"])]
        assert await reader.fetch({77: 1}) == []
        assert await reader.fetch() == []
        assert (reads.total(), reads[77]) == (302, 3)
        rig.brokers[1].replica_manager.delayed_operations.sessions.check_invariants()

    run(test)


def test_a_fetch_waits_for_enough_bytes_of_the_whole_session() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(3)
        size = len(batch(b"a"))
        reader = Reader(await rig.client(), "t")
        await reader.fetch({0: 0, 1: 0, 2: 0})
        replica_manager = rig.brokers[1].replica_manager
        await client.produce("t", batch(b"a"), partition=2)
        waiting = asyncio.create_task(reader.fetch(min_bytes=4 * size, max_wait_ms=LONG_MS))
        await until(lambda: len(replica_manager.delayed_operations.consumer_fetches) == 1)
        for number in (0, 0, 1):
            replica_manager.delayed_operations.sessions.check_invariants()
            assert not waiting.done()
            await client.produce("t", batch(b"b"), partition=number)
        assert await waiting == [
            (2, 0, 1, 0, [b"a"]),
            (0, 0, 2, 0, [b"b", b"b"]),
            (1, 0, 1, 0, [b"b"]),
        ]
        assert (
            len(replica_manager.delayed_operations.consumer_fetches),
            replica_manager.delayed_operations.timers.armed,
        ) == (0, False)
        replica_manager.delayed_operations.sessions.check_invariants()

    run(test)


def test_a_fetch_that_waited_in_vain_tells_nothing() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        reader = Reader(client, "t")
        await reader.fetch({0: 0})
        assert await reader.fetch(max_wait_ms=10) == []
        await client.produce("t", batch(b"a"))
        # Moved on without having read: the high watermark alone is news, and worth no hurry.
        began = asyncio.get_running_loop().time()
        assert await reader.fetch({0: 1}, max_wait_ms=30) == [(0, 0, 1, 0, [])]
        assert asyncio.get_running_loop().time() - began >= 0.03

    run(test)


def test_refusals_are_about_the_session_alone() -> None:
    async def test(rig: Rig) -> None:
        client, topic_id = await rig.with_topic()
        reader = Reader(client, "t")
        await reader.fetch({0: 0})
        session_id = reader.session_id
        for session, code in (
            ((session_id + 1, 1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            ((0, 1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            ((session_id, 2), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ):
            response = await reader.ask({0: 0}, session=session)
            assert response == FetchResponse(error_code=code)
        by_id = Reader(client, topic_id, 13)
        response = await by_id.ask({0: 0}, session=(session_id, 1))
        assert response == FetchResponse(error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        # The session has not noticed.
        assert await reader.fetch() == []
        # One that is asked for anew, or given up, is gone.
        assert (await reader.ask({0: 0}, session=(session_id, -1))).session_id == 0
        response = await reader.ask({}, session=(session_id, 2))
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(test)


def test_a_fetch_that_was_overtaken_is_told_so() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        reader = Reader(client, "t")
        await reader.fetch({0: 0})
        session_id = reader.session_id
        replica_manager = rig.brokers[1].replica_manager
        first = asyncio.create_task(reader.ask({}, session=(session_id, 1), max_wait_ms=LONG_MS))
        await until(lambda: len(replica_manager.delayed_operations.consumer_fetches) == 1)
        other = Reader(await rig.client(), "t")
        second = asyncio.create_task(other.ask({}, session=(session_id, 2), max_wait_ms=LONG_MS))
        assert await first == FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        await until(lambda: len(replica_manager.delayed_operations.consumer_fetches) == 1)
        producer = await rig.client()
        await producer.produce("t", batch(b"a"))
        assert found_in(await second) == [(0, 0, 1, 0, [b"a"])]
        replica_manager.delayed_operations.sessions.check_invariants()

    run(test)


def test_a_session_outlives_its_connection() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        gone = Reader(await rig.client(), "t")
        await gone.fetch({0: 0})
        replica_manager = rig.brokers[1].replica_manager
        waiting = asyncio.create_task(gone.ask({}, max_wait_ms=LONG_MS))
        await until(lambda: len(replica_manager.delayed_operations.consumer_fetches) == 1)
        gone.client.connection.close()
        await asyncio.gather(waiting, return_exceptions=True)
        await until(lambda: len(replica_manager.delayed_operations.consumer_fetches) == 0)
        replica_manager.delayed_operations.sessions.check_invariants()
        await client.produce("t", batch(b"a"))
        again = Reader(client, "t")
        again.session_id, again.epoch = gone.session_id, 2
        assert await again.fetch() == [(0, 0, 1, 0, [b"a"])]

    run(test)


def test_partitions_take_turns_when_answers_are_small() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(4)
        reader = Reader(client, "t")
        await reader.fetch(dict.fromkeys(range(4), 0))
        offsets = Counter[int]()
        for number in range(4):
            for _ in range(3):
                await client.produce("t", batch(b"a"), partition=number)
        turns: list[int] = []
        moved: dict[int, int] = {}
        for _ in range(12):
            answer = await reader.fetch(moved, max_bytes=1)
            (number,) = [number for number, *_, values in answer if values]
            turns.append(number)
            offsets[number] += 1
            moved = {number: offsets[number]}
        assert turns == [0, 1, 2, 3] * 3
        assert await reader.fetch(moved) == []

    run(test)


def test_errors_are_told_as_long_as_they_last() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        reader = Reader(client, "t")
        missing = (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, [])
        assert await reader.fetch({0: 0, 9: 0}) == [(0, 0, 0, 0, []), missing]
        for _ in range(2):
            assert await reader.fetch(max_wait_ms=LONG_MS) == [missing]
        beyond = (0, ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, [])
        assert await reader.fetch({0: 5}, forget=(9,), max_wait_ms=LONG_MS) == [beyond]
        assert await reader.fetch() == [beyond]
        assert await reader.fetch({0: 0}) == [(0, 0, 0, 0, [])]
        assert await reader.fetch() == []

    run(test)


@pytest.mark.parametrize("by_id", [True, False])
def test_a_topic_that_goes_is_told(by_id: bool) -> None:
    async def test(rig: Rig) -> None:
        client, topic_id = await rig.with_topic()
        reader = Reader(await rig.client(), topic_id if by_id else "t", 13 if by_id else 12)
        await reader.fetch({0: 0})
        replica_manager = rig.brokers[1].replica_manager
        waiting = asyncio.create_task(reader.fetch(max_wait_ms=LONG_MS))
        await until(lambda: len(replica_manager.delayed_operations.consumer_fetches) == 1)
        delete = DeleteTopicState(topic_id=None, name="t")
        await client.ask(DeleteTopicsRequest(topics=(delete,), timeout_ms=5000))
        gone = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await waiting == [(0, gone, -1, -1, [])]
        await client.create_topic("t")
        await rig.leads(1)
        assert await reader.fetch() == [(0, gone, -1, -1, []) if by_id else (0, 0, 0, 0, [])]

    run(test)


def test_a_log_start_that_moves_is_told() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(
            2, segment_bytes="150", retention_bytes="150", retention_ms="-1"
        )
        for number in (0, 1):
            for _ in range(3):
                await client.produce("t", batch(b"a" * 60), partition=number)
        reader = Reader(client, "t")
        await reader.fetch({0: 3, 1: 3})
        wanted = DeleteRecordsPartition(partition_index=0, offset=2)
        topic = DeleteRecordsTopic(name="t", partitions=(wanted,))
        await client.ask(DeleteRecordsRequest(topics=(topic,), timeout_ms=1000))
        assert await reader.fetch() == [(0, 0, 3, 2, [])]
        assert await reader.fetch() == []
        replica_manager = rig.brokers[1].replica_manager
        apply_retention(replica_manager)
        starts = {p.topic_partition.partition: p.log.log_start_offset for p in replica_manager}
        assert starts == {0: 2, 1: 1}
        assert await reader.fetch() == [(1, 0, 3, 1, [])]

    run(test)


def test_a_partition_that_goes_offline_is_told_to_whom_it_was_quiet() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(2, flush_messages="1")
        reader = Reader(await rig.client(), "t")
        await reader.fetch({0: 0, 1: 0})
        replica_manager = rig.brokers[1].replica_manager
        waiting = asyncio.create_task(reader.fetch(max_wait_ms=LONG_MS))
        await until(lambda: len(replica_manager.delayed_operations.consumer_fetches) == 1)
        (partition,) = [p for p in replica_manager if p.topic_partition.partition == 1]
        partition.log.offline = StorageError("the disk is gone")
        produced = await client.produce("t", batch(b"a"), partition=1)
        assert produced.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await waiting == [(1, ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, [])]
        partition.log.offline = None

    run(test)


def test_what_sessions_come_to_is_counted() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(3)
        first, second = Reader(client, "t"), Reader(client, "t")
        await first.fetch({0: 0, 1: 0})
        # Both places are needed; nobody has been idle, so the third does without.
        await second.fetch({0: 0, 1: 0, 2: 0})
        third = Reader(client, "t")
        await third.fetch({0: 0})
        assert (first.session_id > 0, second.session_id > 0, third.session_id) == (True, True, 0)
        await first.fetch()
        names = ("sessions", "session_partitions", "session_evictions")
        status = await rig.status()
        assert [status[f"fetch_{name}"] for name in names] == [2, 5, 0]
        assert status["incremental_fetches"] == 1
        assert status["delayed_deletes"] == 0

    run(test, max_incremental_fetch_session_cache_slots="2")
