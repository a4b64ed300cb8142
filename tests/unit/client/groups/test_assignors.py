"""What every assignor promises, and what the single ones give."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.groups.assignors import (
    ASSIGNORS,
    Assignment,
    assign_range,
    assign_round_robin,
    assignors_named,
    is_cooperative,
)
from sparklog.client.groups.consumer_protocol import (
    Subscription,
    encode_sticky_user_data,
)
from sparklog.client.groups.sticky_assignors import assign_cooperative_sticky, assign_sticky
from sparklog.types import TopicPartition

Members = dict[str, Subscription]
Counts = dict[str, int]

counts_strategy = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 7), max_size=4)
members_strategy = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(6)]),
    st.frozensets(st.sampled_from("abcd"), max_size=4),
    min_size=1,
    max_size=6,
).map(lambda found: {name: Subscription(topics=tuple(sorted(t))) for name, t in found.items()})
alike_strategy = st.integers(1, 8).map(
    lambda n: {f"m{k}": Subscription(topics=("a", "b", "c", "d")) for k in range(n)}
)


def tps(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def check_owners(counts: Counts, members: Members, found: Assignment) -> None:
    """Each partition of a subscribed topic has exactly one owner, a subscriber."""
    subscribed = {topic for each in members.values() for topic in each.topics}
    expected = {TopicPartition(t, n) for t in counts if t in subscribed for n in range(counts[t])}
    given_out = [tp for each in found.values() for tp in each]
    assert sorted(given_out) == sorted(expected)
    assert found.keys() == members.keys()
    for member_id, partitions in found.items():
        assert {tp.topic for tp in partitions} <= set(members[member_id].topics)


def check_balance(members: Members, found: Assignment) -> None:
    """No partition could move to a member with two fewer."""
    loads = {member_id: len(partitions) for member_id, partitions in found.items()}
    for owner, partitions in found.items():
        for tp in partitions:
            for other, subscription in members.items():
                if tp.topic in subscription.topics:
                    assert loads[owner] <= loads[other] + 1


def with_claims(members: Members, held: Assignment, generation: int = 1) -> Members:
    """The same members, which say what they hold."""
    return {
        member_id: replace(
            each,
            owned=frozenset(held.get(member_id, ())),
            generation=generation if member_id in held else -1,
            user_data=encode_sticky_user_data(held[member_id], generation)
            if member_id in held
            else None,
        )
        for member_id, each in members.items()
    }


def moved(before: Assignment, after: Assignment) -> int:
    """How many partitions left a member that is still there."""
    return sum(len(set(held) - set(after[m])) for m, held in before.items() if m in after)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(counts=counts_strategy, members=members_strategy)
def test_each_partition_has_exactly_one_owner(name: str, counts: Counts, members: Members) -> None:
    check_owners(counts, members, ASSIGNORS[name].assign(counts, members))


@pytest.mark.parametrize("name", ["roundrobin", "sticky", "cooperative-sticky"])
@given(counts=counts_strategy, members=alike_strategy)
def test_members_alike_differ_by_one_at_most(name: str, counts: Counts, members: Members) -> None:
    loads = [len(each) for each in ASSIGNORS[name].assign(counts, members).values()]
    assert max(loads) - min(loads) <= 1


@given(counts=counts_strategy, members=alike_strategy)
def test_range_differs_by_one_at_most_per_topic(counts: Counts, members: Members) -> None:
    found = assign_range(counts, members)
    for topic in counts:
        loads = [sum(tp.topic == topic for tp in each) for each in found.values()]
        assert max(loads) - min(loads) <= 1


@given(counts=counts_strategy, members=members_strategy, data=st.data())
def test_sticky_is_balanced_whatever_members_hold(
    counts: Counts, members: Members, data: st.DataObject
) -> None:
    found = assign_sticky(counts, with_claims(members, drawn_claims(counts, members, data)))
    check_owners(counts, members, found)
    check_balance(members, found)


def drawn_claims(counts: Counts, members: Members, data: st.DataObject) -> Assignment:
    """Claims of any kind: of lost topics, of others' partitions, of partitions that are gone."""
    anything = st.builds(TopicPartition, st.sampled_from([*"abcd"]), st.integers(0, 8))
    return {m: data.draw(st.lists(anything, max_size=8, unique=True)) for m in members}


@given(counts=counts_strategy, members=members_strategy)
def test_a_sticky_assignment_stays_when_nothing_changes(counts: Counts, members: Members) -> None:
    for assign in (assign_sticky, assign_cooperative_sticky):
        first = assign(counts, members)
        assert assign(counts, with_claims(members, first)) == first


