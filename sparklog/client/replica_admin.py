"""Administration of replicas: their brokers, leaders, and moves between brokers.

Owns: the requests of tools about replicas and their results as values.  Must not know how the
controller decides, nor how a plan is made.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.deadline import Deadline, check, kafka_error
from sparklog.errors import ConnectError, ErrorCode, KafkaError
from sparklog.types import NO_NODE, ElectionType, TopicPartition, numbers_by_topic
from sparklog.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from sparklog.wire.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from sparklog.wire.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from sparklog.wire.protocol.messages.unregister_broker import UnregisterBrokerRequest
from sparklog.wire.protocol.schema import Request

#: Time for the controller to respond before another node is asked, in seconds.
CONTROLLER_S_MAX: Final = 2.0

#: The refusal of each partition; None: accepted.
Refusals = dict[TopicPartition, KafkaError | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasDescription:
    """The replicas of one partition, from DescribeTopicPartitions (KIP-966)."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()

    @property
    def under_replicated(self) -> bool:
        """Whether a replica is not in the ISR (Kafka's under-replicated partition)."""
        return len(self.isr) < len(self.replicas)

    @property
    def preferred(self) -> bool:
        """Whether the preferred replica leads the partition."""
        return self.leader != NO_NODE and self.leader == self.replicas[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A partition reassignment; ``replicas`` are all current ones, those being added included."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ReplicaAdmin:
    """Requests about replicas.

    Every call raises KafkaError for a refusal and ConnectError when no node responds.
    """

    def __init__(self, cluster: ClusterClient, *, timeout_s: float = 60.0) -> None:
        self.cluster = cluster
        self.timeout_s = timeout_s

    async def describe(
        self, names: Collection[str] = (), *, internal: bool = False
    ) -> dict[TopicPartition, ReplicasDescription]:
        """The partitions of topics (of all topics if none is named), in order."""
        deadline = Deadline(self.timeout_s)
        found: dict[TopicPartition, ReplicasDescription] = {}
        topics = tuple(TopicRequest(name=name) for name in sorted(names))
        cursor: Cursor | None = None
        while True:
            request = DescribeTopicPartitionsRequest(topics=topics, cursor=cursor)
            response = await self._ask_freshest(request, deadline)
            for topic in response.topics:
                if topic.error_code:
                    check(topic.error_code, f"topic {topic.name!r} cannot be described")
                if names or internal or not topic.is_internal:
                    found |= _described(topic)
            following = response.next_cursor
            if following is None:
                return found
            cursor = Cursor(
                topic_name=following.topic_name, partition_index=following.partition_index
            )

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        election_type: ElectionType = ElectionType.PREFERRED,
    ) -> Refusals:
        """Elect leaders of partitions, or of all (None).

        Partitions that already have the right leader are refused with ELECTION_NOT_NEEDED, or left
        out if all partitions were requested.
        """
        deadline = Deadline(self.timeout_s)
        wanted = None
        if partitions is not None:
            wanted = tuple(
                TopicPartitions(topic=topic, partitions=numbers)
                for topic, numbers in numbers_by_topic(sorted(partitions)).items()
            )
        request = ElectLeadersRequest(
            election_type=election_type, topic_partitions=wanted, timeout_ms=deadline.left_ms
        )
        response = await self._ask(request, deadline)
        return {
            TopicPartition(topic.topic, part.partition_id): _refusal(part)
            for topic in response.replica_election_results
            for part in topic.partition_result
        }

    async def reassign(self, wanted: Mapping[TopicPartition, tuple[int, ...] | None]) -> Refusals:
        """Begin to move partitions to these replicas; None cancels a reassignment."""
        deadline = Deadline(self.timeout_s)
        topics = tuple(
            ReassignableTopic(
                name=topic,
                partitions=tuple(
                    ReassignablePartition(
                        partition_index=number, replicas=wanted[TopicPartition(topic, number)]
                    )
                    for number in numbers
                ),
            )
            for topic, numbers in numbers_by_topic(sorted(wanted)).items()
        )
        request = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=deadline.left_ms)
        response = await self._ask(request, deadline)
        return {
            TopicPartition(topic.name, part.partition_index): _refusal(part)
            for topic in response.responses
            for part in topic.partitions
        }

    async def reassignments(
        self, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The reassignments in progress."""
        deadline = Deadline(self.timeout_s if timeout_s is None else timeout_s)
        request = ListPartitionReassignmentsRequest(timeout_ms=deadline.left_ms)
        response = await self._ask(request, deadline)
        return {
            TopicPartition(topic.name, part.partition_index): Reassignment(
                replicas=part.replicas,
                adding=part.adding_replicas,
                removing=part.removing_replicas,
            )
            for topic in response.topics
            for part in topic.partitions
        }

    async def unregister_broker(self, broker_id: int) -> None:
        """Take a broker out of the cluster."""
        request = UnregisterBrokerRequest(broker_id=broker_id)
        await self._ask(request, Deadline(self.timeout_s))

    async def _ask_freshest(self, request: Request, deadline: Deadline) -> Any:
        """Ask the controller, which knows first; any node if it does not respond soon."""
        try:
            return await self.cluster.ask_controller(request, deadline.capped(CONTROLLER_S_MAX))
        except (ConnectError, KafkaError):
            return await self.cluster.ask_any(request, deadline)

    async def _ask(self, request: Request, deadline: Deadline) -> Any:
        def refusal(response: Any) -> None:
            check(response.error_code, getattr(response, "error_message", None))

        return await self.cluster.ask_controller(request, deadline, refusal)


def _described(
    topic: DescribeTopicPartitionsResponseTopic,
) -> dict[TopicPartition, ReplicasDescription]:
    return {
        TopicPartition(topic.name or "", part.partition_index): ReplicasDescription(
            leader=part.leader_id,
            leader_epoch=part.leader_epoch,
            replicas=part.replica_nodes,
            isr=part.isr_nodes,
            eligible=part.eligible_leader_replicas or (),
            last_known=part.last_known_elr or (),
            offline=part.offline_replicas,
        )
        for part in topic.partitions
    }


def _refusal(part: Any) -> KafkaError | None:
    if part.error_code == ErrorCode.NONE:
        return None
    return kafka_error(part.error_code, part.error_message)
