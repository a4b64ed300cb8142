"""Replicas on several real brokers in one loop: copied, in sync, elected, truncated."""

import asyncio
from collections.abc import Sequence

from sparklog.errors import ErrorCode
from sparklog.executors.partition.partition import Partition
from sparklog.storage_backends.memory_disk import forget_disk
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.fetch import FetchPartition
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Rig, run, values_of

TP = TopicPartition("t", 0)
IDS = (1, 2, 3)


def replica(rig: Rig, broker_id: int, tp: TopicPartition = TP) -> Partition:
    partition = rig.brokers[broker_id].replica_manager.get(tp)
    assert partition is not None
    return partition


def log_bytes(partition: Partition) -> bytes:
    """All batches of a log, as they are on the disk."""
    log = partition.log
    if log.log_start_offset == log.log_end_offset:
        return b""
    found = log.read(log.log_start_offset, 1 << 30, end_offset=log.log_end_offset)
    assert found.region is not None
    try:
        return found.region.read()
    finally:
        found.region.release()


async def three(rig: Rig, **configs: str) -> None:
    """Three brokers and topic ``t`` with three replicas of one partition, all in sync."""
    for broker_id in IDS:
        await rig.start_broker(broker_id)
    client = await rig.client(1)
    await client.create_topic("t", replication_factor=3, **configs)
    await in_sync(rig, IDS)


async def in_sync(rig: Rig, ids: Sequence[int], tp: TopicPartition = TP) -> int:
    """Wait until these replicas, and no others, are in sync for everybody; the leader."""

    def agreed() -> bool:
        held = [b.replica_manager.get(tp) for b in rig.brokers.values()]
        states = [b.replica_manager.image.partition(tp) for b in rig.brokers.values()]
        states += [p.state if p is not None else None for p in held]
        return all(
            state is not None and set(state.isr) == set(ids) and state.leader in ids
            for state in states
        )

    await until(agreed)
    state = rig.control.image.partition(tp)
    assert state is not None
    return state.leader


async def same_logs(rig: Rig, ids: Sequence[int], tp: TopicPartition = TP) -> bytes:
    """Wait until these replicas have everything and know it; what they have."""

    def same() -> bool:
        ends = {
            (replica(rig, i, tp).log.log_end_offset, replica(rig, i, tp).high_watermark)
            for i in ids
        }
        return len(ends) == 1 and len(set(ends.pop())) == 1

    await until(same)
    (found,) = {log_bytes(replica(rig, i, tp)) for i in ids}
    return found


def test_records_are_replicated_byte_by_byte() -> None:
    async def test(rig: Rig) -> None:
        await three(rig)
        leader = await in_sync(rig, IDS)
        client = await rig.client(leader)
        for number in range(5):
            result = await client.produce("t", batch(b"%d" % number, b"x" * 5000))
            assert result.error_code == 0
        found = await same_logs(rig, IDS)
        assert len(found) > 25_000

    run(test)


def test_acks_all_waits_for_the_slowest_in_sync_replica() -> None:
    async def test(rig: Rig) -> None:
        await three(rig)
        leader = await in_sync(rig, IDS)
        slow = next(i for i in IDS if i != leader)
        client = await rig.client(leader)
        await client.produce("t", batch(b"a"))
        await rig.brokers[slow].replication.close()
        waiting = asyncio.create_task(client.produce("t", batch(b"b"), timeout_ms=20_000))
        others = [i for i in IDS if i != slow]
        await until(lambda: all(replica(rig, i).log.log_end_offset == 2 for i in others))
        assert not waiting.done()
        assert replica(rig, leader).high_watermark == 1
        # It lags, leaves the ISR, and nobody waits for it any more.
        assert (await waiting).error_code == 0
        assert await in_sync(rig, others) == leader
        status = await rig.status(leader)
        assert (status["isr_shrinks"], status["under_replicated"]) == (1, 1)

    run(test, replica_lag_time_max_ms="2500")


