"""Plans for moving replicas: to other brokers, or to more or fewer, evenly and with few moves.

Owns: the choice of replicas.  Must not know how a plan is carried out.

A plan keeps the replicas that may stay and adds the missing replicas.  Then it moves single
replicas from brokers that have many to brokers that have few: first within each topic, then over
all topics without making any topic less even.  A move never makes replicas of a partition share a
rack that did not share it before.  Last, the order of replicas, and with it the preferred replica,
is changed where a broker would lead too many partitions.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition

Assignment = dict[TopicPartition, tuple[int, ...]]

#: The scope of all topics; no topic has an empty name.
_ALL_TOPICS: Final = ""


def plan_replicas(
    current: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str | None],
    replication_factor: int | None = None,
) -> Assignment:
    """The changes that move these partitions to the brokers in ``racks`` (broker id to rack).

    ``replication_factor`` None keeps the factor of each partition.  Raises KafkaError for too few
    brokers.
    """
    plan = _Plan(racks)
    for tp in sorted(current):
        wanted = replication_factor or len(current[tp])
        if wanted > len(racks):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{tp} cannot have {wanted} replicas on {len(racks)} brokers",
            )
        plan.keep(tp, current[tp], wanted)
    for tp in sorted(current):
        plan.fill(tp, replication_factor or len(current[tp]))
    plan.even_out()
    return {tp: new for tp, new in plan.assignment().items() if new != tuple(current[tp])}


def moved_replicas(
    current: Mapping[TopicPartition, Sequence[int]], plan: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas that must be copied, by partition; a change of order copies nothing."""
    moved = {tp: tuple(r for r in new if r not in current[tp]) for tp, new in plan.items()}
    return {tp: replicas for tp, replicas in moved.items() if replicas}


