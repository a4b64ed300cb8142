"""What is promised a flush gets one, whatever comes between: a crash, new settings, slow clocks."""

import asyncio
from collections.abc import Awaitable, Sequence

import pytest

from sparklog.config import TopicConfig
from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import Appended, Effect, FlushLog
from sparklog.executors.partition.partition import Partition
from sparklog.executors.purgatory.timer import Timers
from sparklog.executors.replica_manager.log_flusher import LogFlusher
from tests.support.waiting import until
from tests.unit.executors.partition.partition_maker import (
    NOW,
    TP,
    Maker,
    asks_for_flush,
    batch,
    flush,
)

DEADLINE_S = 20.0


def crash(maker: Maker) -> None:
    """The process dies; what it wrote stays in the system's memory."""
    maker.backend.crash(keep_unflushed=1 << 30)
    maker.files.close()


@pytest.mark.parametrize("acks", [1, -1])
def test_a_retry_after_a_crash_waits_for_the_flush_that_the_crash_swallowed(
    maker: Maker, acks: int
) -> None:
    records = batch(b"a", producer_id=5, epoch=0, sequence=0)
    partition = maker.open(flush_messages=1)
    unanswered = partition.append_as_leader(records, acks=acks, now_ms=NOW)
    assert unanswered.required_offset is not None
    crash(maker)
    partition = maker.open(flush_messages=1)
    assert partition.high_watermark == 0
    retry = partition.append_as_leader(records, acks=acks, now_ms=NOW)
    assert (retry.base_offset, retry.size) == (0, 0)
    assert retry.required_offset is not None
    assert not partition.has_reached(retry.required_offset)
    flush(partition)
    assert partition.has_reached(retry.required_offset)
    assert partition.high_watermark == 1


def test_an_opened_log_asks_for_the_flush_that_its_settings_promise(maker: Maker) -> None:
    partition = maker.open()
    partition.append_as_leader(batch(b"a"), acks=1, now_ms=NOW)
    crash(maker)
    now = [FlushLog(topic_partition=TP, at_ms=NOW)]
    later = [FlushLog(topic_partition=TP, at_ms=NOW + 500)]
    assert maker.open(flush_messages=1).opened(NOW) == now
    assert maker.open(flush_ms=500).opened(NOW) == later
    assert maker.open().opened(NOW) == []


def test_an_ack_waits_for_the_promise_that_was_made_to_it_and_no_more(maker: Maker) -> None:
    partition = maker.open(flush_messages=2)
    first = partition.append_as_leader(batch(b"a", b"b"), acks=1, now_ms=NOW)
    job = partition.log.start_flush(NOW, force=partition.flush_pending)
    assert job is not None
    partition.configure(TopicConfig(), NOW)
    second = partition.append_as_leader(batch(b"c"), acks=1, now_ms=NOW)
    job.run()
    partition.log.finish_flush(job, NOW)
    assert not asks_for_flush(partition.flushed(NOW))
    for appended in (first, second):
        assert appended.required_offset is not None
        assert partition.has_reached(appended.required_offset)


class Shell:
    """Carries out the effects of one partition: a flusher, and a clock that the test sets."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.now_ms = NOW
        self.planned = 0
        self.flusher = LogFlusher(lambda: self.now_ms, self.carry_out, Timers())

    def carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, FlushLog):
                self.planned += 1
                self.flusher.plan(self.partition, effect.at_ms)

    def append(self, acks: int) -> Appended:
        appended = self.partition.append_as_leader(batch(b"a"), acks=acks, now_ms=self.now_ms)
        self.carry_out(appended.effects)
        return appended


def run(test: Awaitable[None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await test

    asyncio.run(within())


def test_a_timer_that_is_ahead_of_the_clock_is_set_again(maker: Maker) -> None:
    async def test() -> None:
        shell = Shell(maker.open(flush_ms=5))
        shell.append(acks=1)
        await until(lambda: shell.planned > 1)
        assert shell.partition.log.recovery_point == 0
        shell.now_ms += 5
        await until(lambda: shell.partition.log.recovery_point == 1)
        await shell.flusher.end_flushes(shell.partition)

    run(test())


def test_a_flush_that_breaks_down_refuses_the_acks_that_wait_for_it(maker: Maker) -> None:
    def break_down(operation: str, where: str) -> None:
        if operation == "flush":
            raise ZeroDivisionError

    async def test() -> None:
        shell = Shell(maker.open(flush_messages=1))
        maker.backend.faults.slow = break_down
        required = shell.append(acks=1).required_offset
        assert required is not None
        await until(lambda: shell.partition.log.offline is not None)
        with pytest.raises(KafkaError) as refused:
            shell.partition.has_reached(required)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        await shell.flusher.end_flushes(shell.partition)

    run(test())