def test_a_dead_leaders_successor_has_everything_acknowledged() -> None:
    async def test(rig: Rig) -> None:
        await three(rig, min_insync_replicas="2")
        leader = await in_sync(rig, IDS)
        client = await rig.client(leader)
        for number in range(10):
            assert (await client.produce("t", batch(b"%d" % number))).error_code == 0
        await rig.crash_broker(leader)
        await rig.report_broker_death(leader)
        others = [i for i in IDS if i != leader]
        successor = await in_sync(rig, others)
        client = await rig.client(successor)
        assert (await client.produce("t", batch(b"more"))).error_code == 0
        code, values = await client.fetch("t")
        assert (code, values) == (0, [*(b"%d" % n for n in range(10)), b"more"])
        assert len(await same_logs(rig, others)) > 0
        # It comes back, copies what it missed, and is in sync again.
        await rig.start_broker(leader)
        await in_sync(rig, IDS)
        await same_logs(rig, IDS)

    run(test)


def test_what_an_old_leader_alone_had_is_truncated_when_it_follows() -> None:
    async def test(rig: Rig) -> None:
        await three(rig)
        leader = await in_sync(rig, IDS)
        others = [i for i in IDS if i != leader]
        client = await rig.client(leader)
        assert (await client.produce("t", batch(b"a"))).error_code == 0
        await same_logs(rig, IDS)
        for i in others:
            await rig.brokers[i].replication.stop_fetching(TP)
        # Nobody copies this one, and the leader dies with it.
        assert (await client.produce("t", batch(b"lost"), acks=1)).error_code == 0
        await rig.crash_broker(leader)
        await rig.report_broker_death(leader)
        successor = await in_sync(rig, others)
        client = await rig.client(successor)
        assert (await client.produce("t", batch(b"b"))).error_code == 0
        await rig.start_broker(leader)
        await in_sync(rig, IDS)
        await same_logs(rig, IDS)
        assert await client.fetch("t") == (0, [b"a", b"b"])
        status = await rig.status(leader)
        assert (status["truncations"], status["offsets_truncated"]) == (1, 1)

    run(test)


def test_a_replica_with_a_new_directory_copies_everything() -> None:
    async def test(rig: Rig) -> None:
        await three(rig)
        leader = await in_sync(rig, IDS)
        follower = next(i for i in IDS if i != leader)
        client = await rig.client(leader)
        await client.produce("t", batch(b"a", b"b"))
        await rig.crash_broker(follower)
        forget_disk(rig.disk_name_of(follower))
        await rig.report_broker_death(follower)
        await client.produce("t", batch(b"c"))
        await rig.start_broker(follower)
        await in_sync(rig, IDS)
        await same_logs(rig, IDS)

    run(test)


def test_a_replica_that_ends_before_the_leader_begins_starts_over() -> None:
    async def test(rig: Rig) -> None:
        await three(rig)
        leader = await in_sync(rig, IDS)
        follower = next(i for i in IDS if i != leader)
        client = await rig.client(leader)
        await client.produce("t", batch(b"a"))
        await same_logs(rig, IDS)
        await rig.stop_broker(follower)
        for value in (b"b", b"c", b"d"):
            assert (await client.produce("t", batch(value))).error_code == 0
        gone = replica(rig, leader)
        rig.brokers[leader].replica_manager.carry_out(gone.delete_records(3))
        await rig.start_broker(follower)
        await in_sync(rig, IDS)
        log = replica(rig, follower).log
        await until(lambda: (log.log_start_offset, log.log_end_offset) == (3, 4))
        assert await client.fetch("t", 3) == (0, [b"d"])

    run(test)


def test_a_broker_that_stops_follows_nobody_again_when_a_late_flush_ends() -> None:
    """It would truncate logs that are closed, below what the checkpoint of the stop says."""

    async def test(rig: Rig) -> None:
        await three(rig)
        leader = await in_sync(rig, IDS)
        follower = rig.brokers[next(i for i in IDS if i != leader)]
        assert follower.replication.as_json()["leaders_followed"] == 1
        await follower.replication.close()
        follower.replication.resume(TP)
        assert follower.replication.as_json()["leaders_followed"] == 0

    run(test)


