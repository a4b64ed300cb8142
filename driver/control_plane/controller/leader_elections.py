"""Leader elections on request (ElectLeaders: KIP-183, KIP-460), and leader rebalancing.

Owns: which partitions get an election, and the result that is returned for each.  Must not know
what an election does to a partition.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.controller.decision import Decision
from sparklog.driver.control_plane.controller.partition_changes import PartitionChanges
from sparklog.driver.control_plane.controller.partition_transitions import (
    elect_preferred,
    elect_unclean,
)
from sparklog.driver.control_plane.controller.sessions import Sessions
from sparklog.driver.control_plane.controller.unclean_recoveries import UncleanRecoveries
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage
from sparklog.types import ElectionType, TopicPartition
from sparklog.wire.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


def elect_leaders(
    image: ClusterImage,
    sessions: Sessions,
    recoveries: UncleanRecoveries,
    config: BrokerConfig,
    request: ElectLeadersRequest,
) -> Decision:
    """Elect leaders, partition by partition; all elections share one commit.

    The response to a request for all partitions leaves out those for which no election was needed.
    """
    try:
        election_type = ElectionType(request.election_type)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"there is no election type {request.election_type}; use 0 (preferred) or 1 (unclean)",
        ) from None
    elections = _Elections(image, sessions, recoveries, config, election_type)
    asked_for_all = request.topic_partitions is None
    results: dict[str, list[PartitionResult]] = {}
    for topic, numbers in _asked_for(image, request).items():
        of_topic = results[topic] = []
        for number in numbers:
            refusal = elections.elect(TopicPartition(topic, number))
            if refusal is None:
                of_topic.append(PartitionResult(partition_id=number))
            elif not (asked_for_all and refusal.code == ErrorCode.ELECTION_NOT_NEEDED):
                of_topic.append(
                    PartitionResult(
                        partition_id=number,
                        error_code=refusal.code,
                        error_message=refusal.message,
                    )
                )
    return Decision(
        records=elections.changes.records(),
        response=ElectLeadersResponse(
            replica_election_results=tuple(
                ReplicaElectionResult(topic=topic, partition_result=tuple(of_topic))
                for topic, of_topic in results.items()
            )
        ),
        effects=elections.changes.effects(),
    )


def _asked_for(image: ClusterImage, request: ElectLeadersRequest) -> Mapping[str, Iterable[int]]:
    """The requested partition numbers by topic, each once."""
    if request.topic_partitions is None:
        return {topic.name: topic.partitions for topic in image.topics.values()}
    numbers: dict[str, dict[int, None]] = {}
    for wanted in request.topic_partitions:
        numbers.setdefault(wanted.topic, {}).update(dict.fromkeys(wanted.partitions))
    return numbers


class _Elections:
    """The elections of one request, which are all of one type."""

    def __init__(
        self,
        image: ClusterImage,
        sessions: Sessions,
        recoveries: UncleanRecoveries,
        config: BrokerConfig,
        election_type: ElectionType,
    ) -> None:
        self.changes = PartitionChanges(
            image,
            config,
            in_controlled_shutdown=sessions.in_controlled_shutdown,
            failed_on=sessions.failed_on,
        )
        self._image = image
        self._sessions = sessions
        self._recoveries = recoveries
        self._elect = (
            self._elect_preferred
            if election_type is ElectionType.PREFERRED
            else self._elect_unclean
        )

    def elect(self, tp: TopicPartition) -> KafkaError | None:
        """Elect a leader.  Returns the refusal, or None."""
        try:
            if self._image.partition(tp) is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {tp}"
                )
            self._elect(tp)
        except KafkaError as refusal:
            return refusal
        return None

    def _elect_preferred(self, tp: TopicPartition) -> None:
        state = self.changes.state(tp)
        preferred = state.replicas[0]
        if state.leader == preferred:
            raise KafkaError(
                ErrorCode.ELECTION_NOT_NEEDED, f"broker {preferred} leads {tp} already"
            )
        if self.changes.change(tp, elect_preferred).leader != preferred:
            raise KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"broker {preferred}, the preferred leader of {tp}, is not alive and in sync",
            )

    def _elect_unclean(self, tp: TopicPartition) -> None:
        """Elect the replica with the best known log, else the most promising replica."""
        state = self.changes.state(tp)
        topic_id = self._image.topics[tp.topic].topic_id
        failed = self._sessions.has_failed(state.leader, topic_id, tp.partition)
        if not state.offline and not failed:
            raise KafkaError(
                ErrorCode.ELECTION_NOT_NEEDED, f"{tp} has a leader, broker {state.leader}"
            )
        leader = self._recoveries.best(self._image, tp)
        if leader is None:
            raise KafkaError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                f"no replica of {tp} is alive and works; its brokers are {list(state.replicas)}",
            )
        chosen = leader
        self.changes.change(tp, lambda state, rules: elect_unclean(state, chosen, rules))


# -- leader rebalancing


@dataclass(slots=True)
class LeaderBalance:
    """The regular election of preferred leaders (``auto.leader.rebalance.enable``).

    ``due_ms`` is the time of the next check whether brokers lead too few of the partitions of which
    they are the preferred leader.
    """

    due_ms: int

    def rebalance(
        self, image: ClusterImage, sessions: Sessions, config: BrokerConfig, now_ms: int
    ) -> Decision:
        if now_ms < self.due_ms or not config.auto_leader_rebalance_enable:
            return Decision()
        self.due_ms = now_ms + config.leader_imbalance_check_interval_seconds * 1000
        changes = PartitionChanges(
            image,
            config,
            in_controlled_shutdown=sessions.in_controlled_shutdown,
            failed_on=sessions.failed_on,
        )
        for broker in image.alive_brokers():
            hosted = image.partitions_of(broker.broker_id).items()
            own = {tp: state for tp, state in hosted if state.replicas[0] == broker.broker_id}
            astray = [tp for tp, state in own.items() if state.leader != broker.broker_id]
            if len(astray) * 100 > config.leader_imbalance_per_broker_percentage * len(own):
                for tp in astray:
                    changes.change(tp, elect_preferred)
        return Decision(records=changes.records(), effects=changes.effects())
