"""The sticky assignors: balanced assignments that move as few partitions as possible.

Owns: ``sticky`` and ``cooperative-sticky``.  Must not know the other assignors, nor the group's
coordinator.  Every function here is pure, and gives the same result for the same members.

Guarantees, as those of Kafka's ``AbstractStickyAssignor`` (KIP-54, KIP-341, KIP-429):

* every partition of a subscribed topic has exactly one owner, which is subscribed to the topic
  (``cooperative-sticky``: at most one, and none while its previous owner has to give it up);
* no partition could move to a member that has two partitions fewer than its owner; so members with
  the same subscription differ by one partition at most;
* within these bounds, members keep the partitions that they own.  A claim of a newer generation
  beats one of an older generation; two claims of the same generation cancel each other.
"""

from collections.abc import Iterable, Mapping

from sparklog.client.groups.consumer_protocol import (
    NO_GENERATION,
    Subscription,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    partitions_of,
)
from sparklog.types import TopicPartition

#: Member id -> (owned partitions, their generation).
_Claims = Mapping[str, tuple[frozenset[TopicPartition], int]]


def assign_sticky(
    counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> dict[str, list[TopicPartition]]:
    """A sticky assignment; owned partitions are those of the user data."""
    claims = {
        member_id: decode_sticky_user_data(each.user_data) for member_id, each in members.items()
    }
    return _StickyAssignment(counts, members, claims).finish()


def assign_cooperative_sticky(
    counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> dict[str, list[TopicPartition]]:
    """A sticky assignment without the partitions that another member has to revoke first.

    Their owner sees that they are missing, revokes them and joins again; the next assignment gives
    them to their new owner.
    """
    claims = {member_id: (each.owned, _generation(each)) for member_id, each in members.items()}
    found = _StickyAssignment(counts, members, claims).finish()
    owners: dict[TopicPartition, set[str]] = {}
    for member_id, (owned, _) in claims.items():
        for tp in owned:
            owners.setdefault(tp, set()).add(member_id)
    return {
        member_id: [tp for tp in given if member_id in owners.get(tp, {member_id})]
        for member_id, given in found.items()
    }


def _generation(subscription: Subscription) -> int:
    """The generation of the owned partitions; before v2 it was in the user data."""
    if subscription.generation != NO_GENERATION:
        return subscription.generation
    return decode_cooperative_user_data(subscription.user_data)


class _StickyAssignment:
    """One assignment while it is made."""

    def __init__(
        self, counts: Mapping[str, int], members: Mapping[str, Subscription], claims: _Claims
    ) -> None:
        self._order = sorted(members)
        #: Members that may have a topic.
        self._takers: dict[str, list[str]] = {}
        for member_id in self._order:
            for topic in sorted(set(members[member_id].topics)):
                self._takers.setdefault(topic, []).append(member_id)
        self._partitions = partitions_of(counts, self._takers)
        self._owner = self._kept(claims)
        self._load = dict.fromkeys(self._order, 0)
        for member_id in self._owner.values():
            self._load[member_id] += 1

    def finish(self) -> dict[str, list[TopicPartition]]:
        self._assign_rest()
        self._balance()
        found: dict[str, list[TopicPartition]] = {member_id: [] for member_id in self._order}
        for tp in self._partitions:
            found[self._owner[tp]].append(tp)
        return found

    def _kept(self, claims: _Claims) -> dict[TopicPartition, str]:
        """The owners of partitions as far as claims are valid."""
        takers = {topic: set(members) for topic, members in self._takers.items()}
        best: dict[TopicPartition, tuple[int, list[str]]] = {}
        for member_id in self._order:
            owned, generation = claims[member_id]
            for tp in owned:
                newest, claimants = best.get(tp, (generation, []))
                if generation > newest:
                    best[tp] = (generation, [member_id])
                elif generation == newest:
                    best[tp] = (generation, [*claimants, member_id])
        existing = set(self._partitions)
        return {
            tp: claimants[0]
            for tp, (_, claimants) in best.items()
            if tp in existing and len(claimants) == 1 and claimants[0] in takers[tp.topic]
        }

    def _assign_rest(self) -> None:
        """Partitions without an owner: first those that few members can take."""
        free = [tp for tp in self._partitions if tp not in self._owner]
        for tp in sorted(free, key=lambda tp: (len(self._takers[tp.topic]), tp)):
            taker = self._least_loaded(self._takers[tp.topic])
            self._owner[tp] = taker
            self._load[taker] += 1

    def _balance(self) -> None:
        """Move partitions until no member could take one from a member with two more.

        Each move lowers the sum of the squares of all loads, so the loop ends.
        """
        held: dict[str, dict[str, list[TopicPartition]]] = {each: {} for each in self._order}
        for tp in self._partitions:
            held[self._owner[tp]].setdefault(tp.topic, []).append(tp)
        while self._move_one(held):
            pass

    def _move_one(self, held: dict[str, dict[str, list[TopicPartition]]]) -> bool:
        """Move one partition from the most loaded member that can give one away."""
        for owner in sorted(self._order, key=lambda member_id: -self._load[member_id]):
            takers = {topic: self._least_loaded(self._takers[topic]) for topic in held[owner]}
            if not takers:
                continue
            topic = min(takers, key=lambda topic: (self._load[takers[topic]], topic))
            taker = takers[topic]
            if self._load[owner] > self._load[taker] + 1:
                tp = held[owner][topic].pop()
                if not held[owner][topic]:
                    del held[owner][topic]
                held[taker].setdefault(topic, []).append(tp)
                self._owner[tp] = taker
                self._load[owner] -= 1
                self._load[taker] += 1
                return True
        return False

    def _least_loaded(self, takers: Iterable[str]) -> str:
        return min(takers, key=lambda member_id: (self._load[member_id], member_id))
