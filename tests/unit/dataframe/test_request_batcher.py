"""The content of produce requests, and when they are sent."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

import pytest

from sparklog.dataframe.write import request_batcher as deliveries
from sparklog.dataframe.write.request_batcher import RequestBatcher
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition
from sparklog.wire.records.columns import EncodedBatch

ZERO, ONE, TWO = (TopicPartition("t", number) for number in range(3))
Named = dict[TopicPartition, str]


def batch(name: str, size: int = 10) -> EncodedBatch:
    return EncodedBatch(data=name.encode().ljust(size), record_count=1, max_timestamp=0)


class Broker:
    """Keeps requests until the test responds."""

    def __init__(self) -> None:
        self.requests: list[Named] = []
        self._answers: list[asyncio.Future[None]] = []

    async def produce(self, group: Mapping[TopicPartition, EncodedBatch]) -> None:
        self.requests.append({tp: each.data.decode().strip() for tp, each in group.items()})
        self._answers.append(asyncio.get_running_loop().create_future())
        await self._answers[-1]

    async def answer(self, number: int, error: Exception | None = None) -> None:
        if error is None:
            self._answers[number].set_result(None)
        else:
            self._answers[number].set_exception(error)
        await run_callbacks()

    def is_cancelled(self, number: int) -> bool:
        return self._answers[number].cancelled()


async def run_callbacks() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def delivering(
    made: RequestBatcher, *batches: tuple[TopicPartition, Sequence[EncodedBatch]]
) -> Future[None]:
    done: Future[None] = Future()
    made.deliver(batches, done)
    await run_callbacks()
    return done


def one_leader(_tp: TopicPartition) -> int:
    return 1


def by_number(tp: TopicPartition) -> int:
    return tp.partition


def made(broker: Broker, leader_of: Callable[[TopicPartition], int] = one_leader) -> RequestBatcher:
    return RequestBatcher(broker.produce, leader_of)


def test_what_waits_for_a_leader_goes_in_one_request_and_each_partition_in_order() -> None:
    async def run() -> None:
        broker = Broker()
        sending = made(broker)
        first = await delivering(sending, (ZERO, [batch("a"), batch("b")]))
        second = await delivering(sending, (ONE, [batch("c")]))
        third = await delivering(sending, (ZERO, [batch("d")]), (TWO, [batch("e")]))
        fourth = await delivering(sending, (ONE, [batch("f")]))
        assert broker.requests == [{ZERO: "a"}, {ONE: "c"}]
        await broker.answer(0)
        assert broker.requests[2:] == [{TWO: "e", ZERO: "b"}]
        await broker.answer(2)
        assert (first.done(), second.done(), third.done()) == (True, False, False)
        assert broker.requests[3:] == [{ZERO: "d"}]
        await broker.answer(1)
        assert broker.requests[4:] == [{ONE: "f"}]
        await broker.answer(3)
        await broker.answer(4)
        assert [each.result(0) for each in (first, second, third, fourth)] == [None] * 4
        assert len(broker.requests) == 5

    asyncio.run(run())


def test_leaders_do_not_wait_for_each_other_and_a_new_one_takes_over() -> None:
    async def run() -> None:
        broker = Broker()
        leaders = {ZERO: 1, ONE: 1, TWO: 2}
        sending = made(broker, lambda tp: leaders[tp])
        many = [batch("a"), batch("b")]
        done = await delivering(sending, (ZERO, many), (TWO, many))
        assert broker.requests == [{ZERO: "a"}, {TWO: "a"}]
        await broker.answer(1)
        leaders[ZERO] = 2
        await broker.answer(0)
        assert broker.requests[2:] == [{TWO: "b"}, {ZERO: "b"}]
        await broker.answer(2)
        assert not done.done()
        await broker.answer(3)
        assert done.result(0) is None

    asyncio.run(run())


def test_a_request_has_a_size_and_a_larger_batch_goes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deliveries, "REQUEST_BYTES_MAX", 20)
    monkeypatch.setattr(deliveries, "REQUESTS_MAX", 1)

    async def run() -> None:
        broker = Broker()
        sending = made(broker)
        done = await delivering(
            sending, (ZERO, [batch("a"), batch("d")]), (ONE, [batch("b")]), (TWO, [batch("c", 30)])
        )
        for number in range(3):
            await broker.answer(number)
        assert done.result(0) is None
        assert broker.requests == [{ZERO: "a", ONE: "b"}, {TWO: "c"}, {ZERO: "d"}]

    asyncio.run(run())


def test_after_a_failure_nothing_more_is_sent() -> None:
    async def run() -> None:
        broker = Broker()
        sending = made(broker, by_number)
        failing = await delivering(sending, (ZERO, [batch("a"), batch("b")]))
        other = await delivering(sending, (ONE, [batch("c"), batch("d")]))
        waiting = await delivering(sending, (ZERO, [batch("e")]))
        await broker.answer(0, KafkaError(ErrorCode.INVALID_RECORD, "no"))
        with pytest.raises(KafkaError, match="no"):
            failing.result(0)
        await broker.answer(1)
        late = await delivering(sending, (TWO, [batch("f")]))
        assert [each.result(0) for each in (other, waiting, late)] == [None] * 3
        assert broker.requests == [{ZERO: "a"}, {ONE: "c"}]

    asyncio.run(run())


def test_who_gives_up_ends_what_is_under_way() -> None:
    async def run() -> None:
        broker = Broker()
        sending = made(broker, by_number)
        await delivering(sending, (ZERO, [batch("a"), batch("b")]))
        sending.cancel()
        await run_callbacks()
        assert broker.is_cancelled(0)
        done = await delivering(sending, (ONE, [batch("c")]))
        assert done.result(0) is None
        assert broker.requests == [{ZERO: "a"}]

    asyncio.run(run())
