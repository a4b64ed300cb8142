"""Produce over the wire: acks, refusals, duplicates, flushes, a full disk."""

import asyncio
import threading
from collections import deque
from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.errors import ConnectError, ErrorCode
from sparklog.executors.partition.partition import Partition
from sparklog.transport import ParkedResponse
from sparklog.wire.protocol.codec import decode_response
from sparklog.wire.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog.wire.protocol.produce import MAX_VERSION, MIN_VERSION, encode_produce_request
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Rig, produce_request, run


@pytest.mark.parametrize("version", range(MIN_VERSION, MAX_VERSION + 1))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_appends(version: int, acks: int) -> None:
    async def test(rig: Rig) -> None:
        client, topic_id = await rig.with_topic()
        topic: str | UUID = topic_id if version >= 13 else "t"
        first = await client.produce(topic, batch(b"a", b"b"), acks=acks, version=version)
        second = await client.produce(topic, batch(b"c"), acks=acks, version=version)
        start = -1 if version < 5 else 0
        assert first == PartitionProduceResponse(base_offset=0, log_start_offset=start)
        assert second == PartitionProduceResponse(base_offset=2, log_start_offset=start)
        assert await client.fetch("t") == (0, [b"a", b"b", b"c"])

    run(test)


def test_acks_0_is_not_answered_and_an_error_ends_the_connection() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        silent = produce_request("t", batch(b"a"), 0, 0)
        await client.connection.send(encode_produce_request(9, 1, "t", silent))
        assert await client.fetch("t") == (0, [b"a"])
        lost = produce_request("unknown", batch(b"a"), 0, 0)
        await client.connection.send(encode_produce_request(9, 1, "t", lost))
        with pytest.raises(ConnectError):
            await client.fetch("t")

    run(test)


def test_refusals_name_their_code() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(max_message_bytes="300", segment_bytes="10000")

        async def code(records: bytes | None, **more: int) -> int:
            result = await client.produce("t", records, **more)  # type: ignore[arg-type]
            assert result.base_offset == -1
            return result.error_code

        assert await code(batch(b"a"), partition=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await code(batch(b"a"), acks=2) == ErrorCode.INVALID_REQUIRED_ACKS
        assert await code(None) == ErrorCode.INVALID_RECORD
        assert await code(batch(b"x" * 300)) == ErrorCode.MESSAGE_TOO_LARGE
        assert await code(batch(b"a", timestamp=1 << 50)) == ErrorCode.INVALID_TIMESTAMP
        assert await code(batch(b"a")[:-1] + b"!") == ErrorCode.CORRUPT_MESSAGE
        unknown = await client.produce(UUID(int=99), batch(b"a"), version=13)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert await client.fetch("t", max_wait_ms=0) == (0, [])
        assert (await rig.status())["refused_appends"] == 7

    run(test)


def test_what_no_producer_should_ask_of_init_producer_id_is_refused() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        for request in (
            InitProducerIdRequest(transactional_id=""),
            InitProducerIdRequest(producer_id=5),
            InitProducerIdRequest(producer_epoch=5),
        ):
            assert await client.ask(request, 5) == InitProducerIdResponse(
                error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1
            )

    run(test)


def test_zstd_needs_a_version_that_has_it() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        records = bytearray(batch(b"a"))
        records[22] |= 4
        code = (await client.produce("t", bytes(records), version=6)).error_code
        assert code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    run(test)


def test_an_idempotent_producers_retry_is_answered_with_its_first_offsets() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        first = await client.ask(InitProducerIdRequest(), 5)
        other = await client.ask(InitProducerIdRequest(), 5)
        assert other.producer_id == first.producer_id + 1
        ids = {"producer_id": first.producer_id, "producer_epoch": first.producer_epoch}
        records = batch(b"a", b"b", base_sequence=0, **ids)
        assert (await client.produce("t", records)).base_offset == 0
        assert (await client.produce("t", batch(b"c", base_sequence=2, **ids))).base_offset == 2
        assert (await client.produce("t", records)).base_offset == 0
        gap = await client.produce("t", batch(b"d", base_sequence=9, **ids))
        assert (gap.error_code, gap.log_start_offset) == (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            0,
        )
        assert await client.fetch("t") == (0, [b"a", b"b", b"c"])
        assert (await rig.status())["duplicates"] == 1

    run(test)


def test_one_request_to_many_partitions_succeeds_in_part() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(2)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=tuple(
                TopicProduceData(
                    name=name,
                    partition_data=tuple(
                        PartitionProduceData(index=i, records=batch(b"%d" % i)) for i in range(2)
                    ),
                )
                for name in ("t", "u")
            ),
        )
        answer = await client.connection.request(encode_produce_request(9, 1, "t", request))
        _, response = decode_response(ProduceResponse, 9, answer)
        codes = [[p.error_code for p in t.partition_responses] for t in response.responses]
        assert codes == [[0, 0], [3, 3]]
        assert await client.fetch("t", partition=1) == (0, [b"1"])

    run(test)


