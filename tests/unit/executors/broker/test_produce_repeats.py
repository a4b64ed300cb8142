"""Produce requests that repeat each other: the answers, their order, and what is shared."""

import asyncio
from collections import deque
from dataclasses import replace
from typing import Any

import pytest

from sparklog.errors import ErrorCode, FrameError
from sparklog.executors.handlers import repeated_produce as produce_repeats
from sparklog.executors.handlers.repeated_produce import BEFORE_BYTES_MAX, TEMPLATES_MAX
from sparklog.transport import ParkedResponse, PendingResponse
from sparklog.wire.protocol.codec import encode_request
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparklog.wire.protocol.messages.list_offsets import ListOffsetsRequest
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceResponse,
)
from sparklog.wire.protocol.produce import MAX_VERSION, MIN_VERSION, encode_produce_request
from tests.support.batches import batch
from tests.unit.executors.broker.broker_rig import Rig, produce_request, run
from tests.unit.executors.broker.produced import (
    VERSION,
    Late,
    codes,
    count_writes,
    frame,
    receive,
    result,
)


@pytest.mark.parametrize("version", range(MIN_VERSION, MAX_VERSION + 1))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_answers_each_request(version: int, acks: int) -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        topic_id = await client.create_topic("t")
        await rig.leads(1)
        topic = topic_id if version >= 13 else "t"
        answers = receive(
            rig,
            [frame(n, batch(b"%d" % n), topic=topic, acks=acks, version=version) for n in range(5)],
        )
        start = -1 if version < 5 else 0
        assert [result(answer, version) for answer in answers] == [
            (n, PartitionProduceResponse(base_offset=n, log_start_offset=start)) for n in range(5)
        ]
        assert await client.fetch("t") == (0, [b"0", b"1", b"2", b"3", b"4"])
        status = await rig.status()
        assert (status["requests"]["0"], status["batches_in"]) == (5, {"t": 5})

    run(test)


