"""One partition of the coordinator: batches, requests, loads and what ends them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast
from unittest.mock import patch

import pytest

from sparklog.client.data_client import DataClient
from sparklog.driver.transaction_coordinator import partition_coordinator
from sparklog.driver.transaction_coordinator.marker_sender import MarkerSender, OnWritten
from sparklog.driver.transaction_coordinator.partition_coordinator import (
    PartitionCoordinator,
    PartitionTools,
)
from sparklog.driver.transaction_coordinator.transaction_log import (
    CoordinatorFencedError,
    TransactionLog,
)
from sparklog.driver.transactions import (
    Now,
    ProducerIdentity,
    TransactionConfig,
    TransactionShard,
    TransactionState,
    WriteMarkers,
)
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition
from sparklog.wire.records.batch import read_header
from tests.support.waiting import until
from tests.unit.driver.transaction_coordinator.coordinator_clients import CoordinatorClients
from tests.unit.driver.transaction_coordinator.fake_log import TP, FakeLog

PARTITION = frozenset({TopicPartition("a", 0)})


class Markers:
    """A marker sender that remembers."""

    def __init__(self) -> None:
        self.writes: list[tuple[WriteMarkers, OnWritten]] = []

    def write(self, write: WriteMarkers, on_written: OnWritten) -> None:
        self.writes.append((write, on_written))

    def forget(self, on_written: OnWritten) -> None:
        self.writes = [each for each in self.writes if each[1] != on_written]


class Rig(CoordinatorClients):
    def __init__(self, fake: FakeLog, controller_epoch: int = 1) -> None:
        super().__init__()
        self.fake = fake
        self.markers = Markers()
        self.fenced: list[CoordinatorFencedError] = []
        self.ms = 0
        self._producer_ids = iter(range(100, 10_000))
        tools = PartitionTools(
            new_shard=lambda: TransactionShard(
                TransactionConfig(), lambda: next(self._producer_ids)
            ),
            now=lambda: Now(self.ms, 1_000_000 + self.ms),
            markers=cast(MarkerSender, self.markers),
            loads=asyncio.Semaphore(1),
            on_fenced=self.fenced.append,
        )
        log = TransactionLog(
            TP,
            cast(DataClient, fake),
            controller_epoch=controller_epoch,
            load_bytes=100,
            replaying=asyncio.Lock(),
            wall_ms=lambda: 0,
        )
        self.partition = PartitionCoordinator(log, tools)
        self.task = asyncio.get_running_loop().create_task(self.partition.run())

    async def ready(self) -> None:
        await until(lambda: self.partition.shard is not None)

    def add(self, name: str, producer: ProducerIdentity) -> "asyncio.Future[Any]":
        return self.add_partitions(name, producer, PARTITION)

    def state(self, name: str) -> TransactionState:
        transaction = self.partition.require_shard().get(name)
        assert transaction is not None
        return transaction.state

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def run(story: Callable[[FakeLog], Awaitable[None]]) -> None:
    async def within() -> None:
        with patch.object(partition_coordinator, "_RETRY_S", (0.001, 0.002)):
            await asyncio.wait_for(story(FakeLog()), 20)

    asyncio.run(within())


def run_loaded(story: Callable[[Rig], Awaitable[None]]) -> None:
    """A story of one coordinator, from when it has loaded its log."""

    async def loaded(fake: FakeLog) -> None:
        rig = Rig(fake)
        await rig.ready()
        await story(rig)
        await rig.close()

    run(loaded)


def test_requests_are_refused_until_the_log_is_loaded() -> None:
    async def story(fake: FakeLog) -> None:
        rig = Rig(fake)
        with pytest.raises(KafkaError) as refused:
            rig.init("x")
        assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await rig.ready()
        assert await rig.init("x") == ProducerIdentity(100, 0)
        await rig.close()

    run(story)


def test_the_transitions_of_one_tick_share_a_batch() -> None:
    async def story(rig: Rig) -> None:
        await asyncio.gather(*(rig.init(f"id-{number}") for number in range(20)))
        assert [read_header(batch).record_count for batch in rig.fake.batches] == [1, 20]

    run_loaded(story)


def test_a_transaction_is_committed_and_its_next_coordinator_finishes_it() -> None:
    async def story(fake: FakeLog) -> None:
        first = Rig(fake, 1)
        await first.ready()
        producer = await first.init("x")
        await first.add("x", producer)
        await first.commit("x", producer)
        assert first.state("x") == TransactionState.PREPARE_COMMIT
        ((marker, _),) = first.markers.writes
        assert (marker.producer, marker.partitions, marker.committed) == (producer, PARTITION, True)
        await first.close()
        second = Rig(fake, 2)
        await second.ready()
        ((again, on_written),) = second.markers.writes
        assert again == marker
        on_written("x", producer, PARTITION)
        await until(lambda: second.state("x") == TransactionState.COMPLETE_COMMIT)
        await second.close()

    run(story)


def test_a_commit_whose_coordinator_ends_meanwhile_may_be_in_the_log() -> None:
    """The client is told to ask again, and the next coordinator goes on with the commit."""

    async def story(fake: FakeLog) -> None:
        first = Rig(fake, 1)
        await first.ready()
        producer = await first.init("x")
        await first.add("x", producer)
        unknown = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "not replicated yet")
        fake.lose_answers, before = True, len(fake.batches)
        fake.faults.extend([unknown] * 1000)
        commit = first.commit("x", producer)
        await until(lambda: len(fake.batches) > before)
        await first.close()
        with pytest.raises(KafkaError) as unanswered:
            await commit
        assert unanswered.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        fake.faults.clear()
        second = Rig(fake, 2)
        await second.ready()
        assert second.state("x") == TransactionState.PREPARE_COMMIT
        ((marker, _),) = second.markers.writes
        assert (marker.producer, marker.partitions, marker.committed) == (producer, PARTITION, True)
        await second.close()

    run(story)


def test_a_later_controller_ends_this_one() -> None:
    async def story(fake: FakeLog) -> None:
        first = Rig(fake, 1)
        await first.ready()
        second = Rig(fake, 2)
        await second.ready()
        with pytest.raises(KafkaError) as refused:
            await first.init("x")
        assert refused.value.code == ErrorCode.NOT_COORDINATOR
        assert len(first.fenced) == 1
        assert first.task.done()
        assert await second.init("x") == ProducerIdentity(100, 0)
        await second.close()

    run(story)


def test_a_record_that_is_too_large_refuses_its_own_request_only() -> None:
    async def story(rig: Rig) -> None:
        too_large = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
        rig.fake.faults.extend([too_large, None, too_large, None])
        results = await asyncio.gather(*map(rig.init, "xyz"), return_exceptions=True)
        assert [getattr(each, "code", None) for each in results] == [
            None, ErrorCode.MESSAGE_TOO_LARGE, None,
        ]  # fmt: skip
        assert await rig.init("y") == ProducerIdentity(103, 0)

    run_loaded(story)


def test_a_changed_log_is_loaded_again_and_requests_are_refused_meanwhile() -> None:
    async def story(rig: Rig) -> None:
        producer = await rig.init("kept")
        await rig.init("lost")
        rig.fake.forget(1)
        with pytest.raises(KafkaError) as refused:
            await rig.init("another")
        assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await rig.ready()
        assert rig.partition.require_shard().get("lost") is None
        await rig.add("kept", producer)

    run_loaded(story)


def test_a_request_whose_client_has_gone_is_withdrawn() -> None:
    async def story(rig: Rig) -> None:
        producer = await rig.init("x")
        await rig.add("x", producer)
        await rig.commit("x", producer)
        waiting = rig.init("x")  # until the markers are written
        waiting.cancel()
        await asyncio.sleep(0)
        ((_, on_written),) = rig.markers.writes
        on_written("x", producer, PARTITION)
        await until(lambda: rig.state("x") == TransactionState.COMPLETE_COMMIT)
        assert rig.partition.require_shard().get("x").producer_epoch == 0  # type: ignore[union-attr]

    run_loaded(story)


def test_an_event_that_is_not_decided_loads_the_partition_again() -> None:
    async def story(rig: Rig) -> None:
        producer = await rig.init("x")
        await rig.add("x", producer)
        broken = rig.partition.require_shard()
        rig.ms = 70_000  # the transaction has timed out
        with patch.object(TransactionShard, "pass_time", side_effect=ValueError("a bug")):
            rig.partition.pass_time()
        await until(lambda: rig.partition.shard not in (None, broken))
        rig.ms += 70_000
        rig.partition.pass_time()
        await until(lambda: rig.markers.writes)

    run_loaded(story)


def test_a_report_of_markers_that_is_not_taken_is_given_again_after_a_load() -> None:
    async def story(rig: Rig) -> None:
        producer = await rig.init("x")
        await rig.add("x", producer)
        await rig.commit("x", producer)
        ((_, on_written),) = rig.markers.writes
        broken = rig.partition.require_shard()
        with patch.object(TransactionShard, "markers_written", side_effect=ValueError("a bug")):
            on_written("x", producer, PARTITION)
        await until(lambda: rig.partition.shard not in (None, broken))
        ((_, on_written),) = rig.markers.writes
        on_written("x", producer, PARTITION)
        await until(lambda: rig.state("x") == TransactionState.COMPLETE_COMMIT)

    run_loaded(story)


def test_a_request_that_is_not_decided_is_not_kept() -> None:
    async def story(rig: Rig) -> None:
        with (
            patch.object(TransactionShard, "handle", side_effect=ValueError("a bug")),
            pytest.raises(ValueError, match="a bug"),
        ):
            rig.init("x")
        assert rig.partition._requests == {}
        assert await rig.init("x") == ProducerIdentity(100, 0)

    run_loaded(story)