@pytest.mark.parametrize("acks", [1, -1])
def test_an_ack_that_promises_a_flush_comes_after_it(acks: int) -> None:
    async def test(rig: Rig) -> None:
        await rig.with_topic(flush_messages="1")
        flushes: list[str] = []
        rig.disk.faults.slow = lambda operation, path: (
            flushes.append(path) if operation == "flush" and path.endswith(".log") else None
        )
        clients = [await rig.client() for _ in range(5)]
        results = await asyncio.gather(
            *(each.produce("t", batch(b"a"), acks=acks) for each in clients)
        )
        assert sorted(result.base_offset for result in results) == [0, 1, 2, 3, 4]
        assert 1 <= len(flushes) <= 5
        (partition,) = rig.brokers[1].replica_manager
        assert partition.log.recovery_point == 5
        rig.disk.faults.clear()

    run(test)


def test_an_answer_that_waits_does_not_hold_the_records() -> None:
    async def test(rig: Rig) -> None:
        await rig.with_topic(flush_messages="1")
        broker = rig.brokers[1]
        release = threading.Event()

        def hold_flushes(operation: str, path: str) -> None:
            if operation == "flush" and path.endswith(".log"):
                release.wait(20)

        rig.disk.faults.slow = hold_flushes
        payload = encode_produce_request(9, 1, "t", produce_request("t", batch(b"a"), 0, 1))
        frame = bytearray(b"".join(payload))
        assert broker._server is not None
        assert broker._dispatcher is not None
        connection = next(iter(broker._server.connections))
        (answer,) = broker._dispatcher(connection, deque([memoryview(frame)]))
        assert isinstance(answer, ParkedResponse)
        frame.clear()  # refused while anybody holds a view of it
        release.set()
        await answer.awaitable
        rig.disk.faults.clear()

    run(test)


def test_a_refusal_that_turns_out_to_need_no_wait_is_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        first = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
        gap = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=9)
        assert (await client.produce("t", first)).error_code == 0
        (partition,) = rig.brokers[1].replica_manager
        state = partition.state
        assert state is not None
        partition.make_leader_or_follower(replace(state, replicas=(1, 2), isr=(1, 2)), 0)
        assert (await client.produce("t", batch(b"b"), acks=1)).error_code == 0
        # The high watermark passes the log's end between the judgement and the look at it.
        monkeypatch.setattr(Partition, "has_reached", lambda *_: True)
        refused = await client.produce("t", gap)
        assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    run(test)


def test_a_failed_flush_refuses_the_ack_and_the_broker_lives_on() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(flush_messages="1")
        await client.create_topic("u")
        await rig.leads(2)
        rig.disk.faults.fail_next(operation="flush", under="t-0")
        code = (await client.produce("t", batch(b"a"))).error_code
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.produce("u", batch(b"a"))).error_code == 0
        assert list((await rig.status())["offline"]) == ["t-0"]

    run(test)


def test_flush_ms_flushes_in_the_background() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(flush_ms="20")
        assert (await client.produce("t", batch(b"a"))).error_code == 0
        (partition,) = rig.brokers[1].replica_manager
        assert partition.log.recovery_point == 0
        await until(lambda: partition.log.recovery_point == 1)

    run(test)


def test_a_full_disk_is_a_storage_error_until_there_is_space_again() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        assert (await client.produce("t", batch(b"a"))).error_code == 0
        rig.disk.disk.fill_after(50)
        code = (await client.produce("t", batch(b"b" * 9000))).error_code
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await client.fetch("t") == (0, [b"a"])
        rig.disk.faults.clear()
        assert (await client.produce("t", batch(b"b"))).base_offset == 1

    run(test)


def test_an_ack_that_cannot_come_times_out() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        (partition,) = rig.brokers[1].replica_manager
        state = partition.state
        assert state is not None
        # A second in-sync replica that never fetches.
        partition.make_leader_or_follower(replace(state, replicas=(1, 2), isr=(1, 2)), 0)
        late = await client.produce("t", batch(b"a"), timeout_ms=20)
        assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
        waiting = asyncio.create_task(client.produce("t", batch(b"b"), timeout_ms=20_000))
        await until(lambda: len(rig.brokers[1].replica_manager.delayed_operations.produces) == 1)
        rig.brokers[1].replica_manager.carry_out(partition.update_follower_fetch_state(2, 2))
        assert (await waiting).base_offset == 1

    run(test)
