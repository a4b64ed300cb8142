"""The placement of replicas: the brokers that the replicas of new partitions go to.

Owns: the choice, its balance and its failure domains.  Must not know topics, requests or how the
choice is recorded.

The first replica is the preferred leader.  It goes to the alive broker that leads the fewest
partitions of this topic, then the fewest overall, then has the lowest id.  For each further replica
the remaining brokers are compared by these criteria, in this order:

1. an alive broker before a fenced one;
2. the fewest failure domains shared with the replicas chosen before, at the outermost level first,
   then at the next level, and so on: replicas are separated at the outermost level that has enough
   members, and otherwise as far as the inner levels allow;
3. for the second replica, the broker that was second to this leader least often, so that the
   partitions of a leader that dies spread over all others (as with a shifted round robin);
4. the fewest replicas of this topic;
5. the fewest replicas overall, then the next broker in the ring of ids.
"""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

#: The broker ids of one partition's replicas; the first is the preferred leader.
Replicas = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A broker that may be chosen.

    Args:
        leads: the number of partitions of which the broker is the preferred leader.
        replicas: the number of all replicas on the broker.
        second_counts: by broker id, how many of those partitions have that second replica.
        domains: the names of the broker's failure domains, outermost first.  Every candidate has
            the same number of domains.
    """

    broker_id: int
    alive: bool = True
    leads: int = 0
    replicas: int = 0
    second_counts: Mapping[int, int] = field(default_factory=dict)
    domains: tuple[str, ...] = ()


@dataclass(slots=True)
class _Load:
    """A candidate's load while one topic is placed; ``given`` counts replicas of this topic."""

    candidate: Candidate
    place: int
    replicas: int
    given: int = 0
    led: int = 0
    second_counts: dict[int, int] = field(default_factory=dict)


def place(
    partitions: int,
    factor: int,
    candidates: Iterable[Candidate],
    present: Sequence[Replicas] = (),
) -> tuple[Replicas, ...]:
    """Choose the replicas of new partitions of one topic.

    Args:
        partitions: the number of new partitions.
        factor: the replication factor.  There must be at least this many candidates, one of them
            alive.
        present: the replicas of the partitions that the topic has already.

    Returns:
        The replicas of each new partition.
    """
    loads = [
        _Load(candidate=c, place=n, replicas=c.replicas, second_counts=dict(c.second_counts))
        for n, c in enumerate(sorted(candidates, key=lambda c: c.broker_id))
    ]
    assert 0 < factor <= len(loads), "the caller refuses factors that cannot be"
    _count_present(loads, present)
    heap = [(load.led, load.candidate.leads, load.place) for load in loads if load.candidate.alive]
    assert heap, "the caller refuses to place without living brokers"
    heapq.heapify(heap)
    placed: list[Replicas] = []
    for _ in range(partitions):
        led, leads, number = heap[0]
        heapq.heapreplace(heap, (led + 1, leads + 1, number))
        chosen = [loads[number]]
        _take(chosen, loads[number])
        while len(chosen) < factor:
            follower = _next_replica(loads, chosen)
            chosen.append(follower)
            _take(chosen, follower)
        placed.append(tuple(load.candidate.broker_id for load in chosen))
    return tuple(placed)


def substitute(
    replicas: Replicas, leaving: Collection[int], candidates: Iterable[Candidate]
) -> Replicas | None:
    """Replace the leaving brokers among the replicas of one partition.

    The failure domains are separated as in ``place``.  A new preferred leader is a broker that
    leads few partitions so far.

    Args:
        candidates: all brokers of ``replicas`` and those that may be chosen, if they are alive.

    Returns:
        The new replicas; None when there are too few candidates.
    """
    loads = [
        _Load(candidate=c, place=n, replicas=c.replicas)
        for n, c in enumerate(sorted(candidates, key=lambda c: c.broker_id))
    ]
    choosable = [c for c in loads if c.candidate.alive and c.candidate.broker_id not in leaving]
    staying = [load for load in loads if load.candidate.broker_id in {*replicas} - {*leaving}]
    chosen = list(replicas)
    for position, broker_id in enumerate(replicas):
        if broker_id in leaving:
            free = [load for load in choosable if load not in staying]
            if not free:
                return None
            best = _least_loaded(free, _used_domains(staying), to_lead=position == 0)
            staying.append(best)
            chosen[position] = best.candidate.broker_id
    return tuple(chosen)


