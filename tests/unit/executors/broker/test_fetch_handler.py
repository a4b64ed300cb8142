"""Fetch and its relatives over the wire: limits, waiting, epochs, offsets, deletion."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sparklog.errors import ErrorCode
from sparklog.executors.controller_link.connection import ControllerConnection
from sparklog.executors.handlers import fetch, fetch_attempt
from sparklog.service.handler import RequestContext
from sparklog.types import Endpoint, OffsetSpec
from sparklog.wire.protocol.codec import RequestHeader
from sparklog.wire.protocol.fetch import MAX_VERSION, MIN_VERSION
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from sparklog.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from sparklog.wire.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from sparklog.wire.protocol.private import StopNodeRequest, StopNodeResponse
from tests.support.batches import batch
from tests.support.descriptors import open_files_in
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Rig, run, values_of

NOW = 1_700_000_000_000


def part(number: int = 0, offset: int = 0, limit: int = 1 << 20, **more: int) -> FetchPartition:
    return FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=limit, **more)


def codes(response: FetchResponse) -> list[int]:
    return [data.error_code for topic in response.responses for data in topic.partitions]


@pytest.mark.parametrize("version", range(MIN_VERSION, MAX_VERSION + 1))
def test_every_version_reads(version: int) -> None:
    async def test(rig: Rig) -> None:
        client, topic_id = await rig.with_topic()
        await client.produce("t", batch(b"a", b"b"))
        topic: str | UUID = topic_id if version >= 13 else "t"
        response = await client.fetch_all(topic, (part(),), version=version, isolation_level=1)
        (found,) = response.responses
        (data,) = found.partitions
        assert values_of(data.records) == [b"a", b"b"]
        assert (data.high_watermark, data.last_stable_offset) == (2, 2)
        assert data.log_start_offset == (0 if version >= 5 else -1)
        assert data.aborted_transactions == ()
        assert response.session_id == 0
        assert (found.topic, found.topic_id) == (("", topic_id) if version >= 13 else ("t", None))

    run(test)


def test_a_fetch_waits_for_enough_bytes() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(2)
        size = len(batch(b"a"))
        reader = await rig.client()
        waiting = asyncio.create_task(
            reader.fetch_all("t", (part(0), part(1)), min_bytes=2 * size, max_wait_ms=20_000)
        )
        readers = rig.brokers[1].replica_manager.delayed_operations.consumer_fetches
        await until(lambda: len(readers) == 1)
        await client.produce("t", batch(b"a"), partition=1)
        assert not waiting.done()
        assert len(readers) == 1
        await client.produce("t", batch(b"b"), partition=0)
        ((zero, one),) = [topic.partitions for topic in (await waiting).responses]
        assert (values_of(zero.records), values_of(one.records)) == ([b"b"], [b"a"])

    run(test)


def test_a_fetch_that_waits_is_answered_with_what_there_is() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        await client.produce("t", batch(b"a"))
        assert await client.fetch("t", min_bytes=1 << 20, max_wait_ms=30) == (0, [b"a"])
        assert await client.fetch("t", 1, max_wait_ms=30) == (0, [])

    run(test)


def test_an_error_in_one_partition_answers_at_once() -> None:
    async def test(rig: Rig) -> None:
        client, topic_id = await rig.with_topic()
        response = await client.fetch_all("t", (part(0), part(9)), max_wait_ms=20_000)
        assert codes(response) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        for offset in (-1, 1):
            code, _ = await client.fetch("t", offset, max_wait_ms=20_000)
            assert code == ErrorCode.OFFSET_OUT_OF_RANGE
        unknown = await client.fetch_all(UUID(int=5), (part(),), version=13, max_wait_ms=20_000)
        assert codes(unknown) == [ErrorCode.UNKNOWN_TOPIC_ID]
        epoch = rig.control.image.topics["t"].partitions[0].leader_epoch
        for held, code in (
            (epoch, 0),
            (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            parts = (part(current_leader_epoch=held),)
            assert codes(await client.fetch_all("t", parts, max_wait_ms=0)) == [code]
        assert topic_id in rig.brokers[1].replica_manager.image.topics_by_id

    run(test)


def test_limits_hold_but_one_batch_always_comes() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(2)
        for n in range(3):
            for number in range(2):
                await client.produce("t", batch(b"%d" % n), partition=number)
        size = len(batch(b"0"))

        async def counts(limits: tuple[int, int], **more: int) -> list[int]:
            parts = (part(0, limit=limits[0]), part(1, limit=limits[1]))
            response = await client.fetch_all("t", parts, **more)
            ((zero, one),) = [topic.partitions for topic in response.responses]
            return [len(values_of(data.records)) for data in (zero, one)]

        big = 1 << 20
        assert await counts((big, big)) == [3, 3]
        assert await counts((2 * size, size)) == [2, 1]
        assert await counts((1, 1)) == [1, 0]
        assert await counts((big, big), max_bytes=4 * size) == [3, 1]
        assert await counts((big, big), max_bytes=1) == [1, 0]

    run(test)


def test_the_brokers_own_limit_counts() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        for _ in range(4):
            await client.produce("t", batch(b"x" * 500))
        assert len((await client.fetch("t"))[1]) == 1

    run(test, fetch_max_bytes="1024")


@pytest.mark.parametrize("size", [10, 100_000])
def test_an_answer_from_many_partitions_holds_few_files(tmp_path: Path, size: int) -> None:
    async def test(rig: Rig) -> None:
        broker = await rig.start_broker(data_dir=str(tmp_path))
        client = await rig.client()
        await client.create_topic("t", 100)
        await rig.leads(100)
        for number in range(100):
            assert (await client.produce("t", batch(b"a" * size), partition=number)).error_code == 0
        before = open_files_in(tmp_path)
        assert broker._server is not None
        context = RequestContext(
            header=RequestHeader(api_key=1, api_version=11, correlation_id=1, client_id="t"),
            connection=next(iter(broker._server.connections)),
        )
        topic = FetchTopic(topic="t", partitions=tuple(part(number) for number in range(100)))
        request = FetchRequest(topics=(topic,), min_bytes=1, max_bytes=1 << 30)
        response: Any = fetch.handler(broker.replica_manager).handle(context, request)
        assert open_files_in(tmp_path) - before <= fetch_attempt.REGIONS_MAX
        for data in response.responses[0].partitions:
            records = data.records
            found = records if isinstance(records, bytes) else records.read()
            assert values_of(found) == [b"a" * size]

    run(test, log_open_files_max="8")


def test_replicas_must_be_members() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        assert await client.fetch("t", replica_id=2) == (
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            [],
        )

    run(test)


def test_a_debugging_consumer_is_one() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        await client.produce("t", batch(b"a"))
        assert await client.fetch("t", replica_id=-2) == (0, [b"a"])

    run(test)


def test_bytes_are_counted_by_topic() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        size = len(batch(b"a"))
        for _ in range(2):
            await client.produce("t", batch(b"a"))
        await client.fetch("t", 1)
        status = await rig.status()
        assert (status["bytes_in"], status["bytes_out"]) == ({"t": 2 * size}, {"t": size})
        assert status["requests"]["1"] == 1

    run(test)


def test_offsets_are_listed() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        for timestamp in (NOW, NOW + 20, NOW + 10):
            await client.produce("t", batch(b"a", timestamp=timestamp))

        async def find(timestamp: int, number: int = 0, epoch: int = -1) -> tuple[int, int, int]:
            wanted = ListOffsetsPartition(
                partition_index=number, timestamp=timestamp, current_leader_epoch=epoch
            )
            topic = ListOffsetsTopic(name="t", partitions=(wanted,))
            response = await client.ask(ListOffsetsRequest(replica_id=-1, topics=(topic,)))
            (found,) = response.topics[0].partitions
            return found.error_code, found.offset, found.timestamp

        assert await find(OffsetSpec.EARLIEST) == (0, 0, -1)
        assert await find(OffsetSpec.LATEST) == (0, 3, -1)
        assert await find(OffsetSpec.MAX_TIMESTAMP) == (0, 1, NOW + 20)
        assert await find(NOW + 1) == (0, 1, NOW + 20)
        assert await find(NOW + 21) == (0, -1, -1)
        assert await find(OffsetSpec.LATEST_TIERED) == (0, -1, -1)
        assert await find(-99) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
        assert await find(0, 5) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        assert await find(0, 0, 99) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)

    run(test)


def test_epoch_ends_are_told() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        await client.produce("t", batch(b"a", b"b"))
        epoch = rig.control.image.topics["t"].partitions[0].leader_epoch
        topic = OffsetForLeaderTopic(
            topic="t",
            partitions=(
                OffsetForLeaderPartition(partition=0, leader_epoch=epoch),
                OffsetForLeaderPartition(partition=3, leader_epoch=epoch),
            ),
        )
        response = await client.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=(topic,)))
        found = [
            (p.error_code, p.leader_epoch, p.end_offset) for p in response.topics[0].partitions
        ]
        assert found == [(0, epoch, 2), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)]

    run(test)


def test_deleted_records_stay_deleted_after_a_crash() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        for _ in range(3):
            await client.produce("t", batch(b"a"))

        async def delete(offset: int, number: int = 0) -> tuple[int, int]:
            wanted = DeleteRecordsPartition(partition_index=number, offset=offset)
            topic = DeleteRecordsTopic(name="t", partitions=(wanted,))
            response = await client.ask(DeleteRecordsRequest(topics=(topic,), timeout_ms=1000))
            (result,) = response.topics[0].partitions
            return result.error_code, result.low_watermark

        assert await delete(2) == (0, 2)
        assert await delete(9) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(0, 5) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await delete(1) == (0, 2)
        await rig.crash_broker()
        await rig.start_broker(new=False)
        client = await rig.client()
        assert (await client.fetch("t", 1))[0] == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await client.fetch("t", 2) == (0, [b"a"])

    run(test)


def test_stopping_over_the_wire_is_for_members() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        refused = await client.ask(StopNodeRequest(reason="no"), 0)
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        broker = rig.brokers[1]
        link = ControllerConnection(
            Endpoint("127.0.0.1", broker.port), rig.control.secret, client_id="test"
        )
        await link.call(StopNodeRequest(reason="test"), StopNodeResponse, 5)
        link.close()
        await rig.stop_broker()
        assert rig.disk.exists("broker-1/.kafka_cleanshutdown")

    run(test)


def test_a_config_change_reaches_the_open_partition() -> None:
    async def test(rig: Rig) -> None:
        from sparklog.wire.protocol.messages.incremental_alter_configs import (
            AlterableConfig,
            AlterConfigsResource,
            IncrementalAlterConfigsRequest,
        )

        client, _ = await rig.with_topic()
        change = AlterConfigsResource(
            resource_type=2,
            resource_name="t",
            configs=(AlterableConfig(name="max.message.bytes", value="100"),),
        )
        response = await client.ask(IncrementalAlterConfigsRequest(resources=(change,)))
        assert response.responses[0].error_code == 0
        (partition,) = rig.brokers[1].replica_manager
        await until(lambda: partition.config.max_message_bytes == 100)
        assert partition.log.config.max_message_bytes == 100
        code = (await client.produce("t", batch(b"x" * 100))).error_code
        assert code == ErrorCode.MESSAGE_TOO_LARGE

    run(test)
