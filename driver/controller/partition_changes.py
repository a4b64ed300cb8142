"""What the coming and going of brokers does to their partitions.

Owns: the new states of all partitions that one event touches.  Must not know why a broker came or
went.
"""

from collections.abc import Callable, Iterable

from sparklog.config import TOPIC_SETTING_BY_NAME, BrokerConfig, TopicConfig
from sparklog.driver.controller.elections import Loss, Settled, broker_left, settle
from sparklog.metadata import ClusterImage, PartitionChanged, PartitionImage
from sparklog.types import TopicPartition

_MIN_ISR = TOPIC_SETTING_BY_NAME["min.insync.replicas"]
#: Partitions that one log line names.
_NAMED_MAX = 10


class PartitionChanges:
    """The partitions that one event changes, each settled on top of the event's earlier steps."""

    def __init__(
        self,
        image: ClusterImage,
        config: BrokerConfig,
        *,
        also_alive: int | None = None,
        also_gone: frozenset[int] = frozenset(),
    ) -> None:
        self._image = image
        self._default_min_isr = TopicConfig.resolve({}, config).min_insync_replicas
        self._also_alive = also_alive
        self._also_gone = also_gone
        self._states: dict[TopicPartition, PartitionImage] = {}
        self.unclean: list[TopicPartition] = []
        self.offline: list[TopicPartition] = []

    def left(self, broker_id: int, loss: Loss) -> list[PartitionChanged]:
        """The broker's former process is gone."""

        def step(state: PartitionImage, min_isr: int) -> Settled:
            return broker_left(state, broker_id, loss, min_isr=min_isr, is_alive=self._is_alive)

        return self._settle(broker_id, step)

    def returned(self, broker_id: int) -> list[PartitionChanged]:
        """The broker lives on, with everything it had."""

        def step(state: PartitionImage, min_isr: int) -> Settled:
            return settle(state, min_isr=min_isr, is_alive=self._is_alive)

        return self._settle(broker_id, step)

    def changes(self) -> list[PartitionChanged]:
        return [
            PartitionChanged(topic=tp.topic, partition=tp.partition, state=state)
            for tp, state in self._states.items()
        ]

    def _settle(
        self, broker_id: int, step: Callable[[PartitionImage, int], Settled]
    ) -> list[PartitionChanged]:
        for tp, present in self._image.partitions_of(broker_id).items():
            before = self._states.get(tp, present)
            settled = step(before, self._min_isr(tp.topic))
            if settled.state != before:
                self._states[tp] = settled.state
            if settled.unclean:
                self.unclean.append(tp)
            if settled.state.offline:
                self.offline.append(tp)
        return self.changes()

    def _is_alive(self, broker_id: int) -> bool:
        if broker_id in self._also_gone:
            return False
        return broker_id == self._also_alive or self._image.is_alive(broker_id)

    def _min_isr(self, topic: str) -> int:
        text = self._image.topic_overrides(topic).get(_MIN_ISR.name)
        return self._default_min_isr if text is None else int(text)


def named(partitions: Iterable[TopicPartition]) -> str:
    """``a-0, a-1 and 5 more partitions``."""
    names = [str(tp) for tp in partitions]
    shown = ", ".join(names[:_NAMED_MAX])
    return f"{shown} and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else shown
