"""The effects of a partition: what its shell must do after a call.

Owns: the values.  Must not know how an effect is decided or carried out.

``CompleteDelayed...`` has delayed operations in a purgatory checked, and completed where they can
be, like ``ReplicaManager.completeDelayedFetchRequests`` and the methods beside it in Kafka.
"""

from dataclasses import dataclass
from typing import TypeAlias

from sparklog.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteDelayedFetches:
    """Complete delayed fetches: about ``size`` more bytes are readable, or the role has changed."""

    topic_partition: TopicPartition
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteDelayedFollowerFetches:
    """Complete delayed fetches of followers: ``size`` more bytes can be replicated."""

    topic_partition: TopicPartition
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteDelayedDeleteRecords:
    """Complete delayed DeleteRecords: a log start or the role has changed."""

    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteDelayedProduces:
    """Complete delayed produces whose offset ``Partition.has_reached``."""

    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushLog:
    """Flush the log off the loop at ``at_ms``, or at once if that has passed; then call
    ``Partition.flushed``."""

    topic_partition: TopicPartition
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStatistics:
    """Segments were sealed: write their ``.stats`` files when there is time."""

    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitAlterPartition:
    """Send ``Partition.isr_proposal`` to the controller: the leader shrinks or expands the ISR."""

    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeFetching:
    """Fetch from the leader again: the follower has a ``Partition.fetch_position`` now."""

    topic_partition: TopicPartition


Effect: TypeAlias = (
    CompleteDelayedFetches
    | CompleteDelayedFollowerFetches
    | CompleteDelayedProduces
    | CompleteDelayedDeleteRecords
    | FlushLog
    | WriteStatistics
    | SubmitAlterPartition
    | ResumeFetching
)


def complete_all_delayed(topic_partition: TopicPartition) -> list[Effect]:
    """The effects that complete the delayed operations of all kinds on a partition."""
    return [
        CompleteDelayedFetches(topic_partition=topic_partition, size=0),
        CompleteDelayedProduces(topic_partition=topic_partition),
        CompleteDelayedDeleteRecords(topic_partition=topic_partition),
    ]
