"""A control plane and brokers on one loop and a memory disk, and a raw client to ask them."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any, TypeVar
from unittest.mock import patch
from uuid import UUID

from sparklog.driver.control_plane.control_plane import ControlPlane
from sparklog.driver.control_plane.options import ControlPlaneOptions
from sparklog.executors.broker import Broker
from sparklog.executors.broker_options import BrokerOptions
from sparklog.executors.controller_link.connection import ControllerConnection
from sparklog.executors.tiering.remote_log_manager import RemoteLogManager
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_disk import forget_disk, named_disk
from sparklog.transport import ClientConnection, connect
from sparklog.types import Endpoint
from sparklog.wire.protocol.codec import decode_response, encode_request, response_type
from sparklog.wire.protocol.fetch import decode_fetch_response
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from sparklog.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog.wire.protocol.private import (
    LostBroker,
    NodeStatusRequest,
    NodeStatusResponse,
    ReportLossRequest,
    ReportLossResponse,
)
from sparklog.wire.protocol.produce import encode_produce_request
from sparklog.wire.protocol.schema import Request
from sparklog.wire.records.builder import decode_records
from tests.support.waiting import until

T = TypeVar("T")
#: Everything in a test ends within this.
DEADLINE_S = 60.0
_names = itertools.count(1)
#: A ``remote_dir`` that stands for a bucket of the rig's own, in which nothing happens by itself.
OWN_BUCKET = "memory://own"
SETTINGS = {
    "broker.heartbeat.interval.ms": "50",
    # Longer than a busy machine stands still: who is to be fenced is reported, or says otherwise.
    "broker.session.timeout.ms": "20000",
}


def run(test: Callable[["Rig"], Awaitable[T]], **settings: str) -> T:
    """Run a test with a fresh rig."""

    async def within() -> T:
        async with Rig.open(settings) as rig:
            return await asyncio.wait_for(test(rig), DEADLINE_S)

    own = settings.get("remote_dir") == OWN_BUCKET
    with idle_remote_log_managers() if own else nullcontext():
        return asyncio.run(within())


def idle_remote_log_managers() -> AbstractContextManager[object]:
    """Within it, brokers look after their tiered partitions only when a test says so."""

    async def idle(_: RemoteLogManager) -> None:
        await asyncio.Event().wait()

    return patch.object(RemoteLogManager, "run", idle)


class Rig:
    """One control plane; brokers are started on demand."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.disk_name = f"rig-{next(_names)}"
        self.settings = {**SETTINGS, **{k.replace("_", "."): v for k, v in settings.items()}}
        if self.settings.get("remote.dir") == OWN_BUCKET:
            self.settings["remote.dir"] = f"memory://{self.disk_name}-bucket"
        self.control: ControlPlane
        self.brokers: dict[int, Broker] = {}
        #: Further arguments of every broker.
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._control_task: asyncio.Task[None]
        self._control_port = 0
        self._clients: list[Client] = []
        self._started: set[int] = {1}

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: dict[str, str]) -> AsyncIterator["Rig"]:
        rig = cls(settings)
        await rig.start_control()
        try:
            yield rig
        finally:
            await rig.close()

    @property
    def disk(self) -> MemoryBackend:
        return self.disk_of(1)

    def disk_of(self, broker_id: int) -> MemoryBackend:
        """Each broker has its own; the first one's holds the journal too."""
        return MemoryBackend(named_disk(self.disk_name_of(broker_id)), "data")

    def disk_name_of(self, broker_id: int) -> str:
        return self.disk_name if broker_id == 1 else f"{self.disk_name}-{broker_id}"

    async def start_control(self) -> None:
        self.control = ControlPlane(
            ControlPlaneOptions(
                journal_dir=f"memory://{self.disk_name}/journal",
                port=self._control_port,
                settings=self.settings,
            )
        )
        await self.control.start()
        self._control_port = self.control.port
        self._control_task = asyncio.create_task(self.control.run())

    async def stop_control(self) -> None:
        self.control.stop("test")
        await self._control_task

    def options(self, broker_id: int = 1, **changes: Any) -> BrokerOptions:
        values: dict[str, Any] = {
            "cluster_id": self.control.image.cluster_id,
            "broker_id": broker_id,
            "data_dir": f"memory://{self.disk_name_of(broker_id)}/data",
            "controller": f"127.0.0.1:{self._control_port}",
            "secret": self.control.secret.hex(),
            "new": True,
            "settings": self.settings,
            "lock_wait_s": 0.3,
        }
        return BrokerOptions(**{**values, **changes})

    async def start_broker(self, broker_id: int = 1, **changes: Any) -> Broker:
        self._started.add(broker_id)
        broker = Broker(self.options(broker_id, **changes))
        await broker.start()
        self.brokers[broker_id] = broker
        self._tasks[broker_id] = asyncio.create_task(broker.run())
        return broker

    async def stop_broker(self, broker_id: int = 1) -> None:
        self.brokers.pop(broker_id).ask_to_stop("test")
        await self._tasks.pop(broker_id)

    async def crash_broker(self, broker_id: int = 1) -> None:
        """End the broker's tasks without any of its good-byes; unflushed bytes are kept."""
        await self.cut_off_broker(broker_id)
        self.disk_of(broker_id).crash(keep_unflushed=1 << 30)

    async def lose_power(self, broker_id: int) -> None:
        """As ``crash_broker``, but what was not flushed is gone."""
        await self.cut_off_broker(broker_id)
        self.disk_of(broker_id).crash()

    async def cut_off_broker(self, broker_id: int) -> None:
        """End its tasks and connections; its disk stays as it is."""
        broker = self.brokers.pop(broker_id)
        task = self._tasks.pop(broker_id)
        broker._close_all = _no_good_byes  # type: ignore[method-assign]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert broker._server is not None
        await broker._server.close(0)
        broker._lifecycle.close()
        await broker.replication.close()

    async def with_topic(self, partitions: int = 1, **configs: str) -> tuple["Client", UUID]:
        """A broker that leads topic ``t``, and a client of it."""
        await self.start_broker()
        client = await self.client()
        topic_id = await client.create_topic("t", partitions, **configs)
        await self.leads(partitions)
        return client, topic_id

    async def client(self, broker_id: int = 1) -> "Client":
        client = Client(await connect(Endpoint("127.0.0.1", self.brokers[broker_id].port), 20))
        self._clients.append(client)
        return client

    async def leads(self, count: int, broker_id: int = 1) -> None:
        """Wait until the broker leads so many partitions."""
        replica_manager = self.brokers[broker_id].replica_manager
        await until(lambda: sum(partition.is_leader for partition in replica_manager) == count)

    async def report_broker_death(self, broker_id: int) -> None:
        """What a supervisor does when its broker dies."""
        link = ControllerConnection(
            Endpoint("127.0.0.1", self._control_port), self.control.secret, client_id="t"
        )
        try:
            lost = ReportLossRequest(brokers=(LostBroker(broker_id=broker_id),))
            await link.call(lost, ReportLossResponse, 20)
        finally:
            link.close()

    async def status(self, broker_id: int = 1) -> dict[str, Any]:
        link = ControllerConnection(
            Endpoint("127.0.0.1", self.brokers[broker_id].port), self.control.secret, client_id="t"
        )
        try:
            response = await link.call(NodeStatusRequest(), NodeStatusResponse, 20)
        finally:
            link.close()
        answer: dict[str, Any] = json.loads(response.status)
        return answer

    async def close(self) -> None:
        for client in self._clients:
            client.connection.close()
        for broker_id in list(self.brokers):
            await self.stop_broker(broker_id)
        if not self._control_task.done():
            await self.stop_control()
        for broker_id in self._started:
            forget_disk(self.disk_name_of(broker_id))
        forget_disk(f"{self.disk_name}-bucket")


