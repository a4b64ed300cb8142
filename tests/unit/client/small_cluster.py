"""A cluster of real servers with logs in memory: enough of the protocol for clients' tests.

Nodes 1 to n are brokers, node 0 the controller; all are dispatchers over loopback that share one
image.  ``refuse`` lets the next requests of an API fail, ``move`` changes a leader, ``preferred``
names followers for consumers with a rack.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

from sparklog.client.cluster_client import ClusterClient
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import (
    BrokerImage,
    BrokerRegistered,
    BrokerUnfenced,
    ClusterCreated,
    ClusterImage,
    ConfigChanged,
    ControllerChanged,
    PartitionChanged,
    PartitionImage,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from sparklog.service import describe_cluster, describe_configs, metadata
from sparklog.service.dispatch import ApiHandler, Dispatcher, RequestContext
from sparklog.service.handler import MANY_ITEMS, Handled
from sparklog.transport import Server, serve
from sparklog.types import NO_NODE, Endpoint, TopicPartition
from sparklog.wire.protocol.codec import request_type
from sparklog.wire.protocol.fetch import encode_fetch_response
from sparklog.wire.protocol.messages.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from sparklog.wire.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from sparklog.wire.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from sparklog.wire.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from sparklog.wire.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from sparklog.wire.protocol.messages.init_producer_id import InitProducerIdResponse
from sparklog.wire.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from sparklog.wire.protocol.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
    encode_produce_response,
)
from sparklog.wire.records.batch import iter_batches, stamp

HOST = "127.0.0.1"
NONE = ErrorCode.NONE


@dataclass
class Log:
    """One partition: whole batches and their offsets."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    sequences: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)

    def append(self, records: memoryview, epoch: int) -> int:
        """Append as a leader; returns the base offset.  Duplicates are acknowledged, not stored."""
        ((header, _),) = list(iter_batches(records))
        key = (header.producer_id, header.producer_epoch, header.base_sequence)
        if header.has_producer and key in self.sequences:
            return self.sequences[key][0]
        batch = bytearray(records)
        stamp(batch, self.end, epoch)
        base, self.end = self.end, self.end + header.record_count
        self.batches.append((base, self.end, bytes(batch)))
        self.sequences[key] = (base, self.end)
        return base

    def read(self, offset: int, max_bytes: int) -> bytes:
        if not self.start <= offset <= self.end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        found = b""
        for _, end, batch in self.batches:
            if end > offset and (not found or len(found) + len(batch) <= max_bytes):
                found += batch
        return found


