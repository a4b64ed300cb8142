"""Fetches below the local log start: records that are in the bucket, or on their way from there."""

import asyncio
import socket
from typing import Any
from uuid import UUID

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log import AbortedTxn
from sparklog.executors.replica_manager.remote_reads import NoRemoteReads
from sparklog.executors.replica_manager.replica_manager import ReplicaManager
from sparklog.types import Isolation
from sparklog.wire.protocol.fetch import MAX_VERSION, MIN_VERSION
from sparklog.wire.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchResponse,
)
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig, run, values_of
from tests.unit.executors.broker.remote_rig import (
    LOCAL_START,
    RECORDS,
    REMOTE_DIR,
    TIERED,
    Asked,
    fill_and_move,
    stored,
    tiered,
)
from tests.unit.executors.broker.test_gone_clients import send, waiting_fetch

LONG_MS = 20_000
#: remote.fetch.max.wait.ms of tests in which nothing comes.
SHORT: dict[str, str] = {"remote_dir": REMOTE_DIR, "remote_fetch_max_wait_ms": "50"}
#: The same of tests in which a fetch waits for what comes.
PATIENT: dict[str, str] = {"remote_dir": REMOTE_DIR, "remote_fetch_max_wait_ms": str(LONG_MS)}
#: The resource type of brokers in requests about settings.
BROKER = 4
TROUBLE = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the bucket is away")


def part(number: int = 0, offset: int = 0, limit: int = 1 << 20) -> FetchPartition:
    return FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=limit)


def found_in(response: FetchResponse) -> dict[int, tuple[int, list[bytes | None]]]:
    """Error code and values by partition."""
    return {
        data.partition_index: (data.error_code, values_of(data.records))
        for topic in response.responses
        for data in topic.partitions
    }


def waiting_fetches(replica_manager: ReplicaManager) -> int:
    return len(replica_manager.delayed_operations.consumer_fetches)


async def begun(
    rig: Rig, client: Client, topic: str | UUID, *parts: FetchPartition, **more: Any
) -> "asyncio.Task[FetchResponse]":
    """A fetch that waits."""
    fetching = asyncio.create_task(client.fetch_all(topic, parts, **{"max_wait_ms": 0, **more}))
    await until(lambda: waiting_fetches(rig.brokers[1].replica_manager) == 1)
    return fetching


@pytest.mark.parametrize("version", range(MIN_VERSION, MAX_VERSION + 1))
def test_records_that_are_there_are_returned_at_once(version: int) -> None:
    async def test(rig: Rig) -> None:
        client, topic_id, remote = await tiered(rig)
        remote.hold(0, 1, stored(1))
        topic: str | UUID = topic_id if version >= 13 else "t"
        response = await client.fetch_all(
            topic, (part(0, 1),), version=version, max_wait_ms=LONG_MS, min_bytes=1 << 19
        )
        ((data,),) = [topic.partitions for topic in response.responses]
        assert (data.error_code, values_of(data.records)) == (0, [b"remote 1"])
        assert (data.high_watermark, data.last_stable_offset) == (RECORDS, RECORDS)
        assert data.log_start_offset == (0 if version >= 5 else -1)
        assert remote.asked == [Asked(0, 1)]
        assert [region.released for region in remote.regions] == [True]
        size = len(stored(1))
        assert rig.brokers[1].replica_manager.counters.bytes_out["t"] == size

    run(test, **PATIENT)


@pytest.mark.parametrize("version", [MIN_VERSION, MAX_VERSION])
@pytest.mark.parametrize("max_wait_ms", [0, LONG_MS])
def test_a_fetch_waits_for_records_on_their_way(version: int, max_wait_ms: int) -> None:
    """A client that waits for nothing waits for the bucket nevertheless, as in Kafka."""

    async def test(rig: Rig) -> None:
        client, topic_id, remote = await tiered(rig)
        topic: str | UUID = topic_id if version >= 13 else "t"
        fetching = await begun(
            rig, client, topic, part(), version=version, max_wait_ms=max_wait_ms, min_bytes=1 << 19
        )
        remote.come(0, 0, stored(0))
        assert found_in(await fetching) == {0: (0, [b"remote 0"])}
        assert remote.asked == [Asked(0, 0)] * 2
        assert waiting_fetches(rig.brokers[1].replica_manager) == 0

    run(test, **PATIENT)


def test_large_records_are_sent_as_they_are_and_let_go() -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)
        remote.hold(0, 0, stored(0, b"x" * 100_000))
        assert await client.fetch("t") == (0, [b"x" * 100_000])
        await until(lambda: remote.regions[0].released)

    run(test, **PATIENT)


