"""Members that consume, transform and produce in transactions, of other people's clients.

Owns: how each client begins a transaction, sends the offsets of its group and commits.  Must not
know what a test expects of the output.

A chain runs by itself until it is ended.  For each input record it writes ``partition/offset``.
"""

import asyncio
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.clients.go_member import go_program

SESSION_MS = 10_000
SECONDS_MAX = 60.0
_AT_ONCE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainPlan:
    """Where a member reads and writes, and its transactional id."""

    bootstrap: str
    group: str
    source: str
    target: str
    transactional_id: str


class Chain(Protocol):
    """A member that works."""

    def kill(self) -> None:
        """End it, perhaps in a transaction.  A process does not say goodbye to its group."""


class ConfluentChain:
    def __init__(self, plan: ChainPlan) -> None:
        self._plan = plan
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def kill(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        plan = self._plan
        own = {"bootstrap.servers": plan.bootstrap, "log_level": 0}
        producer = Producer({**own, "transactional.id": plan.transactional_id, "linger.ms": 0})
        producer.init_transactions(SECONDS_MAX)
        consumer = Consumer(
            {
                **own,
                "group.id": plan.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
            }
        )
        consumer.subscribe([plan.source])
        while True:
            records = [each for each in consumer.consume(_AT_ONCE, 0.2) if each.error() is None]
            if records:
                producer.begin_transaction()
                for each in records:
                    producer.produce(plan.target, f"{each.partition()}/{each.offset()}")
                if self._over.is_set():
                    producer.flush(SECONDS_MAX)
                    return  # with an open transaction, and without a word to the group
            elif self._over.is_set():
                return
            else:
                continue
            ends = {each.partition(): (each.offset() or 0) + 1 for each in records}
            places = [TopicPartition(plan.source, n or 0, end) for n, end in ends.items()]
            try:
                producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata())
                producer.commit_transaction()
            except KafkaException as failure:
                if not failure.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction()
                for each in {each.partition(): each for each in reversed(records)}.values():
                    with suppress(KafkaException):  # the partition went to another member
                        consumer.seek(
                            TopicPartition(plan.source, each.partition() or 0, each.offset() or 0)
                        )


class AiokafkaChain:
    """A producer for each partition of the source, because aiokafka sends offsets without the
    generation of its member: a new owner fences the producer of the old one (before KIP-447)."""

    def __init__(self, plan: ChainPlan) -> None:
        self._plan = plan
        self._producers: dict[AiokafkaPartition, AIOKafkaProducer] = {}
        #: The offsets to go on with; after a rebalance older records may still come.
        self._next: dict[AiokafkaPartition, int] = {}
        #: A rebalance waits for the end of a transaction.
        self._lock = asyncio.Lock()
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._work())
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def kill(self) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.close()

    async def _work(self) -> None:
        plan = self._plan
        consumer = AIOKafkaConsumer(
            bootstrap_servers=plan.bootstrap,
            group_id=plan.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
        )
        await consumer.start()
        consumer.subscribe([plan.source], listener=_Owner(self, consumer))
        try:
            while True:
                found = await consumer.getmany(timeout_ms=200, max_records=_AT_ONCE)
                for partition, records in found.items():
                    async with self._lock:
                        await self._copy(consumer, partition, records)
        finally:
            await consumer.stop()
            await self.give_up()

    async def _copy(
        self, consumer: AIOKafkaConsumer, partition: AiokafkaPartition, records: list[Any]
    ) -> None:
        producer = self._producers.get(partition)
        if producer is None:
            return  # the partition went to another member
        records = [each for each in records if each.offset >= self._next[partition]]
        if not records:
            return
        if records[0].offset > self._next[partition]:
            consumer.seek(partition, self._next[partition])
            return
        try:
            async with producer.transaction():
                for each in records:
                    value = f"{partition.partition}/{each.offset}".encode()
                    await producer.send(self._plan.target, value)
                ends = {partition: records[-1].offset + 1}
                await producer.send_offsets_to_transaction(ends, self._plan.group)
            self._next |= ends
        except ProducerFenced:
            self._producers.pop(partition, None)
            await producer.stop()

    async def take(self, consumer: AIOKafkaConsumer, partition: AiokafkaPartition) -> None:
        """Fence the owner before, and go on where its last transaction has ended."""
        async with self._lock:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._plan.bootstrap,
                transactional_id=f"{self._plan.source}-{partition.partition}",
            )
            await producer.start()
            self._producers[partition] = producer
            self._next[partition] = await consumer.committed(partition) or 0
            consumer.seek(partition, self._next[partition])

    async def give_up(self) -> None:
        async with self._lock:
            for producer in self._producers.values():
                await producer.stop()
            self._producers.clear()


class _Owner(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, chain: AiokafkaChain, consumer: AIOKafkaConsumer) -> None:
        self._chain, self._consumer = chain, consumer

    async def on_partitions_revoked(self, revoked: object) -> None:
        await self._chain.give_up()

    async def on_partitions_assigned(self, assigned: Iterable[AiokafkaPartition]) -> None:
        for partition in assigned:
            await self._chain.take(self._consumer, partition)


class FranzGoChain:
    """franz-go's ``GroupTransactSession``, in a process of its own."""

    def __init__(self, plan: ChainPlan) -> None:
        options = {
            "mode": "chain",
            "bootstrap": plan.bootstrap,
            "group": plan.group,
            "topic": plan.source,
            "output": plan.target,
            "id": plan.transactional_id,
        }
        self._process = subprocess.Popen(
            [str(go_program()), *(f"-{name}={value}" for name, value in options.items())],
            stdout=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(SECONDS_MAX)


CHAINS: Mapping[str, Callable[[ChainPlan], Chain]] = {
    "confluent": ConfluentChain,
    "aiokafka": AiokafkaChain,
    "franz-go": FranzGoChain,
}
