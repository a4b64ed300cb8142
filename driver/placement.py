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
from collections.abc import Iterable, Mapping, Sequence
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
    seconds: Mapping[int, int] = field(default_factory=dict)
    domains: tuple[str, ...] = ()


@dataclass(slots=True)
class _Load:
    """A candidate while one topic is placed; ``given`` counts replicas of this topic."""

    candidate: Candidate
    place: int
    replicas: int
    given: int = 0
    led: int = 0
    seconds: dict[int, int] = field(default_factory=dict)


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
        _Load(candidate=c, place=n, replicas=c.replicas, seconds=dict(c.seconds))
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
        seconds = chosen[0].seconds
        seconds[load.candidate.broker_id] = seconds.get(load.candidate.broker_id, 0) + 1


def _next_replica(loads: Sequence[_Load], chosen: Sequence[_Load]) -> _Load:
    leader = chosen[0]
    taken = {load.place for load in chosen}
    used = tuple(zip(*(load.candidate.domains for load in chosen), strict=True))
    seconds = leader.seconds if len(chosen) == 1 else {}
    ring = len(loads)

    def rank(load: _Load) -> tuple[object, ...]:
        candidate = load.candidate
        return (
            not candidate.alive,
            [names.count(name) for names, name in zip(used, candidate.domains, strict=True)],
            seconds.get(candidate.broker_id, 0),
            load.given,
            load.replicas,
            (load.place - leader.place) % ring,
        )

    return min((load for load in loads if load.place not in taken), key=rank)
