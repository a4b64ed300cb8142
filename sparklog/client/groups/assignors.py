"""Assignors, by which the leader of a group gives partitions to the members.

Owns: the names and rebalance protocols of the assignors, ``range`` and ``roundrobin``; the two
sticky ones are in ``sticky_assignors``.  Must not know the group's coordinator, nor when a group
rebalances.  Every function here is pure, and gives the same result for the same members.

Sources: ``RangeAssignor``, ``RoundRobinAssignor`` in Kafka (without the racks of KIP-881).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.client.groups.consumer_protocol import (
    Subscription,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    partitions_of,
)
from sparklog.client.groups.sticky_assignors import assign_cooperative_sticky, assign_sticky
from sparklog.types import TopicPartition

#: Partitions by member id; every member has an entry.
Assignment = dict[str, list[TopicPartition]]
#: (number of partitions by topic, subscriptions by member id) -> assignment.
Assign = Callable[[Mapping[str, int], Mapping[str, Subscription]], Assignment]
#: (partitions of the last assignment, its generation) -> user data for the group's leader.
UserData = Callable[[Iterable[TopicPartition], int], bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignor:
    """An assignor: its name on the wire, its function, and the user data that it needs.

    With ``cooperative``, members keep their partitions during a rebalance (KIP-429).
    """

    name: str
    assign: Assign
    user_data: UserData
    cooperative: bool = False


def _no_user_data(_owned: Iterable[TopicPartition], _generation: int) -> bytes | None:
    return None


def _in_order(members: Mapping[str, Subscription]) -> list[str]:
    """Member ids in Kafka's order: static members first, by their instance id."""

    def key(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].group_instance_id
        return (instance_id is None, member_id if instance_id is None else instance_id)

    return sorted(members, key=key)


def assign_range(counts: Mapping[str, int], members: Mapping[str, Subscription]) -> Assignment:
    """Assign each topic by itself; the first members in order get one partition more."""
    found: Assignment = {member_id: [] for member_id in members}
    order = _in_order(members)
    for topic in sorted({topic for each in members.values() for topic in each.topics}):
        takers = [member_id for member_id in order if topic in members[member_id].topics]
        partitions = partitions_of(counts, [topic])
        share, rest = divmod(len(partitions), len(takers))
        start = 0
        for place, member_id in enumerate(takers):
            size = share + (place < rest)
            found[member_id] += partitions[start : start + size]
            start += size
    return found


def assign_round_robin(
    counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> Assignment:
    """Assign the partitions in turn to the members in order, except members without the topic."""
    found: Assignment = {member_id: [] for member_id in members}
    order = _in_order(members)
    topics = {topic for each in members.values() for topic in each.topics}
    subscribed = {member_id: frozenset(members[member_id].topics) for member_id in order}
    turn = 0
    for tp in partitions_of(counts, topics):
        while tp.topic not in subscribed[order[turn % len(order)]]:
            turn += 1
        found[order[turn % len(order)]].append(tp)
        turn += 1
    return found


def _cooperative_user_data(_owned: Iterable[TopicPartition], generation: int) -> bytes | None:
    return encode_cooperative_user_data(generation)


RANGE: Final = Assignor(name="range", assign=assign_range, user_data=_no_user_data)
ROUND_ROBIN: Final = Assignor(name="roundrobin", assign=assign_round_robin, user_data=_no_user_data)
STICKY: Final = Assignor(name="sticky", assign=assign_sticky, user_data=encode_sticky_user_data)
COOPERATIVE_STICKY: Final = Assignor(
    name="cooperative-sticky",
    assign=assign_cooperative_sticky,
    user_data=_cooperative_user_data,
    cooperative=True,
)

ASSIGNORS: Final[Mapping[str, Assignor]] = {
    each.name: each for each in (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY)
}


def assignors_named(names: Sequence[str]) -> tuple[Assignor, ...]:
    """The assignors with these names, in order of preference.  Raises ValueError."""
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown or not names:
        what = f"{unknown[0]!r} is not an assignor" if unknown else "an assignor is missing"
        raise ValueError(f"{what}: choose from {', '.join(ASSIGNORS)}")
    return tuple(ASSIGNORS[name] for name in dict.fromkeys(names))


def is_cooperative(assignors: Iterable[Assignor]) -> bool:
    """Whether a member with these assignors keeps its partitions during a rebalance.

    The member keeps its partitions if all its assignors are cooperative.  So a group changes from
    an eager to a cooperative assignor in two rounds of restarts (KIP-429).
    """
    return all(each.cooperative for each in assignors)
