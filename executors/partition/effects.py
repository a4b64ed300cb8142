"""The effects of a partition: what its shell must do after a call.

Owns: the values.  Must not know how an effect is decided or carried out.
"""

from dataclasses import dataclass
from typing import TypeAlias

from sparklog.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeReaders:
    """Check the delayed fetches again: about ``size`` more bytes are readable, or the role has
    changed."""

    topic_partition: TopicPartition
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeFollowers:
    """Check the delayed fetches of followers again: ``size`` bytes wait to be replicated."""

    topic_partition: TopicPartition
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeDeleters:
    """Check the delayed DeleteRecords again: a log start or the role has changed."""

    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeWriters:
    """Check the delayed produce requests again with ``Partition.is_settled``."""

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
class ProposeIsr:
    """Send ``Partition.isr_proposal`` to the controller: the leader asks for another ISR."""

    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeFetching:
    """Fetch from the leader again: the follower has a ``Partition.fetch_position`` now."""

    topic_partition: TopicPartition


Effect: TypeAlias = (
    WakeReaders
    | WakeFollowers
    | WakeWriters
    | WakeDeleters
    | FlushLog
    | WriteStatistics
    | ProposeIsr
    | ResumeFetching
)


def wake_all(topic_partition: TopicPartition) -> list[Effect]:
    """The effects that check everything that waits for a partition."""
    return [
        WakeReaders(topic_partition=topic_partition, size=0),
        WakeWriters(topic_partition=topic_partition),
        WakeDeleters(topic_partition=topic_partition),
    ]