@pytest.mark.parametrize(("max_wait_ms", "waits_s"), [(0, 0.05), (80, 0.08)])
def test_nothing_comes_in_time(max_wait_ms: int, waits_s: float) -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)
        began = asyncio.get_running_loop().time()
        response = await client.fetch_all("t", (part(),), max_wait_ms=max_wait_ms)
        assert asyncio.get_running_loop().time() - began >= waits_s
        ((data,),) = [topic.partitions for topic in response.responses]
        assert (data.error_code, data.high_watermark, data.log_start_offset) == (0, RECORDS, 0)
        assert bytes(data.records or b"") == b""
        assert remote.asked == [Asked(0, 0)] * 2, "at the beginning, and at the end of the wait"
        # The next fetch finds what came meanwhile.
        remote.come(0, 0, stored(0))
        assert await client.fetch("t", max_wait_ms=0) == (0, [b"remote 0"])

    run(test, **SHORT)


def test_the_longest_wait_changes_while_the_broker_runs() -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)
        broker = rig.brokers[1].replica_manager
        await client.alter(BROKER, "1", remote_fetch_max_wait_ms="10")
        await until(lambda: broker.broker_config.remote_fetch_max_wait_ms == 10)
        async with asyncio.timeout(LONG_MS / 1000 / 4):
            assert await client.fetch("t", max_wait_ms=0) == (0, [])
        assert remote.asked == [Asked(0, 0)] * 2

    run(test, **PATIENT)


def test_an_error_at_once_and_an_error_later() -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)
        remote.hold(0, 1, TROUBLE)
        error = int(ErrorCode.KAFKA_STORAGE_ERROR)
        assert await client.fetch("t", 1, max_wait_ms=LONG_MS) == (error, [])
        fetching = await begun(rig, client, "t", part())
        remote.come(0, 0, TROUBLE)
        assert found_in(await fetching) == {0: (error, [])}
        # The log on the broker's disk works as before.
        assert (await client.produce("t", batch(b"more"))).error_code == 0
        assert await client.fetch("t", RECORDS) == (0, [b"more"])

    run(test, **PATIENT)


def test_without_a_remote_dir_the_error_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(1, **TIERED)
        rig.brokers[1].replica_manager.remote_reads = NoRemoteReads()
        await fill_and_move(rig, client)
        error = int(ErrorCode.KAFKA_STORAGE_ERROR)
        assert await client.fetch("t", 2, max_wait_ms=LONG_MS) == (error, [])
        assert (
            "t-0: offset 2 of t-0 is in a remote_dir, and this cluster was started without one; "
            "start it with its remote_dir" in caplog.text
        )
        assert await client.fetch("t", LOCAL_START) == (0, [b"local 4"])

    run(test, **PATIENT)


def test_offsets_below_the_log_start_are_out_of_range_and_not_looked_for() -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)
        partition = rig.brokers[1].replica_manager.find("t", 0)
        rig.brokers[1].replica_manager.carry_out(partition.delete_records(2))
        remote.hold(0, 2, stored(2))
        assert await client.fetch("t", 1) == (int(ErrorCode.OFFSET_OUT_OF_RANGE), [])
        assert await client.fetch("t", 2) == (0, [b"remote 2"])
        assert remote.asked == [Asked(0, 2)]

    run(test, **PATIENT)


def test_local_records_do_not_wait_for_the_bucket() -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig, 3)
        await client.produce("t", batch(b"other"), partition=1)
        parts = (part(0), part(1), part(2))
        nothing: tuple[int, list[bytes | None]] = (0, [])
        response = await client.fetch_all("t", parts, max_wait_ms=LONG_MS)
        assert found_in(response) == {0: nothing, 1: (0, [b"other"]), 2: nothing}
        # Local records that come end the wait too.
        fetching = await begun(rig, client, "t", part(0), part(1, 1), part(2))
        await (await rig.client()).produce("t", batch(b"new"), partition=2)
        assert found_in(await fetching) == {0: nothing, 1: nothing, 2: (0, [b"new"])}
        # What comes from the bucket does not wait for min_bytes.
        fetching = await begun(rig, client, "t", part(0), part(1, 0), part(2, 1), min_bytes=1 << 19)
        remote.come(0, 0, stored(0))
        assert found_in(await fetching) == {
            0: (0, [b"remote 0"]),
            1: (0, [b"other"]),
            2: nothing,
        }

    run(test, **PATIENT)


def test_several_partitions_with_records_in_the_bucket() -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig, 2)
        await fill_and_move(rig, client, 1)
        fetching = await begun(rig, client, "t", part(0), part(1, 2))
        remote.come(1, 2, stored(2))
        assert found_in(await fetching) == {0: (0, []), 1: (0, [b"remote 2"])}
        remote.hold(0, 0, TROUBLE)
        response = await client.fetch_all("t", (part(0), part(1, 2)))
        assert found_in(response) == {
            0: (int(ErrorCode.KAFKA_STORAGE_ERROR), []),
            1: (0, [b"remote 2"]),
        }

    run(test, **PATIENT)