def test_partitions_take_turns_and_each_is_written_to_once() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(2)
        frames = [frame(n, batch(b"%d" % n), partition=n % 2) for n in range(6)]
        assert codes(receive(rig, frames[:2])) == [(0, 0, 0), (1, 0, 0)]
        writes = count_writes(rig)
        assert codes(receive(rig, frames[2:])) == [(n, 0, n // 2) for n in range(2, 6)]
        assert writes == ["t-0", "t-1"]
        rig.disk.faults.clear()
        assert await client.fetch("t", partition=0) == (0, [b"0", b"2", b"4"])
        assert await client.fetch("t", partition=1) == (0, [b"1", b"3", b"5"])

    run(test)


def test_a_refused_batch_leaves_its_neighbours_alone() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        bad = batch(b"bad")[:-1] + b"!"
        frames = [
            frame(1, batch(b"a")),
            frame(2, bad),
            frame(3, batch(b"lost"), topic="unknown"),
            frame(4, None),
            frame(5, batch(b"odd"), acks=2),
            frame(6, batch(b"b")),
            frame(7, batch(b"c"), acks=-1),
        ]
        assert codes(receive(rig, frames)) == [
            (1, 0, 0),
            (2, ErrorCode.CORRUPT_MESSAGE, -1),
            (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            (4, ErrorCode.INVALID_RECORD, -1),
            (5, ErrorCode.INVALID_REQUIRED_ACKS, -1),
            (6, 0, 1),
            (7, 0, 2),
        ]
        assert await client.fetch("t") == (0, [b"a", b"b", b"c"])
        assert (await rig.status())["refused_appends"] == 4

    run(test)


def test_retries_and_gaps_of_an_idempotent_producer_in_one_run() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        ids = {"producer_id": 7, "producer_epoch": 0}
        sequences = [0, 1, 1, 5, 2]
        frames = [
            frame(n, batch(b"%d" % sequence, base_sequence=sequence, **ids))
            for n, sequence in enumerate(sequences)
        ]
        gap = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        expected = [(0, 0, 0), (1, 0, 1), (2, 0, 1), (3, gap, -1), (4, 0, 2)]
        assert codes(receive(rig, frames)) == expected
        assert await client.fetch("t") == (0, [b"0", b"1", b"2"])
        status = await rig.status()
        assert (status["duplicates"], status["batches_in"]) == (1, {"t": 3})

    run(test)


def test_a_full_disk_refuses_the_run_and_nothing_of_it_is_read() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        rig.disk.disk.fill_after(50)
        answers = receive(rig, [frame(n, batch(b"x" * 3000)) for n in range(3)])
        assert codes(answers) == [(n, ErrorCode.KAFKA_STORAGE_ERROR, -1) for n in range(3)]
        rig.disk.faults.clear()
        assert codes(receive(rig, [frame(9, batch(b"y")), frame(10, batch(b"z"))])) == [
            (9, 0, 0),
            (10, 0, 1),
        ]
        assert await client.fetch("t") == (0, [b"y", b"z"])

    run(test)


def test_those_that_ask_for_all_replicas_wait_and_the_others_do_not() -> None:
    async def test(rig: Rig) -> None:
        await rig.with_topic()
        (partition,) = rig.brokers[1].replica_manager
        state = partition.state
        assert state is not None
        partition.make_leader_or_follower(replace(state, replicas=(1, 2), isr=(1, 2)), 0)
        frames = [frame(n, batch(b"%d" % n), acks=-1 if n % 2 else 1) for n in range(4)]
        answers = receive(rig, frames)
        late = [
            Late(answer)
            for answer in answers
            if isinstance(answer, ParkedResponse | PendingResponse)
        ]
        assert [isinstance(answer, ParkedResponse) for answer in answers] == [
            False,
            True,
            False,
            False,
        ]
        assert [isinstance(answer, PendingResponse) for answer in answers] == [
            False,
            False,
            False,
            True,
        ]
        for each in frames:  # nothing that waits holds the receive buffer
            data = each.obj
            each.release()
            data.clear()
        rig.brokers[1].replica_manager.carry_out(partition.update_follower_fetch_state(2, 2))
        assert [each.known for each in late] == [True, False]
        rig.brokers[1].replica_manager.carry_out(partition.update_follower_fetch_state(2, 4))
        assert [each.known for each in late] == [True, True]
        given = [each.reply for each in late]
        assert codes([answers[0], given[0], answers[2], given[1]]) == [(n, 0, n) for n in range(4)]

    run(test)


def test_other_requests_see_what_was_produced_before_them() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        other = memoryview(encode_request(ListOffsetsRequest(), 6, 50, "me"))
        answers = receive(rig, [frame(1, batch(b"a")), frame(2, batch(b"b")), other,
                                frame(3, batch(b"c"))])  # fmt: skip
        assert codes([*answers[:2], answers[3]]) == [(1, 0, 0), (2, 0, 1), (3, 0, 2)]
        assert len(answers) == 4
        assert await client.fetch("t") == (0, [b"a", b"b", b"c"])

    run(test)


def test_what_cannot_be_decoded_ends_the_run_not_the_answers_before_it() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        good = [frame(n, batch(b"%d" % n)) for n in range(2)]
        broken = memoryview(bytes(frame(2, batch(b"2"), partition=1))[:-5])
        broker = rig.brokers[1]
        assert broker._server is not None
        assert broker._dispatcher is not None
        connection = next(iter(broker._server.connections))
        assert codes(receive(rig, [frame(9, batch(b"9"))])) == [(9, 0, 0)]
        left = deque([*good, broken])
        assert codes(broker._dispatcher(connection, left)) == [(0, 0, 1), (1, 0, 2)]
        with pytest.raises(Exception, match="malformed") as refusal:
            broker._dispatcher(connection, left)
        assert not isinstance(refusal.value, FrameError)
        assert await client.fetch("t") == (0, [b"9", b"0", b"1"])

    run(test)


@pytest.mark.parametrize("version", [11, 13])
def test_a_topic_that_was_made_anew_is_another_one(version: int) -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()

        async def create() -> Any:
            topic_id = await client.create_topic("t")
            await rig.leads(1)
            return topic_id if version >= 13 else "t"

        old = await create()
        produced = [frame(n, batch(b"old"), topic=old, version=version) for n in range(3)]
        assert [result(a, version)[1].base_offset for a in receive(rig, produced)] == [0, 1, 2]
        deleted = await client.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),)))
        assert deleted.responses[0].error_code == 0
        await rig.leads(0)
        gone = [frame(n, batch(b"gone"), topic=old, version=version) for n in range(2)]
        unknown = (
            ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        assert [result(a, version)[1].error_code for a in receive(rig, gone)] == [unknown] * 2
        new = await create()
        again = [frame(n, batch(b"new"), topic=new, version=version) for n in range(2)]
        assert [result(a, version)[1].base_offset for a in receive(rig, again)] == [0, 1]
        if version >= 13:
            (late,) = receive(rig, [frame(9, batch(b"late"), topic=old, version=version)])
            assert result(late, version)[1].error_code == unknown
        assert await client.fetch("t") == (0, [b"new", b"new"])

    run(test)


def test_a_partition_that_is_led_elsewhere_refuses() -> None:
    async def test(rig: Rig) -> None:
        await rig.with_topic()
        assert codes(receive(rig, [frame(n, batch(b"a")) for n in range(2)]))[1] == (1, 0, 1)
        (partition,) = rig.brokers[1].replica_manager
        state = partition.state
        partition.drop_role()
        refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
        answers = receive(rig, [frame(n, batch(b"a")) for n in range(2)])
        assert codes(answers) == [(0, refused, -1), (1, refused, -1)]
        assert state is not None
        partition.make_leader_or_follower(state, 0)
        assert codes(receive(rig, [frame(1, batch(b"a"))])) == [(1, 0, 2)]

    run(test)


def test_what_a_connection_is_known_for_is_bounded() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        broker = rig.brokers[1]
        assert broker._server is not None
        connection = next(iter(broker._server.connections))
        count = 2 * TEMPLATES_MAX + 10
        for n in range(count):
            request = replace(produce_request("t", batch(b"%d" % n), 0, 1), timeout_ms=1000 + n)
            parts = encode_produce_request(VERSION, n, "me", request)
            (answer,) = receive(rig, [memoryview(bytearray(b"".join(parts)))])
            assert result(answer)[1].base_offset == n
        assert len(connection.state["produce"]._templates) <= TEMPLATES_MAX
        _, values = await client.fetch("t")
        assert values == [b"%d" % n for n in range(count)]

    run(test)


def test_kinds_of_all_connections_are_bounded_and_end_with_their_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(produce_repeats, "ALL_TEMPLATES_MAX", 5)

    async def test(rig: Rig) -> None:
        await rig.with_topic(1)
        broker = rig.brokers[1]
        assert broker._server is not None
        connection = next(iter(broker._server.connections))
        held = []
        for n, client_id in enumerate(["me"] * 7 + ["x" * BEFORE_BYTES_MAX]):
            request = replace(produce_request("t", batch(b"%d" % n), 0, 1), timeout_ms=1000 + n)
            parts = encode_produce_request(VERSION, n, client_id, request)
            receive(rig, [memoryview(bytearray(b"".join(parts)))])
            held.append(len(connection.state["produce"]._templates))
        assert held == [1, 2, 3, 4, 5, 1, 2, 2]
        total = connection.state["produce"]._total
        assert total.count == 2
        connection.abort()
        while broker._server.connections:
            await asyncio.sleep(0)
        assert (total.count, connection.state) == (0, {})

    run(test)


def test_a_long_run_over_the_wire_keeps_its_order() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(3)
        results = await asyncio.gather(
            *(
                client.produce("t", batch(b"%d" % n), partition=n % 3, acks=1 if n % 5 else -1)
                for n in range(200)
            )
        )
        assert [found.base_offset for found in results] == [n // 3 for n in range(200)]
        for number in range(3):
            expected = [b"%d" % n for n in range(number, 200, 3)]
            assert await client.fetch("t", partition=number) == (0, expected)

    run(test)


def test_a_run_that_does_not_become_safe_is_refused_one_by_one() -> None:
    async def test(rig: Rig) -> None:
        await rig.with_topic()
        replica_manager = rig.brokers[1].replica_manager
        (partition,) = replica_manager
        state = partition.state
        assert state is not None
        partition.make_leader_or_follower(replace(state, replicas=(1, 2), isr=(1, 2)), 0)
        answers = receive(rig, [frame(n, batch(b"%d" % n), acks=-1) for n in range(3)])
        assert (
            len(replica_manager.delayed_operations.produces) == 2
        )  # the first of its kind, and the run behind it
        late = [
            Late(answer)
            for answer in answers
            if isinstance(answer, ParkedResponse | PendingResponse)
        ]
        replica_manager.carry_out(partition.update_follower_fetch_state(2, 2))
        assert [each.known for each in late] == [True, True, False]
        replica_manager.carry_out(partition.drop_role())
        assert codes([each.reply for each in late]) == [
            (0, 0, 0),
            (1, 0, 1),
            (2, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        ]
        assert len(replica_manager.delayed_operations.produces) == 0

    run(test)
