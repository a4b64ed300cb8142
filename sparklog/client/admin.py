"""Administration: topics, partitions, configs, offsets, deletion of records.

Owns: the requests of tools and their results as values.  Must not know how the controller decides.
Requests about groups are in ``group_admin``, those about transactions in ``transaction_admin``, and
those about replicas in ``replica_admin``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sparklog.client.cluster_client import UNKNOWN_TOPIC_GRACE_S, ClusterClient
from sparklog.client.cluster_view import ClusterView, TopicView
from sparklog.client.data_client import DataClient
from sparklog.client.deadline import (
    UNKNOWN_TOPIC_CODES,
    Deadline,
    check,
    kafka_error,
    retry,
)
from sparklog.client.fetch_api import FetchFrom
from sparklog.client.group_admin import GroupAdmin
from sparklog.client.node_status_api import node_counters
from sparklog.client.partition_results import value_or_raise
from sparklog.client.replica_admin import ReplicaAdmin
from sparklog.client.transaction_admin import TransactionAdmin
from sparklog.errors import ConfigError, ErrorCode, KafkaError
from sparklog.types import Endpoint, OffsetTimestamp, ResourceType, TopicPartition
from sparklog.wire.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparklog.wire.protocol.messages.describe_cluster import DescribeClusterRequest
from sparklog.wire.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from sparklog.wire.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from sparklog.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

#: The cluster's default number of partitions or replicas.
CLUSTER_DEFAULT: Final = -1
#: The setting that makes a topic tiered (KIP-405).
TIERED: Final = "remote.storage.enable"
#: The longest time that one node may take to tell its counters, in seconds.
STATUS_SECONDS_MAX: Final = 5.0
_SET: Final = 0
_DELETE: Final = 1
#: A fetch from a partition that was just created, whose log begins at offset 0.
_NOTHING: Final = FetchFrom(offset=0, max_bytes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDescription:
    """A node; replicas are spread over racks."""

    node_id: int
    endpoint: Endpoint
    rack: str | None = None
    fenced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    nodes: tuple[NodeDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting; ``source`` as in DescribeConfigs (1 topic, 4 given at start, 5 default)."""

    name: str
    value: str | None
    source: int
    read_only: bool
    documentation: str | None = None


class RemoteSize(NamedTuple):
    """What a remote_dir has of a partition (``size_bytes``), and what is still to be copied."""

    size_bytes: int
    copy_lag_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """A log directory of a node.

    ``error`` is NONE for a log directory that works; ``sizes`` are bytes by partition, and
    ``remote_sizes`` are those of the partitions that are tiered and led by the node.

    ``total_bytes`` and ``usable_bytes`` are of the volume, -1 if not known.
    """

    path: str
    error: ErrorCode
    sizes: Mapping[TopicPartition, int]
    remote_sizes: Mapping[TopicPartition, RemoteSize]
    total_bytes: int
    usable_bytes: int


class PartitionSizes(NamedTuple):
    """Bytes of a partition: of the leader's files, in the remote_dir, and to be copied there; None
    where they are not known."""

    size_bytes: int | None = None
    remote_bytes: int | None = None
    copy_lag_bytes: int | None = None

    @classmethod
    def find(cls, log_dirs: Iterable[LogDirDescription], tp: TopicPartition) -> "PartitionSizes":
        """Those of a partition whose leader has these log directories."""
        for log_dir in log_dirs:
            if tp in log_dir.sizes:
                return cls(log_dir.sizes[tp], *log_dir.remote_sizes.get(tp, ()))
        return cls()


