"""The coordinator's log: fences, sequences, outcomes that are not known, and loading."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, cast
from unittest.mock import patch

import pytest

from sparklog.client.data_client import DataClient
from sparklog.client.fetch_api import Fetched
from sparklog.driver.transaction_coordinator.coordinator_identity import (
    FENCE_KEY_VERSION,
    coordinator_identity,
    exhausted_identity,
)
from sparklog.driver.transaction_coordinator.transaction_log import (
    CoordinatorFencedError,
    LogChangedError,
    TransactionLog,
)
from sparklog.driver.transactions import TransactionRecord, read_transaction_record
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import COORDINATOR_PRODUCER_ID_BASE, TopicPartition
from sparklog.wire.records.batch import read_header
from tests.unit.driver.transaction_coordinator.fake_log import TP, FakeLog

T = TypeVar("T")
LOST = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")


def run(work: Coroutine[Any, Any, T]) -> T:
    async def within() -> T:
        with patch("sparklog.client.backoff.asyncio.sleep", _no_pause):
            return await asyncio.wait_for(work, 20)

    return asyncio.run(within())


async def _no_pause(_seconds: float) -> None:
    """The pauses between attempts have no part in these stories."""


def log_of(fake: FakeLog, controller_epoch: int = 1) -> TransactionLog:
    return TransactionLog(
        TP,
        cast(DataClient, fake),
        controller_epoch=controller_epoch,
        load_bytes=100,
        replaying=asyncio.Lock(),
        wall_ms=lambda: 1_000,
    )


def record(number: int) -> TransactionRecord:
    return TransactionRecord(b"\x00\x00key%d" % number, b"value%d" % number)


async def loaded(log: TransactionLog) -> list[TransactionRecord]:
    """The records of a load, without fences."""
    found: list[TransactionRecord] = []
    await log.load(found.append)
    return [each for each in found if each.key[:2] == b"\x00\x00"]


@pytest.mark.parametrize(
    ("controller_epoch", "producer", "epoch"),
    [(0, 0, 0), (1, 0, 1), (32_766, 0, 32_766), (32_767, 1, 0), (65_535, 2, 1)],
)
def test_each_controller_epoch_has_an_identity(
    controller_epoch: int, producer: int, epoch: int
) -> None:
    assert coordinator_identity(controller_epoch) == (
        COORDINATOR_PRODUCER_ID_BASE + producer,
        epoch,
    )


def test_the_id_before_is_fenced_for_good_when_its_epochs_have_run_out() -> None:
    assert exhausted_identity(32_766) is None
    assert exhausted_identity(32_767) == (COORDINATOR_PRODUCER_ID_BASE, 32_767)

    async def story() -> None:
        fake = FakeLog()
        last, first_of_next = log_of(fake, 32_766), log_of(fake, 32_767)
        assert await loaded(last) == []
        await last.append([record(1)])
        assert await loaded(first_of_next) == [record(1)]
        with pytest.raises(CoordinatorFencedError):
            await last.append([record(2)])
        again = log_of(fake, 32_768)  # the fence of the exhausted id is repeated
        assert await loaded(again) == [record(1)]

    run(story())


def test_a_fence_is_a_record_that_kafka_ignores() -> None:
    async def story() -> None:
        fake = FakeLog()
        await loaded(log_of(fake))
        ((key, value),) = fake.records()
        assert key is not None
        assert int.from_bytes(key, "big") == FENCE_KEY_VERSION
        assert read_transaction_record(TransactionRecord(key, value)) is None

    run(story())


def test_a_load_ends_the_appends_of_earlier_controllers() -> None:
    async def story() -> None:
        fake = FakeLog()
        old, new = log_of(fake, 3), log_of(fake, 4)
        await loaded(old)
        await old.append([record(1), record(2)])
        await old.append([record(3)])
        assert await loaded(new) == [record(1), record(2), record(3)]
        with pytest.raises(CoordinatorFencedError, match="later controller"):
            await old.append([record(4)])
        with pytest.raises(CoordinatorFencedError):
            await loaded(log_of(fake, 3))
        assert fake.closed_lanes == [str(TP)] * 2

    run(story())


@pytest.mark.parametrize("lost", [False, True])
def test_an_append_of_unknown_outcome_is_repeated_and_happens_once(lost: bool) -> None:
    async def story() -> None:
        fake = FakeLog()
        log = log_of(fake)
        await loaded(log)
        fake.lose_answers = lost
        fake.faults.extend([LOST, LOST, None])
        assert await log.append([record(1), record(2)]) == 1
        assert fake.sent == 4
        assert await log.append([record(3)]) == 3
        assert fake.records()[1:] == [tuple(record(n)) for n in (1, 2, 3)]
        sequences = [read_header(batch).base_sequence for batch in fake.batches]
        assert sequences == [0, 1, 3]

    run(story())


def test_a_refused_batch_is_not_repeated_and_uses_no_sequence() -> None:
    async def story() -> None:
        fake = FakeLog()
        log = log_of(fake)
        await loaded(log)
        fake.faults.append(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large"))
        with pytest.raises(KafkaError, match="too large"):
            await log.append([record(1)])
        assert await log.append([record(2)]) == 1

    run(story())


def test_a_log_that_lacks_acknowledged_records_is_loaded_again() -> None:
    async def story() -> None:
        fake = FakeLog()
        log = log_of(fake)
        await loaded(log)
        for number in range(4):
            await log.append([record(number)])
        fake.forget(2)
        with pytest.raises(LogChangedError):
            await log.append([record(9)])
        assert await loaded(log) == [record(0), record(1)]
        await log.append([record(5)])
        assert await loaded(log) == [record(0), record(1), record(5)]

    run(story())


@pytest.mark.parametrize("reads", [1, 2, 3])
def test_a_load_begins_anew_when_the_log_loses_its_fence_meanwhile(reads: int) -> None:
    async def story() -> None:
        fake = FakeLog()
        old, new = log_of(fake, 3), log_of(fake, 4)
        await loaded(old)
        for number in range(4):
            await old.append([record(number)])
        fetch, fetched = fake.fetch, 0

        async def losing_fetch(tp: TopicPartition, offset: int, **options: object) -> Fetched:
            nonlocal fetched
            fetched += 1
            if fetched == reads:
                fake.forget(3)
            return await fetch(tp, offset, **options)

        lost = pytest.raises(LogChangedError, match="had records up to")
        with patch.object(fake, "fetch", losing_fetch), lost:
            await loaded(new)
        assert await loaded(new) == [record(0), record(1)]

    run(story())