async def _no_good_byes(*, meanwhile: asyncio.Task[None] | None = None, **_: object) -> None:
    """In place of ``Broker._close_all``: a dead broker sends no heartbeats either."""
    if meanwhile is not None:
        meanwhile.cancel()


class Client:
    """Speaks raw messages to one node."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def ask(self, request: Request, version: int | None = None) -> Any:
        version = type(request).MAX_VERSION if version is None else version
        answer = await self.connection.request([encode_request(request, version, 5, "test")])
        correlation_id, response = decode_response(response_type(request.API_KEY), version, answer)
        assert correlation_id == 5
        return response

    async def create_topic(
        self, name: str, partitions: int = 1, *, replication_factor: int = 1, **configs: str
    ) -> UUID:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=tuple(
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ),
        )
        response = await self.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=5000))
        (result,) = response.topics
        assert result.error_code == 0, result
        return UUID(str(result.topic_id))

    async def alter(self, kind: int, name: str, **values: str | None) -> None:
        """Set settings, or delete them (None)."""
        changes = tuple(
            AlterableConfig(
                name=key.replace("_", "."), config_operation=int(value is None), value=value
            )
            for key, value in values.items()
        )
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        response = await self.ask(IncrementalAlterConfigsRequest(resources=(resource,)))
        (result,) = response.responses
        assert result.error_code == 0, result

    async def produce(
        self,
        topic: str | UUID,
        records: bytes | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 11,
        timeout_ms: int = 5000,
        transactional_id: str | None = None,
    ) -> PartitionProduceResponse:
        request = produce_request(topic, records, partition, acks, timeout_ms, transactional_id)
        response = await self.ask_produce(request, version)
        ((result,),) = [t.partition_responses for t in response.responses]
        return result

    async def ask_produce(self, request: ProduceRequest, version: int) -> ProduceResponse:
        """As ``ask``; the records are not copied."""
        answer = await self.connection.request(encode_produce_request(version, 6, "t", request))
        return decode_response(ProduceResponse, version, answer)[1]

    async def fetch(
        self, topic: str | UUID, offset: int = 0, *, partition: int = 0, **more: Any
    ) -> tuple[int, list[bytes | None]]:
        """Error code and values of one partition."""
        part = FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=more.pop("partition_max_bytes", 1 << 20),
        )
        response = await self.fetch_all(topic, (part,), **more)
        if response.error_code:
            return response.error_code, []
        ((data,),) = [t.partitions for t in response.responses]
        return data.error_code, values_of(data.records)

    async def fetch_all(
        self,
        topic: str | UUID,
        parts: tuple[FetchPartition, ...],
        *,
        version: int = 11,
        **more: Any,
    ) -> FetchResponse:
        by_id = isinstance(topic, UUID)
        wanted = FetchTopic(
            topic="" if by_id else str(topic),
            topic_id=topic if isinstance(topic, UUID) else None,
            partitions=parts,
        )
        request = FetchRequest(topics=(wanted,), **{"min_bytes": 1, **more})
        answer = await self.connection.request([encode_request(request, version, 7, "t")])
        _, response = decode_fetch_response(version, answer)
        return response


def produce_request(
    topic: str | UUID,
    records: bytes | None,
    partition: int,
    acks: int,
    timeout_ms: int = 5000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    by_id = isinstance(topic, UUID)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=(
            TopicProduceData(
                name="" if by_id else str(topic),
                topic_id=topic if isinstance(topic, UUID) else None,
                partition_data=(PartitionProduceData(index=partition, records=records),),
            ),
        ),
    )


def values_of(records: Any) -> list[bytes | None]:
    return [record.value for record in decode_records(bytes(records or b""))]
