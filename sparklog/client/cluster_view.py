"""The metadata cache of a client: nodes, topics and leaders, from Metadata responses.

Owns: the values and how a response changes them.  Must not know how or when metadata is requested.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import NO_NODE, Endpoint, TopicPartition
from sparklog.wire.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic and its partitions, by number."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: Mapping[int, PartitionView]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster as of the last Metadata response.

    ``racks`` has the nodes with a rack.  ``topic_errors`` are the errors of requested topics, by
    name.
    """

    cluster_id: str | None = None
    controller_id: int = NO_NODE
    nodes: Mapping[int, Endpoint] = field(default_factory=dict)
    racks: Mapping[int, str] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)
    topic_errors: Mapping[str, ErrorCode] = field(default_factory=dict)

    def leader(self, tp: TopicPartition) -> PartitionView | None:
        """The partition, if it has a leader whose address is known; else None."""
        topic = self.topics.get(tp.topic)
        partition = topic.partitions.get(tp.partition) if topic else None
        return partition if partition and partition.leader in self.nodes else None

    def merge(self, response: MetadataResponse, *, whole: bool) -> "ClusterView":
        """This view after a newer response, which lists every topic if ``whole``.

        A node may be behind the nodes that answered before.  So each partition keeps the leader
        with the highest leader epoch.
        """
        topics = {} if whole else dict(self.topics)
        errors = {} if whole else dict(self.topic_errors)
        for answer in response.topics:
            if answer.name is None:
                continue
            if answer.error_code:
                topics.pop(answer.name, None)
                errors[answer.name] = _code(answer.error_code)
            else:
                topics[answer.name] = _topic(answer, self.topics.get(answer.name))
                errors.pop(answer.name, None)
        return replace(
            self,
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            nodes={node.node_id: Endpoint(node.host, node.port) for node in response.brokers},
            racks={node.node_id: node.rack for node in response.brokers if node.rack},
            topics=topics,
            topic_errors=errors,
        )

    def topic(self, name: str) -> TopicView:
        """A topic.  Raises KafkaError with the cluster's code, or UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self.topics.get(name)
        if topic is None:
            code = self.topic_errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise KafkaError(code, _REASONS.get(code, "topic {!r} is not available").format(name))
        return topic


_REASONS: Mapping[ErrorCode, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "topic {!r} does not exist; create it first",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "{!r} is not a legal topic name",
    ErrorCode.LEADER_NOT_AVAILABLE: "topic {!r} has no leader yet",
}


def _code(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _topic(answer: MetadataResponseTopic, known: TopicView | None) -> TopicView:
    assert answer.name is not None
    before = known.partitions if known is not None and known.topic_id == answer.topic_id else {}
    partitions: dict[int, PartitionView] = {}
    for told in sorted(answer.partitions, key=lambda p: p.partition_index):
        view = _partition(told)
        newest = before.get(view.partition, view)
        partitions[view.partition] = view if view.leader_epoch >= newest.leader_epoch else newest
    return TopicView(
        name=answer.name,
        topic_id=answer.topic_id,
        is_internal=answer.is_internal,
        partitions=partitions,
    )


def _partition(told: MetadataResponsePartition) -> PartitionView:
    return PartitionView(
        partition=told.partition_index,
        leader=told.leader_id,
        leader_epoch=told.leader_epoch,
        replicas=told.replica_nodes,
        isr=told.isr_nodes,
        offline_replicas=told.offline_replicas,
    )