def extend(
    replicas: Replicas, factor: int, candidates: Iterable[Candidate], others: Sequence[Replicas]
) -> Replicas:
    """Add replicas to one partition; the present ones stay.

    The preferred leader becomes the alive replica that leads the fewest partitions of the topic,
    then the fewest overall: when a topic moves from few brokers to more, so does its leadership.

    Args:
        factor: the number of replicas that the partition gets.
        candidates: all brokers of ``replicas`` and at least as many alive ones as are added.
        others: the replicas of the topic's other partitions.

    Returns:
        The replicas; the first is the preferred leader.
    """
    loads = [
        _Load(candidate=c, place=n, replicas=c.replicas, second_counts=dict(c.second_counts))
        for n, c in enumerate(sorted(candidates, key=lambda c: c.broker_id))
    ]
    _count_present(loads, others)
    by_id = {load.candidate.broker_id: load for load in loads}
    chosen = [by_id[broker_id] for broker_id in replicas]
    while len(chosen) < factor:
        chosen.append(_next_replica(loads, chosen))
    alive = [load for load in chosen if load.candidate.alive]
    leader = min(alive, key=lambda load: (load.led, load.candidate.leads))
    ordered = [leader, *(load for load in chosen if load is not leader)]
    return tuple(load.candidate.broker_id for load in ordered)


def _least_loaded(
    free: Iterable[_Load], used: Sequence[tuple[str, ...]], *, to_lead: bool
) -> _Load:
    def rank(load: _Load) -> tuple[object, ...]:
        leads = load.candidate.leads if to_lead else 0
        return (_shared(load, used), leads, load.replicas, load.place)

    return min(free, key=rank)


def _count_present(loads: Sequence[_Load], present: Sequence[Replicas]) -> None:
    by_id = {load.candidate.broker_id: load for load in loads}
    for replicas in present:
        for broker_id in replicas:
            if broker_id in by_id:
                by_id[broker_id].given += 1
        if replicas[0] in by_id:
            by_id[replicas[0]].led += 1


def _take(chosen: Sequence[_Load], load: _Load) -> None:
    load.given += 1
    load.replicas += 1
    if len(chosen) == 2:
        second_counts = chosen[0].second_counts
        second_counts[load.candidate.broker_id] = second_counts.get(load.candidate.broker_id, 0) + 1


def _next_replica(loads: Sequence[_Load], chosen: Sequence[_Load]) -> _Load:
    leader = chosen[0]
    taken = {load.place for load in chosen}
    used = _used_domains(chosen)
    second_counts = leader.second_counts if len(chosen) == 1 else {}
    ring = len(loads)

    def rank(load: _Load) -> tuple[object, ...]:
        return (
            not load.candidate.alive,
            _shared(load, used),
            second_counts.get(load.candidate.broker_id, 0),
            load.given,
            load.replicas,
            (load.place - leader.place) % ring,
        )

    return min([load for load in loads if load.place not in taken], key=rank)


def _used_domains(chosen: Sequence[_Load]) -> Sequence[tuple[str, ...]]:
    """The failure domains of the replicas chosen so far, level by level."""
    return tuple(zip(*(load.candidate.domains for load in chosen), strict=True))


def _shared(load: _Load, used: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
    """The number of those replicas in this broker's failure domain, level by level."""
    return tuple(map(tuple.count, used, load.candidate.domains))
