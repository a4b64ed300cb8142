"""The producer and the consumer against real servers."""

import asyncio
from typing import Any

import pytest

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.consumer import ConsumedRecord, Consumer, ConsumerOptions
from sparklog.client.data_client import DataClient
from sparklog.client.deadline import Deadline
from sparklog.client.partitioner import partition_of_key
from sparklog.client.producer import Producer
from sparklog.client.producer_batches import Delivered
from sparklog.client.producer_options import ProducerOptions
from sparklog.errors import ClosedError, ErrorCode, KafkaError
from sparklog.types import Compression, OffsetSpec, TimestampType, TopicPartition
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import Record, encode_batch
from tests.unit.client.small_cluster import SmallCluster, run_cluster

FETCH, PRODUCE, INIT_PRODUCER_ID = 1, 0, 22
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def read(client: ClusterClient, tp: TopicPartition, count: int) -> list[ConsumedRecord]:
    async with Consumer(client) as consumer:
        await consumer.assign([tp])
        found: list[ConsumedRecord] = []
        while len(found) < count:
            found += await consumer.poll(30)
        return found


@pytest.mark.parametrize("compression", list(Compression))
def test_records_come_back_as_they_were_sent(compression: Compression) -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        async with Producer(client, ProducerOptions(compression=compression)) as producer:
            sent = await producer.send(
                "t", b"value", b"key", timestamp=1234, headers=(("h", b"1"), ("n", None))
            )
            await producer.send("t", None, timestamp=1235)
        assert sent.result() == Delivered(topic="t", partition=0, offset=0, timestamp=1234)
        assert await read(client, T0, 2) == [
            ConsumedRecord(
                topic="t",
                partition=0,
                offset=0,
                timestamp=1234,
                timestamp_type=TimestampType.CREATE_TIME,
                key=b"key",
                value=b"value",
                headers=(("h", b"1"), ("n", None)),
            ),
            ConsumedRecord(
                topic="t",
                partition=0,
                offset=1,
                timestamp=1235,
                timestamp_type=TimestampType.CREATE_TIME,
                key=None,
                value=None,
                headers=(),
            ),
        ]

    run_cluster(test)


def test_keys_go_where_java_puts_them_and_order_holds() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", leaders=(1, 2))
        options = ProducerOptions(batch_bytes=500)
        async with Producer(client, options) as producer:
            for number in range(1000):
                await producer.send("t", b"%d" % number, b"key-%d" % (number % 10))
        for tp in (T0, T1):
            expected = [
                b"%d" % n
                for n in range(1000)
                if partition_of_key(b"key-%d" % (n % 10), 2) == tp.partition
            ]
            assert [r.value for r in await read(client, tp, len(expected))] == expected
        assert len(cluster.logs[T0].batches) > 5

    run_cluster(test)


def test_records_that_are_sent_together_share_batches() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        async with Producer(client, ProducerOptions(linger_ms=50)) as producer:
            for _ in range(100):
                await producer.send("t", b"v")
        assert [(base, end) for base, end, _ in cluster.logs[T0].batches] == [(0, 100)]

    run_cluster(test)