class SmallCluster:
    def __init__(self, brokers: int = 2, *, auto_create: bool = True) -> None:
        self.image = ClusterImage()
        self.logs: dict[TopicPartition, Log] = {}
        self.requests: list[tuple[int, int, int]] = []  # node, api key, version
        self.max_versions: dict[int, int] = {}
        self.preferred: dict[TopicPartition, int] = {}
        self._broker_count = brokers
        self._auto_create = auto_create
        self._servers: dict[int, Server] = {}
        self._refusals: dict[int, list[ErrorCode | None]] = {}
        self._appended = asyncio.Event()
        self._next_producer_id = 1000

    # for tests

    @property
    def connections(self) -> int:
        """Connections that are open at all nodes."""
        return sum(len(server.connections) for server in self._servers.values())

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port(1)}"

    def port(self, node_id: int) -> int:
        return self._servers[node_id].port

    def refuse(self, api_key: int, *codes: ErrorCode | None) -> None:
        """Let the next requests fail; None closes the connection after handling the request."""
        self._refusals[api_key] = list(codes)

    def add_topic(self, name: str, leaders: tuple[int, ...] = (1,)) -> UUID:
        topic_id = uuid4()
        states = tuple(_state(leader) for leader in leaders)
        self.image.replay(TopicCreated(topic=name, topic_id=topic_id, partitions=states))
        for number in range(len(leaders)):
            self.logs[TopicPartition(name, number)] = Log()
        return topic_id

    def delete_topic(self, name: str) -> None:
        topic = self.image.topics[name]
        self.image.replay(TopicDeleted(topic=name, topic_id=topic.topic_id))
        self.logs = {tp: log for tp, log in self.logs.items() if tp.topic != name}

    def move(self, tp: TopicPartition, leader: int) -> None:
        old = self.image.topics[tp.topic].partitions[tp.partition]
        new = replace(_state(leader), leader_epoch=old.leader_epoch + 1)
        self.image.replay(PartitionChanged(topic=tp.topic, partition=tp.partition, state=new))

    async def stop_node(self, node_id: int) -> None:
        await self._servers.pop(node_id).close(0.1)

    def asked(self, api_key: int) -> list[int]:
        """The nodes that got this request, in order."""
        return [node for node, key, _ in self.requests if key == api_key]

    # life

    async def start(self) -> None:
        self.image.replay(ClusterCreated(cluster_id="small", created_ms=0))
        for node_id in range(self._broker_count + 1):
            server = await serve(HOST, 0, self._dispatcher(node_id))
            self._servers[node_id] = server
            if node_id == 0:
                self.image.replay(
                    ControllerChanged(controller_epoch=1, host=HOST, port=server.port)
                )
                continue
            broker = BrokerImage(
                broker_id=node_id, directory_id=UUID(int=node_id), host=HOST, port=server.port
            )
            self.image.replay(BrokerRegistered(broker=broker, clean=True))
            self.image.replay(BrokerUnfenced(broker_id=node_id))

    async def stop(self) -> None:
        for server in self._servers.values():
            await server.close(0.5)

    # requests

    def _dispatcher(self, node_id: int) -> Dispatcher:
        create = self._create if self._auto_create else None
        shared = [
            metadata.handler(lambda: self.image, create),
            describe_cluster.handler(lambda: self.image),
            describe_configs.handler(lambda: self.image, node_id=node_id, settings={}),
        ]
        if node_id == 0:
            own = [
                self.api(node_id, 19, 7, self._create_topics),
                self.api(node_id, 20, 6, self._delete_topics),
                self.api(node_id, 37, 3, self._create_partitions),
                self.api(node_id, 44, 1, self._alter_configs),
            ]
        else:
            own = [
                replace(
                    self.api(node_id, 0, 13, self._produce),
                    encode=lambda h, r: (
                        encode_produce_response(h.api_version, h.correlation_id, r),
                    ),
                ),
                replace(
                    self.api(node_id, 1, 18, self._fetch),
                    encode=lambda h, r: encode_fetch_response(h.api_version, h.correlation_id, r),
                ),
                self.api(node_id, 2, 11, self._list_offsets),
                self.api(node_id, 21, 2, self._delete_records),
                self.api(node_id, 22, 4, self._init_producer_id),
            ]
        return Dispatcher([*shared, *own, *self.further_apis(node_id)])

    def further_apis(self, node_id: int) -> list[ApiHandler]:
        """What a larger cluster serves besides."""
        del node_id
        return []

    def api(
        self, node_id: int, api_key: int, max_version: int, handle: Callable[..., Any]
    ) -> ApiHandler:
        def counted(context: RequestContext, request: Any) -> Handled:
            self.requests.append((node_id, api_key, context.version))
            refusals = self._refusals.get(api_key)
            code = refusals.pop(0) if refusals else NONE
            answer = handle(node_id, request, code or NONE)
            if code is None:
                context.connection.abort()
            return answer

        return ApiHandler(
            api_key=api_key,
            min_version=request_type(api_key).MIN_VERSION,
            max_version=self.max_versions.get(api_key, max_version),
            handle=counted,
            items_max=MANY_ITEMS,
            error_response=lambda request, error: None,
        )

    def _name(self, name: str, topic_id: UUID | None) -> str:
        topic = self.image.topic_by_id(topic_id)
        return topic.name if topic else name

    def _log(self, node_id: int, name: str, number: int) -> Log:
        state = self.image.partition(TopicPartition(name, number))
        if state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if state.leader != node_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.logs[TopicPartition(name, number)]

    def _leads(self, node_id: int, tp: TopicPartition) -> bool:
        state = self.image.partition(tp)
        return state is not None and state.leader == node_id

    def _produce(self, node_id: int, request: Any, code: ErrorCode) -> ProduceResponse | None:
        topics = []
        for topic in request.topic_data:
            name = self._name(topic.name, topic.topic_id)
            parts = []
            for part in topic.partition_data:
                try:
                    log = self._log(node_id, name, part.index)
                    if code:
                        raise KafkaError(code)
                    base = log.append(part.records, 0)
                    parts.append(PartitionProduceResponse(index=part.index, base_offset=base))
                except KafkaError as error:
                    parts.append(
                        PartitionProduceResponse(
                            index=part.index, error_code=error.code, base_offset=-1
                        )
                    )
            topics.append(
                TopicProduceResponse(
                    name=name, topic_id=topic.topic_id, partition_responses=tuple(parts)
                )
            )
        self._appended.set()
        self._appended = asyncio.Event()
        return ProduceResponse(responses=tuple(topics)) if request.acks else None

    async def _fetch(self, node_id: int, request: Any, code: ErrorCode) -> FetchResponse:
        response, size = self._read(node_id, request, code)
        if not size and request.max_wait_ms:
            try:
                await asyncio.wait_for(self._appended.wait(), request.max_wait_ms / 1000)
            except TimeoutError:
                return response
            response, _ = self._read(node_id, request, code)
        return response

    def _read(self, node_id: int, request: Any, code: ErrorCode) -> tuple[FetchResponse, int]:
        topics, size = [], 0
        for topic in request.topics:
            name = self._name(topic.topic, topic.topic_id)
            parts = []
            for part in topic.partitions:
                tp = TopicPartition(name, part.partition)
                preferred = self.preferred.get(tp, NO_NODE) if request.rack_id else NO_NODE
                try:
                    log = self.logs[tp] if node_id == preferred else self._log(node_id, *tp)
                    if code:
                        raise KafkaError(code)
                    sent_on = preferred != NO_NODE and self._leads(node_id, tp)
                    whole = log.read(part.fetch_offset, part.partition_max_bytes)
                    records = b"" if sent_on else whole
                    size += len(records) + sent_on
                    parts.append(
                        PartitionData(
                            partition_index=part.partition,
                            high_watermark=log.end,
                            last_stable_offset=log.end,
                            log_start_offset=log.start,
                            preferred_read_replica=preferred if sent_on else NO_NODE,
                            records=records,
                        )
                    )
                except KafkaError as error:
                    size += 1
                    parts.append(
                        PartitionData(
                            partition_index=part.partition,
                            error_code=error.code,
                            high_watermark=-1,
                        )
                    )
            topics.append(
                FetchableTopicResponse(topic=name, topic_id=topic.topic_id, partitions=tuple(parts))
            )
        return FetchResponse(responses=tuple(topics)), size

    def _list_offsets(self, node_id: int, request: Any, code: ErrorCode) -> ListOffsetsResponse:
        def answer(name: str, part: Any) -> ListOffsetsPartitionResponse:
            try:
                log = self._log(node_id, name, part.partition_index)
                if code:
                    raise KafkaError(code)
            except KafkaError as error:
                return ListOffsetsPartitionResponse(
                    partition_index=part.partition_index, error_code=error.code
                )
            offset = {-1: log.end, -2: log.start}.get(part.timestamp, part.timestamp)
            return ListOffsetsPartitionResponse(
                partition_index=part.partition_index, offset=offset, leader_epoch=0
            )

        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(answer(topic.name, p) for p in topic.partitions),
                )
                for topic in request.topics
            )
        )

    def _delete_records(self, node_id: int, request: Any, code: ErrorCode) -> DeleteRecordsResponse:
        topics = []
        for topic in request.topics:
            parts = []
            for part in topic.partitions:
                log = self._log(node_id, topic.name, part.partition_index)
                log.start = log.end if part.offset == -1 else part.offset
                log.batches = [batch for batch in log.batches if batch[1] > log.start]
                parts.append(
                    DeleteRecordsPartitionResult(
                        partition_index=part.partition_index, low_watermark=log.start
                    )
                )
            topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=tuple(parts)))
        return DeleteRecordsResponse(topics=tuple(topics))

    def _init_producer_id(self, _node_id: int, _request: Any, code: ErrorCode) -> Any:
        if code:
            return InitProducerIdResponse(error_code=code)
        self._next_producer_id += 1
        return InitProducerIdResponse(producer_id=self._next_producer_id, producer_epoch=0)

    async def _create(self, name: str) -> None:
        self.add_topic(name)

    def _create_topics(self, _node_id: int, request: Any, code: ErrorCode) -> CreateTopicsResponse:
        results = []
        for topic in request.topics:
            if not code and topic.name in self.image.topics:
                code = ErrorCode.TOPIC_ALREADY_EXISTS
            if not code and not request.validate_only:
                brokers = range(max(topic.num_partitions, 1))
                self.add_topic(topic.name, tuple(1 + n % self._broker_count for n in brokers))
                self._configure(topic.name, {c.name: c.value for c in topic.configs})
            message = f"refused {topic.name}" if code else None
            results.append(
                CreatableTopicResult(name=topic.name, error_code=code, error_message=message)
            )
        return CreateTopicsResponse(topics=tuple(results))

    def _delete_topics(self, _node_id: int, request: Any, code: ErrorCode) -> DeleteTopicsResponse:
        results = []
        for name in [topic.name for topic in request.topics] or request.topic_names:
            known = name in self.image.topics
            if known and not code:
                self.delete_topic(name)
            unknown = NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(DeletableTopicResult(name=name, error_code=code or unknown))
        return DeleteTopicsResponse(responses=tuple(results))

    def _create_partitions(
        self, _node_id: int, request: Any, code: ErrorCode
    ) -> CreatePartitionsResponse:
        (wanted,) = request.topics
        topic = self.image.topic(wanted.name)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif wanted.count <= len(topic.partitions):
            code = ErrorCode.INVALID_PARTITIONS
        else:
            added = range(len(topic.partitions), wanted.count)
            self.image.replay(
                PartitionsAdded(topic=wanted.name, partitions=tuple(_state(1) for _ in added))
            )
            self.logs |= {TopicPartition(wanted.name, number): Log() for number in added}
        result = CreatePartitionsTopicResult(name=wanted.name, error_code=code)
        return CreatePartitionsResponse(results=(result,))

    def _alter_configs(
        self, _node_id: int, request: Any, code: ErrorCode
    ) -> IncrementalAlterConfigsResponse:
        (resource,) = request.resources
        self._configure(
            resource.resource_name,
            {c.name: None if c.config_operation else c.value for c in resource.configs},
        )
        result = AlterConfigsResourceResponse(
            error_code=code,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        return IncrementalAlterConfigsResponse(responses=(result,))

    def _configure(self, name: str, changes: dict[str, str | None]) -> None:
        for key, value in changes.items():
            self.image.replay(
                ConfigChanged(resource_type=2, resource_name=name, name=key, value=value)
            )


def _state(leader: int) -> PartitionImage:
    isr = (leader,) if leader >= 0 else ()
    return PartitionImage(
        replicas=(max(leader, 1),), isr=isr, last_known=(max(leader, 1),), leader=leader
    )


def run_cluster(
    test: Callable[[Any, ClusterClient], Awaitable[None]],
    *,
    brokers: int = 2,
    auto_create: bool = True,
    max_versions: dict[int, int] | None = None,
    kind: type[SmallCluster] = SmallCluster,
) -> None:
    """Run a test with a cluster and a client of it."""

    async def main() -> None:
        cluster = kind(brokers, auto_create=auto_create)
        cluster.max_versions |= max_versions or {}
        await cluster.start()
        client = ClusterClient([Endpoint.parse(cluster.bootstrap)])
        try:
            async with asyncio.timeout(60):
                await test(cluster, client)
        finally:
            await client.close()
            await cluster.stop()

    asyncio.run(main())