class _Plan:
    """The replicas so far, and how many each broker has and leads, by (scope, broker)."""

    def __init__(self, racks: Mapping[int, str | None]) -> None:
        # A broker without a rack counts as its own rack.
        self._racks = {broker: rack or f"broker {broker}" for broker, rack in racks.items()}
        self._replicas: dict[TopicPartition, list[int]] = {}
        self._by_broker: dict[int, set[TopicPartition]] = {broker: set() for broker in racks}
        self._load: Counter[tuple[str, int]] = Counter()
        self._leads: Counter[tuple[str, int]] = Counter()

    def assignment(self) -> Assignment:
        return {tp: tuple(replicas) for tp, replicas in self._replicas.items()}

    def keep(self, tp: TopicPartition, replicas: Sequence[int], wanted: int) -> None:
        """Keep the replicas that may stay; of too many, drop replicas in shared racks first."""
        staying = [broker for broker in replicas if broker in self._racks]
        first_of_racks = list(
            {self._racks[broker]: broker for broker in reversed(staying)}.values()
        )
        staying.sort(key=lambda broker: broker not in first_of_racks)
        kept = set(staying[:wanted])
        self._replicas[tp] = []
        for broker in replicas:
            if broker in kept:
                self._add(tp, broker)

    def fill(self, tp: TopicPartition, wanted: int) -> None:
        """Add replicas on the least loaded brokers, in racks without a replica of the partition."""
        replicas = self._replicas[tp]
        while len(replicas) < wanted:
            used = {self._racks[broker] for broker in replicas}
            candidates = self._racks.keys() - set(replicas)
            self._add(
                tp, min(candidates, key=lambda b: (self._racks[b] in used, *self._order(tp, b)))
            )

    def even_out(self) -> None:
        topics: dict[str, set[TopicPartition]] = {}
        for tp in self._replicas:
            topics.setdefault(tp.topic, set()).add(tp)
        for topic, partitions in topics.items():
            if len(partitions) > 1:
                self._even_out_replicas(topic, partitions)
        self._even_out_replicas(_ALL_TOPICS, set(self._replicas))
        for tp, replicas in self._replicas.items():
            self._count_leader(tp, replicas[0], 1)
        for topic, partitions in topics.items():
            self._even_out_leaders(topic, sorted(partitions))
        self._even_out_leaders(_ALL_TOPICS, sorted(self._replicas))

    def _even_out_replicas(self, scope: str, partitions: set[TopicPartition]) -> None:
        """Move replicas until no move would make the loads of brokers (in the scope) more even.

        First from brokers with too many replicas to brokers with too few; where racks forbid that,
        through other brokers.
        """
        while self._move_surplus(scope, partitions, by_way_of_others=False):
            pass
        while self._move_surplus(scope, partitions, by_way_of_others=True):
            pass

    def _move_surplus(
        self, scope: str, partitions: set[TopicPartition], *, by_way_of_others: bool
    ) -> bool:
        """Make one round of moves.  Returns whether a replica was moved."""
        load, moved = self._load, False
        total = sum(load[scope, broker] for broker in self._racks)
        floor, ceiling = total // len(self._racks), -(-total // len(self._racks))
        order = sorted(self._racks, key=lambda b: (load[scope, b], load[_ALL_TOPICS, b], b))
        if load[scope, order[-1]] - load[scope, order[0]] <= 1:
            return False
        for giver in reversed(order):
            for taker in order:
                given, taken = load[scope, giver], load[scope, taker]
                if given - taken <= 1:
                    continue
                if given > ceiling or (given > floor and taken < floor):
                    count = min(max(given - ceiling, 1), max(floor - taken, 1))
                    moved |= self._move(scope, partitions, giver, taker, count)
                elif by_way_of_others:
                    moved |= self._move(scope, partitions, giver, taker, 1)
        return moved

    def _move(
        self, scope: str, partitions: set[TopicPartition], giver: int, taker: int, count: int
    ) -> bool:
        """Move up to ``count`` replicas.  Returns whether a replica was moved."""
        candidates = (self._by_broker[giver] & partitions) - self._by_broker[taker]
        left = count
        for tp in sorted(candidates):
            if not left:
                break
            if self._may_move(scope, tp, giver, taker):
                replicas = self._replicas[tp]
                replicas[replicas.index(giver)] = taker
                self._count(tp, giver, -1)
                self._count(tp, taker, 1)
                left -= 1
        return left < count

    def _may_move(self, scope: str, tp: TopicPartition, giver: int, taker: int) -> bool:
        if scope == _ALL_TOPICS and self._load[tp.topic, giver] <= self._load[tp.topic, taker]:
            return False  # the topic would become less even
        others = {self._racks[broker] for broker in self._replicas[tp] if broker != giver}
        return self._racks[taker] not in others or self._racks[giver] in others

    def _even_out_leaders(self, scope: str, partitions: Sequence[TopicPartition]) -> None:
        """Put another replica first while that makes leaders (in the scope) more even."""
        leads, changed = self._leads, True
        while changed:
            changed = False
            for tp in partitions:
                replicas = self._replicas[tp]
                leader = replicas[0]
                # Over all topics, no single topic may become less even.
                allowed = [
                    b
                    for b in replicas
                    if scope == tp.topic or leads[tp.topic, b] < leads[tp.topic, leader]
                ]
                best = min(allowed, key=lambda b: leads[scope, b], default=leader)
                if leads[scope, leader] - leads[scope, best] > 1:
                    replicas.remove(best)
                    replicas.insert(0, best)
                    self._count_leader(tp, leader, -1)
                    self._count_leader(tp, best, 1)
                    changed = True

    def _order(self, tp: TopicPartition, broker: int) -> tuple[int, int, int]:
        """A sort key: the least loaded broker first."""
        return (self._load[tp.topic, broker], self._load[_ALL_TOPICS, broker], broker)

    def _add(self, tp: TopicPartition, broker: int) -> None:
        self._replicas[tp].append(broker)
        self._count(tp, broker, 1)

    def _count(self, tp: TopicPartition, broker: int, change: int) -> None:
        if change > 0:
            self._by_broker[broker].add(tp)
        else:
            self._by_broker[broker].remove(tp)
        for scope in (tp.topic, _ALL_TOPICS):
            self._load[scope, broker] += change

    def _count_leader(self, tp: TopicPartition, broker: int, change: int) -> None:
        for scope in (tp.topic, _ALL_TOPICS):
            self._leads[scope, broker] += change