def test_limits_hold_but_one_batch_always_comes() -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig, 2)
        await fill_and_move(rig, client, 1)
        remote.hold(0, 0, stored(0))
        remote.hold(1, 0, stored(0))
        size = len(stored(0))

        async def ask(limits: tuple[int, int], **more: int) -> list[bool]:
            """Which partitions have records."""
            remote.asked.clear()
            remote.regions.clear()
            parts = (part(0, 0, limits[0]), part(1, 0, limits[1]))
            response = await client.fetch_all("t", parts, max_wait_ms=LONG_MS, **more)
            assert all(region.released for region in remote.regions)
            return [bool(values) for _, values in found_in(response).values()]

        big = 1 << 20
        assert await ask((big, big)) == [True, True]
        assert remote.asked == [Asked(0, 0, big), Asked(1, 0, big - size)]
        assert await ask((size - 1, size - 1)) == [True, False]
        assert remote.asked == [Asked(0, 0, size - 1), Asked(1, 0, size - 1)]
        assert await ask((big, size)) == [True, True]
        assert await ask((big, big), max_bytes=size) == [True, False]
        assert remote.asked == [Asked(0, 0, size)], "the response has no room for more"
        assert await ask((0, 0)) == [True, False]
        assert remote.asked == [Asked(0, 0, 0)]

    run(test, **{**PATIENT, "fetch_max_bytes": str(1 << 20)})


def test_a_reader_of_committed_records_gets_aborted_transactions() -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)
        remote.hold(0, 0, stored(0))
        remote.aborted = (AbortedTxn(7, 0, 3, 2),)

        async def ask(isolation: Isolation) -> Any:
            response = await client.fetch_all("t", (part(),), isolation_level=int(isolation))
            ((data,),) = [topic.partitions for topic in response.responses]
            return data.aborted_transactions

        assert await ask(Isolation.READ_UNCOMMITTED) is None
        assert await ask(Isolation.READ_COMMITTED) == (
            AbortedTransaction(producer_id=7, first_offset=0),
        )
        assert [asked.with_aborted for asked in remote.asked] == [False, True]

    run(test, **PATIENT)


def test_what_a_reader_may_not_see_yet_is_not_read_from_the_bucket() -> None:
    """A follower's files may begin above the last stable offset that it knows."""

    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)
        partition = rig.brokers[1].replica_manager.find("t", 0)
        transactions = partition.producers.transactions
        transactions.restart({1: 7})  # by first offset
        committed = {"isolation_level": int(Isolation.READ_COMMITTED), "max_wait_ms": 0}
        assert await client.fetch("t", 2, **committed) == (0, [])
        assert remote.asked == []
        remote.hold(0, 0, stored(0))
        assert await client.fetch("t", 0, **committed) == (0, [b"remote 0"])
        assert remote.ends == [1], "what lies above is not sent"
        transactions.restart({})

    run(test, **PATIENT)


def test_a_reader_who_is_sent_elsewhere_reads_nothing_from_the_bucket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)
        monkeypatch.setattr(
            "sparklog.executors.replica_manager.log_reads.closest_replica", lambda *_: 9
        )
        partition = rig.brokers[1].replica_manager.find("t", 0)
        monkeypatch.setattr(type(partition), "followers_with", lambda *_: [(9, RECORDS)])
        response = await client.fetch_all("t", (part(),), rack_id="there", max_wait_ms=LONG_MS)
        ((data,),) = [topic.partitions for topic in response.responses]
        assert (data.preferred_read_replica, values_of(data.records)) == (9, [])
        assert remote.asked == []

    run(test, **PATIENT)


@pytest.mark.parametrize("reset", [True, False])
def test_a_fetch_does_not_outlive_its_connection(reset: bool) -> None:
    async def test(rig: Rig) -> None:
        client, _, remote = await tiered(rig)
        replica_manager = rig.brokers[1].replica_manager
        sock = await send(rig, waiting_fetch())
        await until(lambda: waiting_fetches(replica_manager) == 1)
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        sock.close()
        await until(lambda: waiting_fetches(replica_manager) == 0)
        asked = len(remote.asked)
        remote.come(0, 0, stored(0))
        assert len(remote.asked) == asked
        assert await client.fetch("t") == (0, [b"remote 0"])
        assert rig.brokers[1].status()["request_errors"] == 0

    run(test, **PATIENT)


def test_a_role_that_ends_ends_the_wait() -> None:
    async def test(rig: Rig) -> None:
        client, _, _ = await tiered(rig)
        fetching = await begun(rig, client, "t", part())
        rig.brokers[1].replica_manager.drop_roles()
        response = await fetching
        assert found_in(response) == {0: (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), [])}

    run(test, **PATIENT)


def test_records_that_the_bucket_lacks_are_not_out_of_range() -> None:
    """A client would go on at another offset."""

    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(1, **TIERED)
        await fill_and_move(rig, client)
        error = int(ErrorCode.KAFKA_STORAGE_ERROR)
        assert await client.fetch("t", 2, max_wait_ms=LONG_MS) == (error, [])

    run(test, **PATIENT)
