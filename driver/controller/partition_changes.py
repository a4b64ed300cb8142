"""What one event does to partitions, each settled on top of the event's earlier steps.

Owns: the new states of all partitions that the event touches, and the rules of their topics.  Must
not know why a broker came or went, nor what a leader or a tool asks for.
"""

from collections.abc import Callable, Collection, Iterable

from sparklog.config import BrokerConfig, TopicConfig
from sparklog.driver.controller.decision import (
    CountUncleanRecoveries,
    Effect,
    WarnOperator,
)
from sparklog.driver.controller.elections import (
    Loss,
    Rules,
    Settled,
    broker_stops,
    brokers_left,
    replica_failed,
    settle,
)
from sparklog.metadata import ClusterImage, PartitionChanged, PartitionImage
from sparklog.types import TopicPartition

#: Partitions that one log line names.
_NAMED_MAX = 10

#: A partition's next state.
Step = Callable[[PartitionImage, Rules], Settled]


class PartitionChanges:
    """``also_alive`` and ``also_gone`` are brokers that this very event unfences or fences;
    ``stopping`` are those that are about to stop."""

    def __init__(
        self,
        image: ClusterImage,
        config: BrokerConfig,
        *,
        also_alive: int | None = None,
        also_gone: Collection[int] = (),
        stopping: Collection[int],
    ) -> None:
        self._image = image
        self._config = config
        self._also_alive = also_alive
        self._also_gone = also_gone
        self._stopping = stopping
        self._states: dict[TopicPartition, PartitionImage] = {}
        self._rules: dict[str, Rules] = {}
        #: Led by an unclean recovery.
        self.unclean: dict[TopicPartition, None] = {}
        self.offline: dict[TopicPartition, None] = {}

    def left(self, brokers: Collection[int], loss: Loss) -> None:
        """The brokers' former processes are gone."""
        touched = dict.fromkeys(tp for b in brokers for tp in self._image.partitions_of(b))
        for tp in touched:
            self.change(tp, lambda state, rules: brokers_left(state, brokers, loss, rules))

    def returned(self, broker_id: int) -> None:
        """The broker lives on, with everything it had."""
        for tp in self._image.partitions_of(broker_id):
            self.change(tp, settle)

    def failed(self, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
        """The broker lives, but its replicas of these do not work."""
        hosted = self._image.partitions_of(broker_id)
        for tp in partitions:
            if tp in hosted:
                self.change(tp, lambda state, rules: replica_failed(state, broker_id, rules))

    def stops(self, broker_id: int) -> None:
        """The broker is about to stop."""
        for tp in self._image.partitions_of(broker_id):
            self.change(tp, lambda state, rules: broker_stops(state, broker_id, rules))

    def change(self, tp: TopicPartition, step: Step) -> PartitionImage:
        """Take one step; the state after it."""
        before = self.state(tp)
        settled = step(before, self.rules(tp.topic))
        if settled.state != before:
            self._states[tp] = settled.state
        if settled.unclean:
            self.unclean[tp] = None
        if settled.state.offline:
            self.offline[tp] = None
        return settled.state

    def state(self, tp: TopicPartition) -> PartitionImage:
        """As it is after the steps so far; the partition must exist."""
        changed = self._states.get(tp)
        return self._image.topics[tp.topic].partitions[tp.partition] if changed is None else changed

    def records(self) -> tuple[PartitionChanged, ...]:
        return tuple(
            PartitionChanged(topic=tp.topic, partition=tp.partition, state=state)
            for tp, state in self._states.items()
        )

    def effects(self) -> tuple[Effect, ...]:
        """What is said, and counted, about leaders that may lack records."""
        if not self.unclean:
            return ()
        leaders = (f"{tp} by broker {self.state(tp).leader}" for tp in self.unclean)
        warning = WarnOperator(
            message=f"unclean recovery, the best log at hand leads: {named(leaders)}; records that "
            "it lacks are lost, even if they were acknowledged"
        )
        return warning, CountUncleanRecoveries(partitions=len(self.unclean))

    def rules(self, topic: str) -> Rules:
        rules = self._rules.get(topic)
        if rules is None:
            config = TopicConfig.resolve(self._image.topic_overrides(topic), self._config)
            rules = self._rules[topic] = Rules(
                min_isr=config.min_insync_replicas,
                is_alive=self._is_alive,
                stopping=self._stopping,
                unclean=config.unclean_leader_election_enable,
            )
        return rules

    def _is_alive(self, broker_id: int) -> bool:
        if broker_id in self._also_gone:
            return False
        return broker_id == self._also_alive or self._image.is_alive(broker_id)


def named(names: Iterable[object]) -> str:
    """``a-0, a-1 and 5 more``."""
    texts = [str(name) for name in names]
    shown = ", ".join(texts[:_NAMED_MAX])
    return f"{shown} and {len(texts) - _NAMED_MAX} more" if len(texts) > _NAMED_MAX else shown
