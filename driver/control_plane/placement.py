"""On which brokers the replicas of new partitions go.

Owns: the choice, its balance and its failure domains.  Must not know topics, requests or how the
choice is recorded.

The first replica leads: each partition is led by the living broker that leads the fewest of this
topic, then the fewest overall, then has the lowest id.  Each further replica goes, of the brokers
that are left, to

1. one that is alive;
2. one that shares the fewest outermost domains with the replicas chosen before it, then the fewest
   of the next level, and so on: the replicas stand apart at the outermost level that has enough
   members, and as far apart as the levels inside allow where it has not;
3. for the second replica, one that was second to this leader least often, so that the partitions of
   a leader that dies spread over all others (what a shifted round robin does);
4. one with the fewest replicas of this topic;
5. one with the fewest replicas overall, then the next one round the ring of ids.
"""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

#: The replicas of one partition; the first leads.
Replicas = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A broker that may be chosen.

    ``leads`` are the partitions that it is to lead already, ``seconds`` how often each other broker
    comes second there, ``replicas`` all that it has.  ``domains`` are the names of what fails with
    it, outermost first: as many for every candidate.
    """

    broker_id: int
    alive: bool = True
    leads: int = 0
    replicas: int = 0
    second_counts: Mapping[int, int] = field(default_factory=dict)
    domains: tuple[str, ...] = ()


@dataclass(slots=True)
class _Load:
    """A candidate while one topic is placed; ``given`` counts replicas of this topic."""

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
    """Replicas of ``partitions`` new partitions of a topic that has the ``present`` ones.

    The caller sees to it that there are ``factor`` candidates, one of them alive.
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
    """The replicas of a partition with another broker in the place of each that leaves.

    Every broker of ``replicas`` must be among the candidates; the living ones may be chosen, and
    stand apart as in ``place``.  Who comes first is one that leads little so far.  None when there
    are too few to choose from.
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
    """Level by level, the domains of the replicas chosen so far."""
    return tuple(zip(*(load.candidate.domains for load in chosen), strict=True))


def _shared(load: _Load, used: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
    """Level by level, how many of those replicas are in this broker's domain."""
    return tuple(map(tuple.count, used, load.candidate.domains))
