"""Replicas are placed evenly, in separate domains, and so that a dead leader's load spreads."""

from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from sparklog.driver.control_plane.placement import (
    Candidate,
    Replicas,
    extend,
    place,
    substitute,
)


def brokers(*ids: int, **same: int) -> list[Candidate]:
    return [Candidate(broker_id=broker_id, **same) for broker_id in ids]  # type: ignore[arg-type]


def at(*hosts: str) -> list[Candidate]:
    """Brokers with ids from 1, at the (rack, host) that "rack.host" names."""
    return [
        Candidate(broker_id=number, domains=(where.split(".")[0], where))
        for number, where in enumerate(hosts, start=1)
    ]


def test_one_topic_goes_round_all_brokers() -> None:
    assert place(6, 1, brokers(1, 2, 3)) == ((1,), (2,), (3,), (1,), (2,), (3,))


def test_who_leads_least_comes_first() -> None:
    loaded = [Candidate(broker_id=n, leads=leads) for n, leads in ((1, 5), (2, 1), (3, 3))]
    assert place(4, 1, loaded) == ((2,), (3,), (1,), (2,))


def test_followers_shift_with_every_round() -> None:
    assert place(6, 2, brokers(1, 2, 3)) == ((1, 2), (2, 3), (3, 1), (1, 3), (2, 1), (3, 2))
    assert place(3, 3, brokers(1, 2, 3)) == ((1, 2, 3), (2, 3, 1), (3, 1, 2))


def test_the_leaders_of_small_topics_get_different_seconds_too() -> None:
    placed: list[Replicas] = []
    for _ in range(6):
        counted = [
            Candidate(
                broker_id=n,
                leads=sum(r[0] == n for r in placed),
                replicas=sum(n in r for r in placed),
                second_counts=Counter(r[1] for r in placed if r[0] == n),
            )
            for n in (1, 2, 3)
        ]
        placed += place(1, 2, counted)
    assert sorted(placed) == [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)]


def test_added_partitions_go_on_where_the_topic_stopped() -> None:
    whole = place(6, 2, brokers(1, 2, 3))
    assert Counter(place(3, 2, brokers(1, 2, 3), whole[:3])) == Counter(whole[:3])
    assert place(1, 1, brokers(1, 2), ((1,), (1,), (2,))) == ((2,),)


def test_replicas_stand_in_different_racks_where_there_are_enough() -> None:
    for replicas in place(12, 2, at("a.1", "a.2", "b.3", "b.4")):
        assert len({"aabb"[broker_id - 1] for broker_id in replicas}) == 2


def test_with_too_few_racks_they_stand_on_different_hosts_inside() -> None:
    hosts = ("a.1", "a.1", "a.2", "b.3", "b.4")
    for replicas in place(20, 4, at(*hosts)):
        assert len({hosts[broker_id - 1] for broker_id in replicas}) == 4


def test_fenced_brokers_never_lead_and_come_last() -> None:
    half_dead = [Candidate(broker_id=1, alive=False), *brokers(2, 3)]
    assert place(2, 3, half_dead) == ((2, 3, 1), (3, 2, 1))


def test_a_substitute_takes_the_place_of_who_leaves_and_stands_apart() -> None:
    hosts = at("a.1", "b.2", "b.3", "c.4")
    assert substitute((1, 2), {2}, hosts) == (1, 3)
    assert substitute((1, 2), {1}, hosts) == (4, 2)
    assert substitute((2, 1), {1, 2}, hosts) == (3, 4)
    assert substitute((1, 2, 3), {1, 2}, hosts) is None


def test_a_substitute_lives_and_has_little() -> None:
    loaded = [
        Candidate(broker_id=1),
        Candidate(broker_id=2, alive=False),
        Candidate(broker_id=3, leads=1, replicas=1),
        Candidate(broker_id=4, leads=0, replicas=2),
    ]
    assert substitute((1, 2), {2}, loaded) == (1, 3)
    assert substitute((2, 1), {2}, loaded) == (4, 1)


def spread(counts: Iterable[int]) -> int:
    present = list(counts)
    return max(present) - min(present)


@given(
    st.integers(0, 60),
    st.dictionaries(st.integers(1, 9), st.integers(0, 9), min_size=1),
    st.integers(1, 4),
)
def test_leaders_are_even_and_replicas_nearly(
    partitions: int, load: dict[int, int], factor: int
) -> None:
    factor = min(factor, len(load))
    candidates = [Candidate(broker_id=n, leads=leads) for n, leads in load.items()]
    placed = place(partitions, factor, candidates)
    leads, copies = Counter(dict.fromkeys(load, 0)), Counter(dict.fromkeys(load, 0))
    leads.update(replicas[0] for replicas in placed)
    copies.update(broker_id for replicas in placed for broker_id in replicas)
    assert (leads.total(), copies.total()) == (partitions, partitions * factor)
    assert all(len(set(replicas)) == factor for replicas in placed)
    assert spread(leads.values()) <= 1
    assert spread(copies.values()) <= 3


@given(st.integers(2, 8), st.integers(2, 3))
def test_what_a_dead_leader_had_spreads_over_all_others(count: int, factor: int) -> None:
    factor = min(factor, count)
    placed = place(count * (count - 1), factor, brokers(*range(1, count + 1)))
    for broker_id in range(1, count + 1):
        heirs = Counter(dict.fromkeys(set(range(1, count + 1)) - {broker_id}, 0))
        heirs.update(replicas[1] for replicas in placed if replicas[0] == broker_id)
        assert spread(heirs.values()) <= 2


@given(
    st.lists(st.sampled_from(["a.1", "a.2", "b.3", "b.4", "c.5"]), min_size=3, max_size=9),
    st.integers(1, 3),
)
def test_domains_are_shared_only_where_there_are_too_few(hosts: list[str], factor: int) -> None:
    for level in (0, 1):
        names = [where.split(".")[0] if level == 0 else where for where in hosts]
        if len(set(names)) >= factor:
            for replicas in place(10, factor, at(*hosts)):
                assert len({names[broker_id - 1] for broker_id in replicas}) == factor
            break


def test_added_replicas_stand_apart_and_the_present_ones_stay() -> None:
    racks = at("a.1", "a.2", "b.3", "b.4")
    assert extend((1,), 3, racks, ()) == (1, 3, 2)
    assert extend((2, 1), 3, racks, ()) == (2, 1, 3)
    assert extend((1, 2, 3), 3, racks, ()) == (1, 2, 3)


def test_added_replicas_are_alive_and_go_where_the_topic_has_few() -> None:
    fenced = [Candidate(broker_id=2, alive=False), *brokers(1, 3, 4)]
    assert extend((1,), 2, fenced, ((1, 3), (1, 3))) == (4, 1)
    assert extend((2,), 2, fenced, ()) == (3, 2)


def test_the_leadership_of_a_topic_spreads_over_its_new_replicas() -> None:
    found: list[Replicas] = [(1,)] * 6
    for number in range(6):
        others = found[:number] + found[number + 1 :]
        found[number] = extend(found[number], 3, brokers(1, 2, 3), others)
    assert sorted(map(sorted, found)) == [[1, 2, 3]] * 6
    assert Counter(replicas[0] for replicas in found) == {1: 2, 2: 2, 3: 2}
