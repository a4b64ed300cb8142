"""DataFrame reads of several partitions, while real producers commit transactions to real brokers.

A value is ``name:number`` of its transaction, which writes one record to each partition.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.consistent_cut_api import consistent_cut
from sparklog.client.data_client import DataClient
from sparklog.client.deadline import Deadline
from sparklog.client.producer import Producer
from sparklog.client.producer_options import ProducerOptions
from sparklog.dataframe.options import ConsistentCut, ReadOptions
from sparklog.dataframe.read.pushdown import Narrowing
from sparklog.dataframe.read.read_planner import plan_read
from sparklog.dataframe.read.reader import TopicReader
from sparklog.dataframe.schema import read_schema
from sparklog.driver.control_plane.handlers.consistent_cut import PARTITIONS_MAX
from sparklog.driver.transaction_coordinator.marker_sender import MarkerSender
from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.types import Endpoint, TopicPartition
from sparklog.wire.protocol.private_clients import ConsistentCutRequest, CutTopic
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Rig, run

PARTITIONS = 4
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SETTINGS = {
    "transaction_state_log_num_partitions": "2",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
}


async def with_topic(rig: Rig, partitions: int) -> ClusterClient:
    """Two brokers that share the partitions of topic ``t``."""
    for broker_id in (1, 2):
        await rig.start_broker(broker_id)
    await (await rig.client()).create_topic("t", partitions)
    return ClusterClient([Endpoint("127.0.0.1", rig.control.port)])


async def begun(cluster: ClusterClient, name: str) -> Producer:
    producer = Producer(cluster, ProducerOptions(transactional_id=name, linger_ms=0))
    await producer.init_transactions()
    return producer


async def write(producer: Producer, name: str, number: int, partitions: int) -> None:
    for partition in range(partitions):
        await producer.send("t", b"%s:%d" % (name.encode(), number), partition=partition)


def options(rig: Rig, choice: ConsistentCut) -> ReadOptions:
    return ReadOptions(
        bootstrap=(Endpoint("127.0.0.1", rig.control.port),),
        topics=("t",),
        consistent_cut=choice,
        poll_timeout_ms=20_000,
    )


def read(given: ReadOptions) -> Counter[str]:
    """How many records of each transaction a DataFrame has.  Blocks."""
    reader = TopicReader(given, read_schema(include_headers=False))
    return Counter(
        value.decode()
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for value in batch.column("value").to_pylist()
    )


def cuts(rig: Rig) -> tuple[int, int]:
    """The cuts that node 0 has taken, and those that failed."""
    told = rig.control.transaction_coordinator.as_json()
    return told["consistent_cuts"], told["failed_consistent_cuts"]


@contextmanager
def slow_markers(broker_id: int) -> Iterator[None]:
    """The markers to one broker take longer than those to others."""
    send_some = MarkerSender._send_some

    async def slow(self: MarkerSender, to: int, markers: Any) -> None:
        if to == broker_id:
            await asyncio.sleep(0.02)
        await send_some(self, to, markers)

    with patch.object(MarkerSender, "_send_some", slow):
        yield


def torn(found: Counter[str]) -> set[str]:
    return {name for name, count in found.items() if count != PARTITIONS}


def test_no_read_tears_a_transaction_while_producers_commit() -> None:
    async def test(rig: Rig) -> None:
        cluster = await with_topic(rig, PARTITIONS)
        over = asyncio.Event()

        async def produce(name: str) -> int:
            producer = await begun(cluster, name)
            number = 0
            while not over.is_set():
                producer.begin_transaction()
                await write(producer, name, number, PARTITIONS)
                await producer.commit_transaction()
                number += 1
            await producer.close()
            return number

        async def found(choice: ConsistentCut) -> Counter[str]:
            return await asyncio.to_thread(read, options(rig, choice))

        async with cluster:
            producing = [asyncio.create_task(produce(name)) for name in ("a", "b", "c")]
            while not torn(await found(ConsistentCut.OFF)):
                assert not any(task.done() for task in producing)
            seen: set[str] = set()
            for _ in range(30):
                read_now = await found(ConsistentCut.REQUIRE)
                assert torn(read_now) == set()
                assert seen <= read_now.keys()
                seen = set(read_now)
            over.set()
            committed = await asyncio.gather(*producing)
        assert len(await found(ConsistentCut.REQUIRE)) == sum(committed)
        assert min(committed) > 3
        assert cuts(rig)[0] == 31

    with slow_markers(broker_id=2):
        run(test, **SETTINGS)


@contextmanager
def late_markers(partition: int) -> Iterator[list[bool]]:
    """The leader of a partition of ``t`` takes no markers while the list has an entry."""
    late = [True]
    end_transaction = ReplicaManager.end_transaction

    def refusing(self: ReplicaManager, where: Any, end: Any) -> Any:
        if late and where.topic_partition == TopicPartition("t", partition):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "later")
        return end_transaction(self, where, end)

    with patch.object(ReplicaManager, "end_transaction", refusing):
        yield late


def test_a_marker_that_is_late_tears_a_transaction_only_without_a_cut() -> None:
    async def test(rig: Rig) -> None:
        cluster = await with_topic(rig, 2)

        async def ends(choice: ConsistentCut) -> dict[TopicPartition, int]:
            ranges = await plan_read(DataClient(cluster), options(rig, choice), Narrowing())
            return {item.topic_partition: item.end for item in ranges}

        async with cluster:
            producer = await begun(cluster, "a")
            with late_markers(1) as late:
                producer.begin_transaction()
                await write(producer, "a", 0, 2)
                await producer.commit_transaction()
                async with asyncio.timeout(20):
                    while not (without := await ends(ConsistentCut.OFF)):
                        await asyncio.sleep(0.01)
                assert without == {T0: 2}  # a record and its marker; nothing of partition 1
                reading = asyncio.create_task(ends(ConsistentCut.PREFER))
                await asyncio.wait((reading,), timeout=0.2)
                assert not reading.done()
                late.clear()
                assert await reading == {T0: 2, T1: 2}
            assert cuts(rig) == (1, 0)
            await producer.close()

    run(test, **SETTINGS)


def test_a_cut_fails_in_time_and_producers_go_on() -> None:
    async def test(rig: Rig) -> None:
        cluster = await with_topic(rig, 2)

        async def cut(max_wait_ms: int) -> dict[TopicPartition, int] | None:
            return await consistent_cut(
                cluster, (T0, T1), max_wait_ms=max_wait_ms, deadline=Deadline(20)
            )

        async with cluster:
            first, second = await begun(cluster, "a"), await begun(cluster, "b")
            with late_markers(1) as late:
                first.begin_transaction()
                await write(first, "a", 0, 2)
                await first.commit_transaction()
                with pytest.raises(KafkaError, match="transaction 'a' was open in t-1") as caught:
                    await cut(300)
                assert caught.value.code in (
                    ErrorCode.REQUEST_TIMED_OUT,
                    ErrorCode.CONCURRENT_TRANSACTIONS,
                )
                # It waited, and the transaction of another producer begins and ends.
                second.begin_transaction()
                await write(second, "b", 0, 2)
                await second.commit_transaction()
                late.clear()
            async with asyncio.timeout(20):
                assert await cut(10_000) == {T0: 4, T1: 4}
            await first.close()
            await second.close()

    run(test, **SETTINGS)


def test_a_cut_before_there_were_transactions() -> None:
    async def test(rig: Rig) -> None:
        async with await with_topic(rig, 2) as cluster:
            await cluster.refresh((), Deadline(20))
            found = await consistent_cut(
                cluster, (T0, T1), max_wait_ms=10_000, deadline=Deadline(20)
            )
            assert found == {T0: 0, T1: 0}

    run(test)


def test_bad_requests() -> None:
    async def test(rig: Rig) -> None:
        async with await with_topic(rig, 2) as cluster:
            await cluster.refresh((), Deadline(20))

            async def code(*topics: CutTopic, max_wait_ms: int = 5_000) -> ErrorCode:
                request = ConsistentCutRequest(max_wait_ms=max_wait_ms, topics=topics)
                answer = await cluster.ask(request, Deadline(20), 0)
                return ErrorCode(answer.error_code)

            both = CutTopic(name="t", partitions=(0, 1))
            assert await code(both, both) == ErrorCode.NONE
            assert await code() == ErrorCode.NONE
            assert await code(both, max_wait_ms=2**31 - 1) == ErrorCode.NONE
            assert await code(both, max_wait_ms=-1) in (
                ErrorCode.NONE,
                ErrorCode.REQUEST_TIMED_OUT,
            )
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await code(both, CutTopic(name="other", partitions=(0,))) == unknown
            assert await code(CutTopic(name="t", partitions=(-1,))) == unknown
            many = CutTopic(name="t", partitions=tuple(range(PARTITIONS_MAX + 1)))
            assert await code(many) == ErrorCode.INVALID_REQUEST
            await until(lambda: cuts(rig)[0] >= 3)

    run(test)
