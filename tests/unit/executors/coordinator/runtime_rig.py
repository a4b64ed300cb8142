"""A runtime with the fake state machine on a ReplicaManager in memory."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sparklog.executors.coordinator import (
    CoordinatorRuntime,
    ResponseFuture,
    TransactionalProducer,
)
from sparklog.executors.partition import ACKS_ALL
from sparklog.types import Isolation, TopicPartition
from sparklog.wire.protocol.schema import Request
from sparklog.wire.records.builder import Record, encode_batch
from tests.support.waiting import until
from tests.unit.executors.coordinator.fake_state_machine import KeyValueStore
from tests.unit.executors.coordinator.replica_rig import NODE, OTHER, ReplicaRig, led

TOPIC = "__internal"
DEADLINE_S = 60.0
#: The state of a partition whose high watermark waits for broker 2.
REPLICATED = led(isr=(NODE, OTHER))


class RuntimeRig:
    """``stores`` has every state machine that was made, the last one last."""

    def __init__(self, replicas: ReplicaRig, **options: Any) -> None:
        self.replicas = replicas
        self.stores: list[KeyValueStore] = []
        self.make: Callable[[], KeyValueStore] = KeyValueStore
        values: dict[str, Any] = {
            "load_buffer_bytes": lambda: 1 << 20,
            "commit_timeout_ms": lambda: 20_000,
        }
        self.runtime = CoordinatorRuntime(
            replicas.replica_manager, TOPIC, self._make, **{**values, **options}
        )

    def _make(self) -> KeyValueStore:
        store = self.make()
        self.stores.append(store)
        return store

    @property
    def store(self) -> KeyValueStore:
        return self.stores[-1]

    async def start(self, *states: Any) -> None:
        """Create the topic and wait until every shard is active."""
        await self.replicas.create(TOPIC, *(states or (led(),)))
        await self.is_active(len(states or (led(),)))

    async def is_active(self, shards: int = 1) -> None:
        await until(lambda: self.runtime.as_json()["active_shards"] == shards)

    def submit(
        self, body: Request, partition: int = 0, producer: TransactionalProducer | None = None
    ) -> ResponseFuture:
        return self.runtime.submit(
            partition,
            body,
            version=0,
            client_id="client",
            client_host="/host",
            producer=producer,
        )

    async def ask(self, body: Request, partition: int = 0) -> Any:
        return await self.submit(body, partition)

    @property
    def log_end(self) -> int:
        return self.replicas.partition(TOPIC).log.log_end_offset

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(TOPIC, 0)


class Gate:
    """Holds blocking work back until it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.waiting = 0

    async def __call__(self, work: Callable[[], object]) -> object:
        self.waiting += 1
        await self.opened.wait()
        return work()


def append(rig: RuntimeRig, *keys: str, value: bytes | None = b"v", **options: object) -> None:
    """Append records to the log behind the runtime's back."""
    now_ms = rig.replicas.replica_manager.now_ms()
    records = [Record(key=key.encode(), value=value, timestamp=now_ms) for key in keys]
    batch = encode_batch(records, **options)  # type: ignore[arg-type]
    partition = rig.replicas.partition(TOPIC)
    in_transaction = bool(options.get("transactional"))
    partition.append_as_leader(batch, acks=ACKS_ALL, now_ms=now_ms, verified=in_transaction)


def log_of(rig: RuntimeRig) -> bytes:
    partition = rig.replicas.partition(TOPIC)
    found = partition.read(0, 1 << 20, replica_id=NODE, isolation=Isolation.READ_UNCOMMITTED)
    return found.records.read() if found.records else b""


def run(test: Callable[[RuntimeRig], Awaitable[None]], **options: Any) -> None:
    """Run a test with a fresh rig."""

    async def within() -> None:
        with ReplicaRig.open() as replicas:
            rig = RuntimeRig(replicas, **options)
            try:
                await asyncio.wait_for(test(rig), DEADLINE_S)
            finally:
                await rig.runtime.close()
                await replicas.replica_manager.close()

    asyncio.run(within())
