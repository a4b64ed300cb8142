"""Transactional batches that wait for the coordinator at a real broker: their order and their
neighbours, and what becomes of them when their client or their partition goes."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sparklog.errors import ErrorCode
from sparklog.executors.handlers import produce
from sparklog.executors.handlers.produce_response import Outcome
from sparklog.executors.replica_manager import transaction_verifications
from sparklog.transport import ParkedResponse
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparklog.wire.protocol.produce import encode_produce_request
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Rig, run
from tests.unit.executors.broker.produced import Late, receive, results
from tests.unit.executors.broker.transactional_producer import (
    NEW,
    NEW_END,
    OLD,
    OLD_END,
    SETTINGS,
    Gate,
    Producer,
    answers_of,
    waiting_batches,
)

OK = ErrorCode.NONE
#: The version of Produce, and the EndTxn version of such a client.
GENERATIONS = [(OLD, OLD_END), (NEW, NEW_END)]


def refuse_topic_t(append: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """The append of a Produce request that repeats no other one."""

    def append_others(*args: Any) -> Outcome:
        assert all(topic.name != "t" for topic in args[2].topic_data), "it is no repetition"
        return append(*args)

    return append_others


async def begin(producer: Producer, version: int, *partitions: int) -> None:
    if version == OLD:
        await producer.add(*partitions)


@pytest.mark.parametrize(("version", "end"), GENERATIONS)
@pytest.mark.parametrize("repeated", [False, True])
def test_pipelined_batches_keep_their_order_and_all_succeed(
    version: int, end: int, repeated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``repeated``: the requests repeat one of an earlier transaction of the connection."""

    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig)
        offset = 0
        if repeated:
            await begin(producer, version, 0)
            assert await producer.produce(b"before", version=version) == (OK, 0)
            await producer.end(end)
            assert await producer.committed() == [b"before"]
            offset = 2
            monkeypatch.setattr(produce, "_append", refuse_topic_t(produce._append))
        await begin(producer, version, 0)
        gate, asked = Gate(rig), producer.asked
        waiting = [
            asyncio.create_task(producer.produce(b"%d" % n, version=version)) for n in range(8)
        ]
        await until(lambda: gate.waiting)
        await until(lambda: waiting_batches(rig)[1] > 8 * 61)
        gate.opened.set()
        assert await asyncio.gather(*waiting) == [(OK, offset + n) for n in range(8)]
        assert producer.asked == asked + 1
        assert waiting_batches(rig) == (0, 0)
        await producer.end(end)
        assert (await producer.committed())[-8:] == [b"%d" % n for n in range(8)]

    run(test, **SETTINGS)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_repeated_requests_for_several_partitions(version: int) -> None:
    """Partition 1 is open already, so each request has a batch that waits and one that does not."""

    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig, partitions=2)
        await begin(producer, version, 0, 1)
        first = await producer.ask({1: producer.batch(b"first", partition=1)}, version)
        assert answers_of(first) == [(OK, 0)]

        def frame(number: int) -> memoryview:
            batches = {n: producer.batch(b"%d" % number, partition=n) for n in (0, 1)}
            parts = encode_produce_request(version, number, "t", producer.request(batches))
            return memoryview(bytearray(b"".join(parts)))

        answered = receive(rig, [frame(n) for n in range(4)])
        late = [Late(answer) for answer in answered if isinstance(answer, ParkedResponse)]
        assert len(late) == 4
        await until(lambda: all(answer.known for answer in late))
        for number, answer in enumerate(late):
            assert answer.reply is not None
            correlation_id, parts = results(answer.reply, version)
            assert correlation_id == number
            assert [(part.index, part.error_code, part.base_offset) for part in parts] == [
                (0, 0, number),
                (1, 0, 1 + number),
            ]

    run(test, **SETTINGS)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_other_producers_are_not_held_up(version: int) -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig)
        other = await Producer.another(rig, "other")
        await begin(producer, version, 0)
        await begin(other, version, 0)
        assert await other.produce(b"other", version=version) == (OK, 0)
        gate = Gate(rig)
        waiting = asyncio.create_task(producer.produce(b"late", version=version))
        await until(lambda: gate.waiting)
        assert await other.produce(b"again", version=version) == (OK, 1)
        plain = await other.client.produce("t", batch(b"plain"))
        assert (plain.error_code, plain.base_offset) == (0, 2)
        third = await Producer.another(rig, "third")
        await begin(third, version, 0)
        also = asyncio.create_task(third.produce(b"third", version=version))
        await until(lambda: len(gate.waiting) == 2)
        gate.opened.set()
        assert sorted([await waiting, await also]) == [(OK, 3), (OK, 4)]

    run(test, **SETTINGS)


