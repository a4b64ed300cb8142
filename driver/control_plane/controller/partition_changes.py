"""The changes of partitions by one event, each on the state after the event's earlier steps.

Owns: the new states of all partitions that the event changes, and the rules of their topics.  Must
not know why a broker came or left, nor what a leader or a tool has requested.
"""

from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import replace
from uuid import UUID

from sparklog.config import BrokerConfig, TopicConfig
from sparklog.driver.control_plane.controller.decision import (
    CountUncleanRecoveries,
    Effect,
    WarnOperator,
)
from sparklog.driver.control_plane.controller.partition_transitions import (
    LogSurvival,
    Rules,
    Transition,
    broker_stops,
    brokers_left,
    complete_transition,
    replica_failed,
    replica_lost,
)
from sparklog.metadata import ClusterImage, PartitionChanged, PartitionImage
from sparklog.plurals import listed
from sparklog.types import NO_NODE, TopicPartition

#: Most partitions that one log line names.
_NAMED_MAX = 10

#: Topic id and partition -> the alive brokers whose replica of it is offline.
FailedOn = Callable[[UUID, int], Collection[int]]
#: A partition's state and its topic's rules -> the transition to the next state.
Step = Callable[[PartitionImage, Rules], Transition]


class PartitionChanges:
    """Collects the changes of partitions by one event.

    Args:
        image: the image before the event.
        config: the settings of all brokers.
        also_alive: a broker that this event unfences.
        also_gone: brokers that this event fences.
        in_controlled_shutdown: brokers that are about to stop.
        failed_on: returns the alive brokers whose replica of a partition is offline.
    """

    def __init__(
        self,
        image: ClusterImage,
        config: BrokerConfig,
        *,
        also_alive: int | None = None,
        also_gone: Collection[int] = (),
        in_controlled_shutdown: Collection[int],
        failed_on: FailedOn = lambda _topic_id, _partition: frozenset(),
    ) -> None:
        self._image = image
        self._config = config
        self._also_alive = also_alive
        self._also_gone = also_gone
        self._in_controlled_shutdown = in_controlled_shutdown
        self._failed_on = failed_on
        self._states: dict[TopicPartition, PartitionImage] = {}
        self._rules: dict[str, Rules] = {}
        self._unclean: dict[TopicPartition, None] = {}
        self.offline: dict[TopicPartition, None] = {}
        #: Partitions whose leader has just lost its log while no other replica can lead.
        self.unservable: dict[TopicPartition, int] = {}

    def brokers_left(self, brokers: Collection[int], survival: LogSurvival) -> None:
        """The former processes of these brokers have ended."""
        touched = dict.fromkeys(tp for b in brokers for tp in self._image.partitions_of(b))
        for tp in touched:
            self.change(tp, lambda state, rules: brokers_left(state, brokers, survival, rules))

    def broker_returned(self, broker_id: int) -> None:
        """The broker is alive again, with all of its logs."""
        for tp in self._image.partitions_of(broker_id):
            self.change(tp, complete_transition)

    def replicas_failed(self, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
        """The broker is alive, but its replicas of these partitions are offline."""
        hosted = self._image.partitions_of(broker_id)
        for tp in partitions:
            if tp in hosted:
                self.change(tp, lambda state, rules: replica_failed(state, broker_id, rules))

    def replicas_lost(
        self,
        broker_id: int,
        partitions: Iterable[TopicPartition],
        newly_lost: Container[TopicPartition],
        gone: Container[TopicPartition] = frozenset(),
    ) -> None:
        """The broker is alive, but has lost its logs of these partitions.

        Args:
            newly_lost: those of them that the broker reports for the first time.
            gone: those of which nothing is left, or whose loss is accepted.
        """
        hosted = self._image.partitions_of(broker_id)
        for tp in partitions:
            if tp in hosted:
                state = self.change(
                    tp, _losing(broker_id, is_newly_lost=tp in newly_lost, is_gone=tp in gone)
                )
                if state.leader == broker_id:
                    # This leader only tells clients why it cannot serve.
                    self._unclean.pop(tp, None)
                    if tp in newly_lost:
                        self.unservable[tp] = broker_id

    def broker_stops(self, broker_id: int) -> None:
        """The broker is about to stop."""
        for tp in self._image.partitions_of(broker_id):
            self.change(tp, lambda state, rules: broker_stops(state, broker_id, rules))

    def change(self, tp: TopicPartition, step: Step) -> PartitionImage:
        """Apply one transition.  Returns the state after it."""
        before = self.state(tp)
        transition = step(before, self._rules_of(tp))
        if transition.state != before:
            self._states[tp] = transition.state
        if transition.unclean:
            self._unclean[tp] = None
        if transition.state.offline:
            self.offline[tp] = None
        return transition.state

    @property
    def unclean(self) -> list[TopicPartition]:
        """Partitions whose leader was elected by an unclean recovery, and still leads."""
        return [tp for tp in self._unclean if self.state(tp).leader != NO_NODE]

    def state(self, tp: TopicPartition) -> PartitionImage:
        """The partition's state after the steps so far; the partition must exist."""
        changed = self._states.get(tp)
        return self._image.topics[tp.topic].partitions[tp.partition] if changed is None else changed

    def records(self) -> tuple[PartitionChanged, ...]:
        return tuple(
            PartitionChanged(topic=tp.topic, partition=tp.partition, state=state)
            for tp, state in self._states.items()
        )

    def effects(self) -> tuple[Effect, ...]:
        """Warnings and counts of leaders that may lack records, and of lost logs."""
        return (*self.warnings_of_losses(), *self.warnings_of_unclean_leaders(self.unclean))

    def warnings_of_losses(self) -> tuple[Effect, ...]:
        """The warnings about lost logs that no replica can replace."""
        if not self.unservable:
            return ()
        leaders = sorted(set(self.unservable.values()))
        return (
            WarnOperator(
                message=f"the log of {named(self.unservable)} is gone from broker(s) "
                f"{', '.join(map(str, leaders))}, and no other replica "
                "can lead without a loss: reads and writes are refused until the files are back, "
                "an unclean election is asked for, or lost.logs.accept names the only replica"
            ),
        )

    def warnings_of_unclean_leaders(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[Effect, ...]:
        """The warning about partitions of ``unclean``, and their count."""
        if not partitions:
            return ()
        leaders = (f"{tp} by broker {self.state(tp).leader}" for tp in partitions)
        warning = WarnOperator(
            message=f"unclean recovery, the best log at hand leads: {named(leaders)}; records that "
            "it lacks are lost, even if they were acknowledged"
        )
        return warning, CountUncleanRecoveries(partitions=len(partitions))

    def _rules_of(self, tp: TopicPartition) -> Rules:
        rules = self.rules(tp.topic)
        failed = self._failed_on(self._image.topics[tp.topic].topic_id, tp.partition)
        return replace(rules, failed=failed) if failed else rules

    def rules(self, topic: str) -> Rules:
        rules = self._rules.get(topic)
        if rules is None:
            config = TopicConfig.resolve(self._image.topic_overrides(topic), self._config)
            rules = self._rules[topic] = Rules(
                min_isr=config.min_insync_replicas,
                is_alive=self._is_alive,
                in_controlled_shutdown=self._in_controlled_shutdown,
                unclean=config.unclean_leader_election_enable,
                tiered=config.copies_segments and bool(self._config.remote_dir),
            )
        return rules

    def _is_alive(self, broker_id: int) -> bool:
        if broker_id in self._also_gone:
            return False
        return broker_id == self._also_alive or self._image.is_alive(broker_id)


def _losing(broker_id: int, *, is_newly_lost: bool, is_gone: bool) -> Step:
    return lambda state, rules: replica_lost(
        state, broker_id, rules, is_newly_lost=is_newly_lost, is_gone=is_gone
    )


def named(names: Iterable[object]) -> str:
    """The first names as one text, such as ``a-0, a-1 and 5 more``."""
    return listed(names, _NAMED_MAX)