@given(counts=counts_strategy, members=alike_strategy)
def test_a_new_member_gets_its_share_and_no_other_partition_moves(
    counts: Counts, members: Members
) -> None:
    before = assign_sticky(counts, members)
    joined = {**members, "new": Subscription(topics=("a", "b", "c", "d"))}
    after = assign_sticky(counts, with_claims(joined, before))
    check_balance(joined, after)
    assert moved(before, after) == len(after["new"])


@given(counts=counts_strategy, members=alike_strategy)
def test_when_a_member_leaves_only_its_partitions_move(counts: Counts, members: Members) -> None:
    before = assign_sticky(counts, members)
    left = {m: each for m, each in members.items() if m != "m0"}
    if left:
        after = assign_sticky(counts, with_claims(left, before))
        assert moved(before, after) == 0
        check_owners(counts, left, after)


@given(counts=counts_strategy, members=members_strategy, data=st.data())
def test_cooperative_sticky_gives_nothing_that_another_member_holds(
    counts: Counts, members: Members, data: st.DataObject
) -> None:
    holders = st.sampled_from(sorted(members))
    held: Assignment = {m: [] for m in members}
    for topic in sorted(counts):
        for number in range(counts[topic]):
            held[data.draw(holders)].append(TopicPartition(topic, number))
    claims = with_claims(members, held)
    found = assign_cooperative_sticky(counts, claims)
    owner = {tp: m for m, partitions in held.items() for tp in partitions}
    for member_id, partitions in found.items():
        assert all(owner[tp] == member_id for tp in partitions)
    # The next round gives the rest: every partition has one owner, balanced.
    second = assign_cooperative_sticky(counts, with_claims(members, found, 2))
    check_owners(counts, members, second)
    check_balance(members, second)
    assert moved(found, second) == 0


def test_a_claim_of_a_newer_generation_wins() -> None:
    held = {
        "old": Subscription(topics=("a",), user_data=encode_sticky_user_data(tps("a", 0), 1)),
        "young": Subscription(topics=("a",), user_data=encode_sticky_user_data(tps("a", 0), 2)),
    }
    assert assign_sticky({"a": 2}, held) == {"old": tps("a", 1), "young": tps("a", 0)}


def test_range_gives_each_topic_by_itself() -> None:
    members = {m: Subscription(topics=("a", "b")) for m in ("m1", "m0")}
    assert assign_range({"a": 3, "b": 3}, members) == {
        "m0": tps("a", 0, 1) + tps("b", 0, 1),
        "m1": tps("a", 2) + tps("b", 2),
    }


def test_round_robin_passes_over_members_without_the_topic() -> None:
    members = {
        "m0": Subscription(topics=("a",)),
        "m1": Subscription(topics=("a", "b")),
        "m2": Subscription(topics=("a", "b", "c")),
    }
    assert assign_round_robin({"a": 1, "b": 2, "c": 3}, members) == {
        "m0": tps("a", 0),
        "m1": tps("b", 0),
        "m2": tps("b", 1) + tps("c", 0, 1, 2),
    }


def test_static_members_keep_their_place_under_a_new_member_id() -> None:
    def member(instance: str) -> Subscription:
        return Subscription(topics=("a",), group_instance_id=instance)

    before = assign_range({"a": 3}, {"m9": member("i0"), "m8": member("i1")})
    after = assign_range({"a": 3}, {"m1": member("i0"), "m8": member("i1")})
    assert (before["m9"], before["m8"]) == (after["m1"], after["m8"])


def test_topics_that_do_not_exist_have_no_partitions() -> None:
    for assignor in ASSIGNORS.values():
        assert assignor.assign({}, {"m": Subscription(topics=("gone",))}) == {"m": []}


def test_assignors_are_named_as_on_the_wire() -> None:
    names = ("range", "roundrobin", "sticky", "cooperative-sticky")
    assert tuple(ASSIGNORS) == names
    assert tuple(each.name for each in assignors_named(names)) == names
    with pytest.raises(ValueError, match="'fair' is not an assignor: choose from range"):
        assignors_named(["range", "fair"])
    with pytest.raises(ValueError, match="an assignor is missing"):
        assignors_named([])


def test_members_cooperate_when_all_their_assignors_do() -> None:
    assert is_cooperative(assignors_named(["cooperative-sticky"]))
    assert not is_cooperative(assignors_named(["range", "cooperative-sticky"]))


def test_a_large_group_is_balanced() -> None:
    members = {f"m{n}": Subscription(topics=("a",)) for n in range(50)}
    before = assign_sticky({"a": 1000}, members)
    held = with_claims({**members, "new": Subscription(topics=("a",))}, before)
    loads = Counter(len(each) for each in assign_sticky({"a": 1000}, held).values())
    assert loads == {20: 31, 19: 20}
