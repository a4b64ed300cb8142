"""Produce requests with batches for several partitions, which repeat each other."""

import struct
from dataclasses import replace

import pytest

from sparklog.errors import ErrorCode
from sparklog.transport import ParkedResponse, PendingResponse
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceResponse,
)
from sparklog.wire.protocol.produce import MAX_VERSION, MIN_VERSION
from tests.support.batches import batch
from tests.unit.executors.broker.broker_rig import Rig, run
from tests.unit.executors.broker.produced import (
    Late,
    count_writes,
    frame,
    frame_of_many,
    offsets,
    receive,
    results,
)


@pytest.mark.parametrize("version", range(MIN_VERSION, MAX_VERSION + 1))
def test_requests_of_several_partitions_in_any_order_of_them(version: int) -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        topic_id = await client.create_topic("t", 3)
        await rig.leads(3)
        sent = [(0, 1, 2), (1, 2, 0), (2,), (0, 2), (1, 0)]
        frames = [
            frame_of_many(
                n,
                [(index, batch(b"%d" % n)) for index in indexes],
                topic=topic_id if version >= 13 else "t",
                version=version,
            )
            for n, indexes in enumerate(sent)
        ]
        answers = receive(rig, frames)
        expected = [[0, 0, 0], [1, 1, 1], [2], [2, 3], [2, 3]]
        start = -1 if version < 5 else 0
        assert [results(answer, version) for answer in answers] == [
            (
                n,
                tuple(
                    PartitionProduceResponse(index=index, base_offset=base, log_start_offset=start)
                    for index, base in zip(sent[n], bases, strict=True)
                ),
            )
            for n, bases in enumerate(expected)
        ]
        assert await client.fetch("t", partition=1) == (0, [b"0", b"1", b"4"])
        assert await client.fetch("t", partition=2) == (0, [b"0", b"1", b"2", b"3"])
        status = await rig.status()
        assert (status["requests"]["0"], status["batches_in"]) == (5, {"t": 11})

    run(test)


def test_requests_of_several_partitions_share_one_write_in_each() -> None:
    async def test(rig: Rig) -> None:
        await rig.with_topic(2)
        frames = [
            frame_of_many(n, [(index, batch(b"%d" % n)) for index in range(2)]) for n in range(4)
        ]
        assert offsets(receive(rig, frames[:1])[0]) == (0, [(0, 0, 0), (1, 0, 0)])
        writes = count_writes(rig)
        assert [offsets(answer) for answer in receive(rig, frames[1:])] == [
            (n, [(0, 0, n), (1, 0, n)]) for n in range(1, 4)
        ]
        assert writes == ["t-0", "t-1"]

    run(test)


def test_of_several_batches_each_is_judged_for_itself() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(2)
        bad = batch(b"bad")[:-1] + b"!"
        frames = [
            frame_of_many(1, [(0, batch(b"a")), (1, batch(b"b"))]),
            frame_of_many(2, [(0, bad), (1, batch(b"c"))]),
            frame_of_many(3, [(0, batch(b"d")), (9, batch(b"lost"))]),
            frame_of_many(4, [(1, batch(b"e")), (0, batch(b"f"))], acks=-1),
            frame(5, batch(b"g"), partition=1),
        ]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [offsets(answer) for answer in receive(rig, frames)] == [
            (1, [(0, 0, 0), (1, 0, 0)]),
            (2, [(0, ErrorCode.CORRUPT_MESSAGE, -1), (1, 0, 1)]),
            (3, [(0, 0, 1), (9, unknown, -1)]),
            (4, [(1, 0, 2), (0, 0, 2)]),
            (5, [(1, 0, 3)]),
        ]
        assert await client.fetch("t", partition=0) == (0, [b"a", b"d", b"f"])
        assert await client.fetch("t", partition=1) == (0, [b"b", b"c", b"e", b"g"])
        assert (await rig.status())["refused_appends"] == 2

    run(test)


def test_several_partitions_are_answered_once_all_of_them_are_safe() -> None:
    async def test(rig: Rig) -> None:
        await rig.with_topic(2)
        replica_manager = rig.brokers[1].replica_manager
        first, second = sorted(replica_manager, key=lambda partition: partition.topic_partition)
        for partition in (first, second):
            assert partition.state is not None
            partition.make_leader_or_follower(
                replace(partition.state, replicas=(1, 2), isr=(1, 2)), 0
            )
        frames = [
            frame_of_many(n, [(index, batch(b"%d" % n)) for index in range(2)], acks=-1)
            for n in range(4)
        ]
        answers = receive(rig, frames)
        late = [
            Late(answer)
            for answer in answers
            if isinstance(answer, ParkedResponse | PendingResponse)
        ]
        assert len(late) == 4
        for each in frames:  # nothing that waits holds the receive buffer
            data = each.obj
            each.release()
            data.clear()
        replica_manager.carry_out(first.update_follower_fetch_state(2, 3))
        assert [each.known for each in late] == [False] * 4
        replica_manager.carry_out(second.update_follower_fetch_state(2, 2))
        assert [each.known for each in late] == [True, True, False, False]
        replica_manager.carry_out(second.drop_role())
        replica_manager.carry_out(first.update_follower_fetch_state(2, 4))
        assert [offsets(each.reply) for each in late] == [
            (0, [(0, 0, 0), (1, 0, 0)]),
            (1, [(0, 0, 1), (1, 0, 1)]),
            (2, [(0, 0, 2), (1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]),
            (3, [(0, 0, 3), (1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]),
        ]
        assert len(replica_manager.delayed_operations.produces) == 0

    run(test)


def test_a_run_has_requests_of_one_version() -> None:
    async def test(rig: Rig) -> None:
        await rig.with_topic(2)
        bad = batch(b"bad")[:-1] + b"!"
        sent = [(8, batch(b"a")), (9, batch(b"b")), (8, batch(b"c")), (9, bad)]
        frames = [
            frame_of_many(n, [(0, records), (1, batch(b"!"))], version=version)
            for n, (version, records) in enumerate(sent)
        ]
        answers = receive(rig, frames)
        found = [
            results(answer, version) for answer, (version, _) in zip(answers, sent, strict=True)
        ]
        assert [number for number, _ in found] == [0, 1, 2, 3]
        assert [[part.error_code for part in parts] for _, parts in found] == [
            [0, 0], [0, 0], [0, 0], [ErrorCode.CORRUPT_MESSAGE, 0]
        ]  # fmt: skip

    run(test)


def test_a_topic_that_does_not_exist_may_have_any_name() -> None:
    async def test(rig: Rig) -> None:
        await rig.with_topic(1)
        marks = struct.pack(">ihqqq", 2**30, 0, 2**62, 2**62 + 2, 2**62 + 4)
        (answer,) = receive(rig, [frame(9, batch(b"x"), topic=marks.decode())])
        assert offsets(answer) == (9, [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)])

    run(test)