class Admin(GroupAdmin, TransactionAdmin):
    """The admin client of a cluster; calls about replicas are in ``replicas``.

    Every call raises KafkaError for a refusal and ConnectError when no node responds.
    """

    def __init__(self, cluster: ClusterClient, *, timeout_s: float = 60.0) -> None:
        GroupAdmin.__init__(self, cluster, timeout_s=timeout_s)
        TransactionAdmin.__init__(self, cluster, timeout_s=timeout_s)
        self.replicas = ReplicaAdmin(cluster, timeout_s=timeout_s)
        self._data_client = DataClient(cluster)

    # topics

    async def create_topic(
        self,
        name: str,
        partitions: int = CLUSTER_DEFAULT,
        *,
        replication_factor: int = CLUSTER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        tiered: bool | None = None,
        validate_only: bool = False,
    ) -> None:
        """Create a topic and wait until it has leaders; see also ``await_serving``.

        ``tiered`` sets ``remote.storage.enable``; None leaves it to ``configs``.

        Raises ConfigError: ``tiered`` and ``configs`` differ.  Raises KafkaError, for example
        TOPIC_ALREADY_EXISTS.
        """
        deadline = Deadline(self.timeout_s)
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=tuple(
                CreatableTopicConfig(name=key, value=value)
                for key, value in _with_tiering(configs or {}, tiered).items()
            ),
        )
        request = CreateTopicsRequest(
            topics=(topic,), timeout_ms=deadline.left_ms, validate_only=validate_only
        )

        def refusal(response: Any) -> None:
            for result in response.topics:
                check(result.error_code, result.error_message)

        await self.cluster.ask_controller(request, deadline, refusal)
        if not validate_only:
            await self._await_leaders(name, deadline)

    async def _await_leaders(self, name: str, deadline: Deadline) -> None:
        async def attempt() -> None:
            view = await self.cluster.refresh((name,), deadline)
            for number in view.topic(name).partitions:
                if view.leader(TopicPartition(name, number)) is None:
                    raise KafkaError(
                        ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r} has no leader yet"
                    )

        await retry(attempt, deadline)

    async def await_serving(self, name: str) -> None:
        """Wait until every leader of a topic serves it, or the time is up.

        A producer with acks=0 is not told that a leader does not serve the topic yet.  Leaders are
        asked by the topic's id: they may still have a deleted topic of the same name.
        """
        partitions = self.cluster.view.topic(name).partitions
        wanted = dict.fromkeys((TopicPartition(name, n) for n in partitions), _NOTHING)
        await self._data_client.fetch_each(wanted, max_wait_ms=0, timeout_s=self.timeout_s)

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics.  Raises KafkaError for the first topic that cannot be deleted."""
        deadline = Deadline(self.timeout_s)
        wanted = tuple(names)
        request = DeleteTopicsRequest(
            topic_names=wanted,
            topics=tuple(DeleteTopicState(name=name) for name in wanted),
            timeout_ms=deadline.left_ms,
        )

        def refusal(response: Any) -> None:
            for result in response.responses:
                reason = result.error_message or f"topic {result.name!r} cannot be deleted"
                check(result.error_code, reason)

        await self.cluster.ask_controller(request, deadline, refusal)
        await self.cluster.refresh(wanted, deadline)

    async def create_partitions(self, name: str, count: int) -> None:
        """Grow a topic to ``count`` partitions and wait for the leaders of the new ones."""
        deadline = Deadline(self.timeout_s)
        request = CreatePartitionsRequest(
            topics=(CreatePartitionsTopic(name=name, count=count),), timeout_ms=deadline.left_ms
        )

        def refusal(response: Any) -> None:
            for result in response.results:
                check(result.error_code, result.error_message)

        async def grown() -> None:
            view = await self.cluster.refresh((name,), deadline)
            if len(view.topic(name).partitions) < count:
                raise KafkaError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r} has not grown yet"
                )

        await self.cluster.ask_controller(request, deadline, refusal)
        await retry(grown, deadline)
        await self._await_leaders(name, deadline)

    async def list_topics(self, *, internal: bool = False) -> dict[str, TopicView]:
        """All topics by name."""
        view = await self.cluster.refresh(None, Deadline(self.timeout_s))
        return {
            name: topic
            for name, topic in sorted(view.topics.items())
            if internal or not topic.is_internal
        }

    async def describe_topics(self, names: Sequence[str]) -> dict[str, TopicView]:
        """Describe topics.  Raises KafkaError for the first topic that does not exist."""
        view = await self.cluster.refresh(names, Deadline(self.timeout_s))
        return {name: view.topic(name) for name in names}

    async def describe_cluster(self) -> ClusterDescription:
        """The nodes; node 0 is the control plane."""
        request = DescribeClusterRequest(include_fenced_brokers=True)
        response = await self.cluster.ask_any(request, Deadline(self.timeout_s))
        check(response.error_code, response.error_message)
        return ClusterDescription(
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            nodes=tuple(
                NodeDescription(
                    node_id=node.broker_id,
                    endpoint=Endpoint(node.host, node.port),
                    rack=node.rack,
                    fenced=node.is_fenced,
                )
                for node in sorted(response.brokers, key=lambda node: node.broker_id)
            ),
        )

    # configs

    async def describe_topic_configs(self, name: str) -> dict[str, ConfigEntry]:
        """All settings of a topic, by name."""
        return await self._describe_configs(ResourceType.TOPIC, name, None)

    async def describe_broker_configs(self, node_id: int) -> dict[str, ConfigEntry]:
        """All settings of a node, by name."""
        return await self._describe_configs(ResourceType.BROKER, str(node_id), node_id)

    async def _describe_configs(
        self, resource_type: ResourceType, name: str, node_id: int | None
    ) -> dict[str, ConfigEntry]:
        deadline = Deadline(self.timeout_s)
        request = DescribeConfigsRequest(
            resources=(
                DescribeConfigsResource(
                    resource_type=resource_type, resource_name=name, configuration_keys=None
                ),
            ),
            include_documentation=True,
        )

        async def attempt() -> DescribeConfigsResponse:
            if node_id is not None and node_id not in self.cluster.view.nodes:
                await self.cluster.refresh((), deadline)
            response: DescribeConfigsResponse = await self.cluster.ask(request, deadline, node_id)
            for result in response.results:
                check(result.error_code, result.error_message)
            return response

        grace = deadline.capped(UNKNOWN_TOPIC_GRACE_S)
        response = await retry(attempt, deadline, final=UNKNOWN_TOPIC_CODES, grace=grace)
        return {
            config.name: ConfigEntry(
                name=config.name,
                value=config.value,
                source=config.config_source,
                read_only=config.read_only,
                documentation=config.documentation,
            )
            for result in response.results
            for config in result.configs
        }

    async def alter_topic_configs(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Set settings of a topic; None removes an override.  ``validate_only`` changes nothing."""
        await self._alter_configs(ResourceType.TOPIC, name, changes, validate_only)

    async def alter_broker_configs(
        self, node_id: int | None, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Set settings of a broker, or of all brokers (None), without a restart.

        None removes a setting.  ``validate_only`` changes nothing.
        """
        name = "" if node_id is None else str(node_id)
        await self._alter_configs(ResourceType.BROKER, name, changes, validate_only)

    async def _alter_configs(
        self,
        resource_type: ResourceType,
        name: str,
        changes: Mapping[str, str | None],
        validate_only: bool,
    ) -> None:
        deadline = Deadline(self.timeout_s)
        configs = tuple(
            AlterableConfig(
                name=key, config_operation=_DELETE if value is None else _SET, value=value
            )
            for key, value in changes.items()
        )
        request = IncrementalAlterConfigsRequest(
            resources=(
                AlterConfigsResource(
                    resource_type=resource_type, resource_name=name, configs=configs
                ),
            ),
            validate_only=validate_only,
        )

        def refusal(response: Any) -> None:
            for result in response.responses:
                check(result.error_code, result.error_message)

        await self.cluster.ask_controller(request, deadline, refusal)

    # log directories

    async def describe_log_dirs(
        self, *, timeout_s: float | None = None
    ) -> dict[int, list[LogDirDescription]]:
        """The log directories of every node, by node id; the journal belongs to node 0."""
        deadline = Deadline(self.timeout_s if timeout_s is None else timeout_s)
        await self.cluster.refresh((), deadline)
        found: dict[int, list[LogDirDescription]] = {}
        for node_id in sorted(self.cluster.view.nodes):
            response = await self.cluster.ask(DescribeLogDirsRequest(), deadline, node_id)
            check(response.error_code)
            if response.results:
                found[node_id] = [_described_directory(result) for result in response.results]
        return found

    # counters

    async def status(self) -> dict[int, Mapping[str, int]]:
        """The counters of every node, by node id; see ``node_counters``."""
        return await node_counters(self.cluster, Deadline(self.timeout_s), STATUS_SECONDS_MAX)

    # records

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetTimestamp]:
        """Offsets for timestamps or ``OffsetSpec``; see ``DataClient.list_offsets``."""
        return await self._data_client.list_offsets(wanted, timeout_s=self.timeout_s)

    async def find_offsets(
        self, wanted: Mapping[TopicPartition, int], *, timeout_s: float
    ) -> dict[TopicPartition, OffsetTimestamp]:
        """``list_offsets`` for the partitions whose leaders respond in time, without the others."""
        found = await self._data_client.find_offsets(wanted, timeout_s=timeout_s)
        return {tp: answer for tp, answer in found.items() if not isinstance(answer, KafkaError)}

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset (-1: all).  Returns: the new log start offsets."""

        async def call(
            node_id: int, group: dict[TopicPartition, int], deadline: Deadline
        ) -> dict[TopicPartition, int | KafkaError]:
            topics: dict[str, list[DeleteRecordsPartition]] = {}
            for tp, offset in group.items():
                topics.setdefault(tp.topic, []).append(
                    DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
                )
            request = DeleteRecordsRequest(
                topics=tuple(
                    DeleteRecordsTopic(name=name, partitions=tuple(partitions))
                    for name, partitions in topics.items()
                ),
                timeout_ms=deadline.left_ms,
            )
            response = await self.cluster.ask(request, deadline, node_id)
            return {
                TopicPartition(topic.name, part.partition_index): (
                    kafka_error(part.error_code) if part.error_code else part.low_watermark
                )
                for topic in response.topics
                for part in topic.partitions
            }

        answers = await self.cluster.ask_leaders(before, call, Deadline(self.timeout_s))
        return {tp: value_or_raise(tp, answer) for tp, answer in answers.items()}

    @property
    def view(self) -> ClusterView:
        """The cluster as of the last metadata response."""
        return self.cluster.view


def _described_directory(result: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        path=result.log_dir,
        error=ErrorCode(result.error_code),
        sizes={
            TopicPartition(topic.name, part.partition_index): part.partition_size
            for topic in result.topics
            for part in topic.partitions
        },
        remote_sizes={
            TopicPartition(topic.name, part.partition_index): RemoteSize(
                part.remote_size, max(part.remote_copy_lag, 0)
            )
            for topic in result.topics
            for part in topic.partitions
            if part.remote_size >= 0
        },
        total_bytes=result.total_bytes,
        usable_bytes=result.usable_bytes,
    )


def _with_tiering(configs: Mapping[str, str], tiered: bool | None) -> Mapping[str, str]:
    """The settings of a new topic.  Raises ConfigError: they differ from ``tiered``."""
    if tiered is None:
        return configs
    text = str(tiered).lower()
    if configs.get(TIERED, text).strip().lower() != text:
        raise ConfigError(f"tiered={tiered} and {TIERED}={configs[TIERED]} differ; give one")
    return {**configs, TIERED: text}
