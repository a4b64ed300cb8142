"""Calls and answers over the pipes of a process."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.tiering.message_channel import MessageChannel
from sparklog.executors.tiering.messages import Answer, Call, MessageDecoder, encode_message
from sparklog.remote_log.chunk_cache import ChunkCacheCounters
from tests.support.waiting import until


class Pipes:
    """A channel, and the process's ends of its pipes."""

    def __init__(self) -> None:
        self.child_input, self._input = os.pipe()
        self._output, self.child_output = os.pipe()
        self.channel = MessageChannel(self._input, self._output)
        self._decoder = MessageDecoder()

    def close(self) -> None:
        self.channel.close()
        for descriptor in (self.child_input, self._input, self._output, self.child_output):
            with suppress(OSError):
                os.close(descriptor)

    async def next_call(self) -> Call:
        call: Call | None = None
        while call is None:
            size = await asyncio.to_thread(os.readv, self.child_input, [self._decoder.room()])
            call = self._decoder.received(size)
        return call

    def answer(self, *answers: Answer) -> None:
        os.write(self.child_output, b"".join(map(encode_message, answers)))


def run(test: Callable[[Pipes], Awaitable[None]]) -> None:
    async def within() -> None:
        pipes = Pipes()
        try:
            await asyncio.wait_for(test(pipes), 30)
        finally:
            pipes.close()

    asyncio.run(within())


def test_answers_find_their_calls_in_any_order() -> None:
    async def test(pipes: Pipes) -> None:
        first = pipes.channel.call("a", 1, x=2)
        second = pipes.channel.call("b")
        assert await pipes.next_call() == Call(1, "a", (1,), {"x": 2})
        assert await pipes.next_call() == Call(2, "b", (), {})
        pipes.answer(Answer(2, 5))
        assert await second == 5
        assert not first.done()
        encoded = encode_message(Answer(1, b"x" * 100))
        for index in range(len(encoded)):
            os.write(pipes.child_output, encoded[index : index + 1])
        assert await first == b"x" * 100
        assert pipes.channel.waiting == 0

    run(test)


def test_answers_tell_what_the_cache_of_the_process_has_done() -> None:
    async def test(pipes: Pipes) -> None:
        assert pipes.channel.cache == ChunkCacheCounters()
        forgotten, second = pipes.channel.call("a"), pipes.channel.call("b")
        forgotten.cancel()
        counters = ChunkCacheCounters(hits=5, bytes_used=7)
        pipes.answer(Answer(2, 1), Answer(1, 1, cache=counters))
        assert await second == 1
        await until(lambda: pipes.channel.cache == counters)

    run(test)


def test_a_call_may_fail() -> None:
    async def test(pipes: Pipes) -> None:
        future = pipes.channel.call("a")
        pipes.answer(Answer(1, None, KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "offset 5")))
        with pytest.raises(KafkaError, match="offset 5") as caught:
            await future
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    run(test)


def test_calls_that_are_larger_than_the_pipe_arrive_whole() -> None:
    async def test(pipes: Pipes) -> None:
        data = os.urandom(3 << 20)
        large = pipes.channel.call("copy", data)
        small = pipes.channel.call("b")
        assert (await pipes.next_call()).args == (data,)
        assert (await pipes.next_call()).method == "b"
        pipes.answer(Answer(1, 1), Answer(2, 2))
        assert (await large, await small) == (1, 2)

    run(test)


def test_the_end_of_the_process_fails_what_waits_and_what_comes_later() -> None:
    async def test(pipes: Pipes) -> None:
        future = pipes.channel.call("a")
        os.close(pipes.child_output)
        with pytest.raises(StorageError, match="it has ended"):
            await future
        assert not pipes.channel.is_open
        with pytest.raises(StorageError, match="it has ended"):
            pipes.channel.call("b")

    run(test)


@pytest.mark.parametrize("data", [b"\0\0\0\2hi", b"\0\0\0\5\x80\x05K\x05."])
def test_whatever_is_no_answer_ends_the_channel(data: bytes) -> None:
    async def test(pipes: Pipes) -> None:
        future = pipes.channel.call("a")
        os.write(pipes.child_output, data)
        with pytest.raises(StorageError, match="something else than an answer"):
            await future

    run(test)


def test_a_forgotten_call_may_still_be_answered() -> None:
    async def test(pipes: Pipes) -> None:
        pipes.channel.call("a").cancel()
        second = pipes.channel.call("b")
        pipes.answer(Answer(1, 1), Answer(2, 2))
        assert await second == 2

    run(test)
