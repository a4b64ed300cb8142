"""The division of a request about many partitions into parts that are decided one by one.

Owns: the size of a part.  Must not know any particular request.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

#: Partitions that a state machine decides on without a pause.
PARTITIONS_AT_ONCE: Final = 250


class HasPartitions(Protocol):
    """A topic of a request: a dataclass with partitions."""

    @property
    def partitions(self) -> tuple[Any, ...]: ...


TopicT = TypeVar("TopicT", bound=HasPartitions)


def parts_of(topics: Sequence[TopicT]) -> Iterator[tuple[TopicT, ...]]:
    """The topics in parts of ``PARTITIONS_AT_ONCE`` partitions, in their order."""
    part: list[TopicT] = []
    room = PARTITIONS_AT_ONCE
    for topic in topics:
        start = 0
        while start < len(topic.partitions):
            taken = topic.partitions[start : start + room]
            part.append(replace(topic, partitions=taken))  # type: ignore[type-var]
            start += len(taken)
            room -= len(taken)
            if not room:
                yield tuple(part)
                part, room = [], PARTITIONS_AT_ONCE
    if part:
        yield tuple(part)