def test_a_lost_answer_is_asked_for_again_and_nothing_is_written_twice() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        cluster.refuse(PRODUCE, None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        async with Producer(client) as producer:
            first = await producer.send("t", b"a")
            await producer.flush()
            second = await producer.send("t", b"b")
        assert (first.result().offset, second.result().offset) == (0, 1)
        assert [r.value for r in await read(client, T0, 2)] == [b"a", b"b"]
        headers = [header for _, _, batch in cluster.logs[T0].batches
                   for header, _ in iter_batches(batch)]  # fmt: skip
        assert [(h.producer_id, h.base_sequence) for h in headers] == [(1001, 0), (1001, 1)]

    run_cluster(test)


def test_after_an_unknown_fate_a_partition_goes_on_with_a_fresh_producer_id() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", leaders=(1, 1))
        producer = Producer(client, ProducerOptions(delivery_timeout_s=1.0))
        await producer.send("t", b"other", partition=1)
        await producer.flush()
        cluster.refuse(PRODUCE, *[ErrorCode.REQUEST_TIMED_OUT] * 1000)
        lost = await producer.send("t", b"lost", partition=0)
        with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
            await producer.flush()
        assert lost.exception() is not None
        cluster.refuse(PRODUCE)
        await producer.send("t", b"next", partition=0)
        await producer.send("t", b"same", partition=1)
        await producer.close()
        ids = {
            tp: [h.producer_id for _, _, b in cluster.logs[tp].batches for h, _ in iter_batches(b)]
            for tp in (T0, T1)
        }
        assert ids == {T0: [1002], T1: [1001, 1001]}

    run_cluster(test)


def test_a_refused_record_fails_its_own_future_and_the_flush() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        producer = Producer(client)
        cluster.refuse(PRODUCE, ErrorCode.MESSAGE_TOO_LARGE)
        refused = await producer.send("t", b"huge")
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await producer.flush()
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            refused.result()
        fine = await producer.send("t", b"fine")
        await producer.close()
        assert fine.result().offset == 0
        with pytest.raises(ClosedError, match="the producer is closed"):
            await producer.send("t", b"late")

    run_cluster(test)


def test_a_batch_that_is_too_large_is_sent_in_halves_in_order() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        too_large, fine = ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE
        # All five, the first two, the first alone; then the second, and the other three.
        cluster.refuse(PRODUCE, too_large, too_large, too_large, fine, fine)
        producer = Producer(client, ProducerOptions(linger_ms=50))
        sent = [await producer.send("t", b"%d" % number) for number in range(5)]
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await producer.flush()
        assert [future.exception() is not None for future in sent] == [True, *[False] * 4]
        assert [future.result().offset for future in sent[1:]] == [0, 1, 2, 3]
        await producer.send("t", b"next")
        await producer.close()
        values = [record.value for record in await read(client, T0, 5)]
        assert values == [b"1", b"2", b"3", b"4", b"next"]
        headers = [header for _, _, batch in cluster.logs[T0].batches
                   for header, _ in iter_batches(batch)]  # fmt: skip
        assert [h.base_sequence for h in headers] == [0, 1, 4]
        assert len({h.producer_id for h in headers}) == 1

    run_cluster(test)


def test_a_batch_that_may_be_written_already_is_not_sent_in_halves() -> None:
    """The first response was lost, and then the topic allows only smaller batches."""

    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        cluster.refuse(PRODUCE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.MESSAGE_TOO_LARGE)
        producer = Producer(client, ProducerOptions(linger_ms=50))
        sent = [await producer.send("t", b"%d" % number) for number in range(5)]
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await producer.flush()
        assert [future.exception() is not None for future in sent] == [True] * 5
        assert cluster.logs[T0].batches == []
        await producer.close()

    run_cluster(test)


def test_closing_in_time_ends_the_futures_of_every_part_of_a_batch() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        unavailable = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000
        cluster.refuse(PRODUCE, *[ErrorCode.MESSAGE_TOO_LARGE] * 2, *unavailable)
        producer = Producer(client, ProducerOptions(linger_ms=50))
        sent = [await producer.send("t", b"%d" % number) for number in range(4)]
        with pytest.raises(TimeoutError):
            await producer.close(0.5)
        assert [future.done() for future in sent] == [True] * 4
        for future in sent:
            with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
                future.result()

    run_cluster(test)


def test_a_record_that_cannot_be_encoded_fails_its_future_and_the_flush() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        async with Producer(client) as producer:
            text: Any = "no bytes"
            refused = await producer.send("t", text)
            with pytest.raises(TypeError, match="bytes"):
                await producer.flush()
            with pytest.raises(TypeError, match="bytes"):
                refused.result()
            fine = await producer.send("t", b"fine")
        assert fine.result().offset == 0

    run_cluster(test)


@pytest.mark.parametrize("acks", [0, 1])
def test_weaker_acks_do_not_take_a_producer_id(acks: int) -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        async with Producer(client, ProducerOptions(acks=acks)) as producer:
            sent = await producer.send("t", b"a")
        assert sent.result().offset == (0 if acks else -1)
        assert [r.value for r in await read(client, T0, 1)] == [b"a"]
        assert cluster.asked(INIT_PRODUCER_ID) == []

    run_cluster(test)


def test_a_full_buffer_makes_senders_wait_not_fail() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        options = ProducerOptions(buffer_bytes=2000, batch_bytes=1000, linger_ms=1000)
        async with Producer(client, options) as producer:
            for number in range(50):
                await producer.send("t", b"%03d" % number + bytes(200))
        assert cluster.logs[T0].end == 50

    run_cluster(test)


def test_a_missing_topic_is_created_by_sending() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        async with Producer(client) as producer:
            sent = await producer.send("new", b"a")
        assert sent.result().topic == "new"

    run_cluster(test)


async def fill(client: ClusterClient, tp: TopicPartition, count: int, per_batch: int = 3) -> None:
    data_client = DataClient(client)
    for start in range(0, count, per_batch):
        numbers = range(start, min(start + per_batch, count))
        batch = encode_batch([Record(value=b"%d" % n, timestamp=n) for n in numbers])
        await data_client.produce(tp, [batch])


def test_a_consumer_starts_where_it_is_told() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", leaders=(1, 2))
        await fill(client, T0, 8)
        await fill(client, T1, 2)
        async with Consumer(client) as consumer:
            await consumer.assign({T0: 4, T1: OffsetSpec.LATEST})
            assert consumer.assignment == {T0, T1}
            assert (consumer.position(T0), consumer.position(T1)) == (4, 2)
            found = await consumer.poll(30)
            assert [r.offset for r in found] == [4, 5, 6, 7]
            assert (consumer.position(T0), consumer.position(T1)) == (8, 2)
            assert await consumer.poll(0.05) == []
            await consumer.seek(T0, 7)
            assert [r.offset for r in await consumer.poll(30)] == [7]
            await consumer.seek(T1, OffsetSpec.EARLIEST)
            assert [(r.partition, r.value) for r in await consumer.poll(30)] == [
                (1, b"0"),
                (1, b"1"),
            ]
            with pytest.raises(KafkaError, match="other-0 is not assigned"):
                await consumer.seek(TopicPartition("other", 0), 0)

    run_cluster(test)


def test_a_poll_gives_no_more_than_asked_and_the_rest_next() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        await fill(client, T0, 8)
        async with Consumer(client) as consumer:
            await consumer.assign([T0])
            first = await consumer.poll(30, max_records=5)
            assert ([r.offset for r in first], consumer.position(T0)) == ([0, 1, 2, 3, 4], 5)
            assert [r.offset for r in await consumer.poll(30)] == [5, 6, 7]
            assert len(cluster.asked(FETCH)) == 1

    run_cluster(test)


def test_a_waiting_poll_is_woken_by_a_record() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", leaders=(1, 2))
        async with Consumer(client, ConsumerOptions(max_wait_ms=10_000)) as consumer:
            await consumer.assign([T0, T1])
            poll = asyncio.ensure_future(consumer.poll(10))
            while len(cluster.asked(FETCH)) < 2:
                await asyncio.sleep(0)
            await fill(client, T1, 1)
            assert [(r.partition, r.value) for r in await poll] == [(1, b"0")]

    run_cluster(test)


def test_control_batches_are_passed_over() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        marker = encode_batch(
            [Record(key=b"\0\0\0\1", value=b"")], control=True, transactional=True
        )
        await fill(client, T0, 1)
        await DataClient(client).produce(T0, [marker])
        await fill(client, T0, 1)
        assert [r.offset for r in await read(client, T0, 2)] == [0, 2]

    run_cluster(test)


def test_a_position_that_is_gone_is_an_error_unless_told_where_to_go_on() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        await fill(client, T0, 6)
        cluster.logs[T0].start = 3
        cluster.logs[T0].batches = cluster.logs[T0].batches[1:]
        async with Consumer(client) as consumer:
            await consumer.assign({T0: 0})
            with pytest.raises(KafkaError, match=r"OFFSET_OUT_OF_RANGE.*t-0"):
                await consumer.poll(30)
        options = ConsumerOptions(on_out_of_range=OffsetSpec.EARLIEST)
        async with Consumer(client, options) as consumer:
            await consumer.assign({T0: 0})
            assert [r.offset for r in await consumer.poll(30)] == [3, 4, 5]

    run_cluster(test)


def test_a_consumer_follows_a_moved_leader() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        async with Consumer(client, ConsumerOptions(max_wait_ms=20)) as consumer:
            await consumer.assign([T0])
            assert await consumer.poll(0.05) == []
            cluster.move(T0, 2)
            await fill(client, T0, 2)
            assert [r.offset for r in await consumer.poll(30)] == [0, 1]

    run_cluster(test)


def test_a_partition_without_leader_does_not_hold_up_the_others_and_is_found_later() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", leaders=(1, 2))
        async with Consumer(client, ConsumerOptions(max_wait_ms=20)) as consumer:
            await consumer.assign([T0, T1])
            cluster.move(T1, -1)
            await client.refresh(["t"], Deadline(30))
            await fill(client, T0, 1)
            assert [(r.partition, r.value) for r in await consumer.poll(30)] == [(0, b"0")]
            cluster.move(T1, 1)
            await fill(client, T1, 1)
            assert [(r.partition, r.value) for r in await consumer.poll(30)] == [(1, b"0")]

    run_cluster(test)


def test_records_without_end_can_be_iterated() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t")
        await fill(client, T0, 5)
        found = []
        async with Consumer(client) as consumer:
            await consumer.assign([T0])
            async for record in consumer.records():
                found.append(record.value)
                if len(found) == 5:
                    break
        assert found == [b"0", b"1", b"2", b"3", b"4"]

    run_cluster(test)


def test_a_closed_consumer_leaves_no_connection_behind() -> None:
    async def test(cluster: SmallCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", (1, 2))
        for number in range(3):
            await fill(client, TopicPartition("t", number % 2), 1)
        before = cluster.connections
        for _ in range(5):
            async with Consumer(client) as consumer:
                await consumer.assign([T0, T1])
                assert await consumer.poll(30)
                assert cluster.connections > before
        while cluster.connections > before:  # the servers notice it a moment later
            await asyncio.sleep(0.01)
        assert await read(client, T0, 2)

    run_cluster(test)