def test_plain_batches_of_the_same_request_are_appended() -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig, partitions=3)
        batches = {
            0: producer.batch(b"plain", transactional=False),
            1: producer.batch(b"in it", partition=1),
            2: batch(b"nobody's"),
        }
        assert answers_of(await producer.ask(batches, NEW)) == [(OK, 0)] * 3
        # A plain batch of a producer that has a transaction open in the partition is refused.
        plain = producer.batch(b"plain", partition=1, transactional=False)
        assert await producer.send(plain, NEW, 1) == (ErrorCode.INVALID_TXN_STATE, -1)
        producer.sequences[1] -= 1
        assert await producer.produce(b"in it too", version=NEW, partition=1) == (OK, 1)
        await producer.end(NEW_END, committed=False)
        assert [await producer.committed(n) for n in range(3)] == [[b"plain"], [], [b"nobody's"]]

    run(test, **SETTINGS)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_topic_that_is_deleted_meanwhile_leaves_nothing_behind(version: int) -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig, partitions=2)
        await begin(producer, version, 0, 1)
        gate = Gate(rig)
        waiting = [
            asyncio.create_task(producer.produce(b"a", version=version, partition=n % 2))
            for n in range(4)
        ]
        await until(lambda: len(gate.waiting) == 2)
        await until(lambda: waiting_batches(rig)[1] > 4 * 61)
        client = await rig.client()
        gone = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=5000)
        (deleted,) = (await client.ask(gone)).responses
        assert deleted.error_code == 0
        answers = await asyncio.gather(*waiting)
        assert answers == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)] * 4
        assert waiting_batches(rig) == (0, 0)

    run(test, **SETTINGS)


@pytest.mark.parametrize(("version", "kept"), [(OLD, []), (NEW, [b"a"])])
@pytest.mark.parametrize("compact", [False, True])
def test_a_batch_of_an_old_client_that_has_gone_is_not_appended(
    version: int, kept: list[bytes], compact: bool
) -> None:
    """Nothing but its connection tells the delayed batch from one of the next transaction."""

    async def test(rig: Rig) -> None:
        configs = {"cleanup_policy": "compact"} if compact else {}
        producer = await Producer.open(rig, **configs)
        await begin(producer, version, 0)
        gate = Gate(rig)
        delayed = asyncio.create_task(producer.produce(b"a", version=version))
        await until(lambda: gate.waiting)
        producer.client.connection.close()
        await asyncio.wait([delayed])
        delayed.exception()
        server = rig.brokers[1]._server
        assert server is not None
        left = len(server.connections)
        producer.client = await rig.client()
        gate.opened.set()
        await until(lambda: waiting_batches(rig) == (0, 0))
        await until(lambda: len(server.connections) <= left)
        await producer.end(OLD_END if version == OLD else NEW_END)
        # The transaction has the partition, so a marker comes in any case.
        await until(lambda: producer.partition().log.log_end_offset == len(kept) + 1)
        assert await producer.committed() == kept

    run(test, **SETTINGS)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_delayed_batch_of_an_old_epoch_reaches_no_later_transaction(version: int) -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig)
        await begin(producer, version, 0)
        gate = Gate(rig)
        delayed = asyncio.create_task(producer.produce(b"delayed", version=version))
        await until(lambda: gate.waiting)
        later = await Producer.another(rig)
        gate.opened.set()
        assert await delayed == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert await later.produce(b"later", version=NEW) == (OK, 1 if version == OLD else 0)
        await later.end(NEW_END)
        assert await later.committed() == [b"later"]

    run(test, **SETTINGS)


def test_no_more_bytes_wait_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_verifications, "WAITING_BYTES_MAX", 3_000)

    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig)
        gate = Gate(rig)
        sent = [producer.batch(b"x" * 900) for _ in range(5)]
        counters = rig.brokers[1].replica_manager.counters
        before = counters.refused_appends  # node 0 may have come too early with its first records
        waiting = [asyncio.create_task(producer.send(each, NEW)) for each in sent]
        await until(lambda: counters.refused_appends == before + 2)
        assert waiting_batches(rig)[1] <= 3_000
        gate.opened.set()
        answers = await asyncio.gather(*waiting)
        full = (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert answers == [(OK, 0), (OK, 1), (OK, 2), full, full]
        assert [await producer.send(each, NEW) for each in sent[3:]] == [(OK, 3), (OK, 4)]

    run(test, **SETTINGS)