def test_idle_replicas_stay_in_sync_and_cost_one_fetch_per_wait() -> None:
    async def test(rig: Rig) -> None:
        await three(rig)
        leader = await in_sync(rig, IDS)
        replica_manager = rig.brokers[leader].replica_manager
        await until(lambda: replica_manager.delayed_operations.sessions.incremental_fetches > 8)
        fetches = (await rig.status(leader))["requests"]["1"]
        began = asyncio.get_running_loop().time()
        await until(lambda: replica_manager.delayed_operations.sessions.incremental_fetches > 20)
        took_s = asyncio.get_running_loop().time() - began
        made = (await rig.status(leader))["requests"]["1"] - fetches
        assert made <= 2 * (took_s / 0.2 + 2)
        assert (await rig.status(leader))["isr_shrinks"] == 0
        assert await in_sync(rig, IDS) == leader

    run(test, replica_lag_time_max_ms="500", replica_fetch_wait_max_ms="200")


def test_a_high_watermark_reaches_followers_that_wait_at_once() -> None:
    async def test(rig: Rig) -> None:
        await three(rig)
        leader = await in_sync(rig, IDS)
        client = await rig.client(leader)
        began = asyncio.get_running_loop().time()
        for _ in range(3):
            await client.produce("t", batch(b"a"))
            await same_logs(rig, IDS)
        assert asyncio.get_running_loop().time() - began < 20

    run(test, replica_fetch_wait_max_ms="25000")


def test_many_partitions_change_hands_together() -> None:
    async def test(rig: Rig) -> None:
        for broker_id in IDS:
            await rig.start_broker(broker_id)
        client = await rig.client(1)
        await client.create_topic("t", 30, replication_factor=3)
        parts = [TopicPartition("t", n) for n in range(30)]
        for tp in parts:
            await in_sync(rig, IDS, tp)
        await rig.crash_broker(3)
        await rig.report_broker_death(3)
        for tp in parts:
            leader = await in_sync(rig, (1, 2), tp)
            client = await rig.client(leader)
            result = await client.produce("t", batch(b"a"), partition=tp.partition)
            assert result.error_code == 0
        await rig.start_broker(3)
        for tp in parts:
            await in_sync(rig, IDS, tp)
            await same_logs(rig, IDS, tp)

    run(test)


def test_a_consumer_is_sent_to_the_replica_in_its_rack_and_reads_there() -> None:
    async def test(rig: Rig) -> None:
        for broker_id in IDS:
            await rig.start_broker(broker_id, executor_host=f"host-{broker_id}")
        client = await rig.client(1)
        await client.create_topic("t", replication_factor=3)
        leader = await in_sync(rig, IDS)
        near = next(i for i in IDS if i != leader)
        client = await rig.client(leader)
        await client.produce("t", batch(b"a"))
        await same_logs(rig, IDS)
        part = (FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20),)

        async def ask(
            broker_id: int, rack: str, version: int = 11
        ) -> tuple[int, int, list[bytes | None]]:
            reader = await rig.client(broker_id)
            answer = await reader.fetch_all("t", part, version=version, rack_id=rack, max_wait_ms=0)
            ((data,),) = [topic.partitions for topic in answer.responses]
            return data.error_code, data.preferred_read_replica, values_of(data.records)

        assert await ask(leader, f"host-{near}") == (0, near, [])
        assert await ask(leader, f"host-{leader}") == (0, -1, [b"a"])
        assert await ask(leader, "elsewhere") == (0, -1, [b"a"])
        assert await ask(near, f"host-{near}") == (0, -1, [b"a"])
        not_leader = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert await ask(near, f"host-{near}", version=10) == (not_leader, -1, [])

    run(test)


def test_a_reader_at_a_follower_waits_for_its_high_watermark() -> None:
    async def test(rig: Rig) -> None:
        await three(rig)
        leader = await in_sync(rig, IDS)
        follower = next(i for i in IDS if i != leader)
        client, reader = await rig.client(leader), await rig.client(follower)
        waiting = asyncio.create_task(reader.fetch("t", 0, max_wait_ms=20_000))
        readers = rig.brokers[follower].replica_manager.delayed_operations.consumer_fetches
        await until(lambda: len(readers) == 1)
        await client.produce("t", batch(b"a"))
        assert await waiting == (0, [b"a"])

    run(test)
