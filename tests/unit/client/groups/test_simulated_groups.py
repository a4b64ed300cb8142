"""Groups of members in every order of messages: who owns what, and what moves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import ErrorCode
from sparklog.types import TopicPartition
from tests.unit.client.groups.simulated_group import POLL_S, SESSION_S, SimulatedGroup

ASSIGNORS = [("range",), ("roundrobin",), ("sticky",), ("cooperative-sticky",)]
EAGER_AND_COOPERATIVE = [("sticky",), ("cooperative-sticky",)]


def check_owners(group: SimulatedGroup) -> None:
    """Each partition has exactly one owner, and the members know what their applications hold."""
    wanted: set[str] = set()
    held: list[TopicPartition] = []
    for each in group.applications.values():
        wanted |= each.membership._topics or set()
        held += each.held
        assert each.held == each.membership.owned
        assert each.failure is None
    expected = [TopicPartition(t, n) for t in sorted(wanted) for n in range(group.counts.get(t, 0))]
    assert sorted(held) == expected


def check_balance(group: SimulatedGroup) -> None:
    loads = [len(each.held) for each in group.applications.values()]
    assert max(loads) - min(loads) <= 1


@pytest.mark.parametrize("assignors", ASSIGNORS)
@given(data=st.data())
@settings(max_examples=40)
def test_members_come_and_go_in_any_order_of_messages(
    assignors: tuple[str, ...], data: st.DataObject
) -> None:
    group = SimulatedGroup({"a": 5, "b": 3}, *assignors)
    names = [f"m{n}" for n in range(4)]
    for _ in range(data.draw(st.integers(1, 12))):
        present = [name for name in names if name in group.applications]
        match data.draw(st.sampled_from(["add", "leave", "change", "grow", "step", "refuse"])):
            case "add" if len(present) < len(names):
                new = next(name for name in names if name not in present)
                group.add(new, data.draw(st.sampled_from([{"a"}, {"a", "b"}])))
            case "leave" if present:
                group.subscribe(data.draw(st.sampled_from(present)), None)
            case "change" if present:
                name = data.draw(st.sampled_from(present))
                group.subscribe(name, data.draw(st.sampled_from([{"a"}, {"b"}, {"a", "b"}])))
            case "grow":
                group.grow("a", group.counts["a"] + 1)
            case "refuse":
                codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
                group.coordinator.refusals.append(data.draw(st.sampled_from(codes)))
        for number in data.draw(st.lists(st.integers(0, 9), max_size=15)):
            if group.steps:
                group.take_step(number)
            if number == 9:
                group.pass_time(1.0)
    group.settle()
    group.grow("a", group.counts["a"])  # a leader hears of topics that grew while it joined
    group.settle()
    check_owners(group)
    assert group.overlaps == []


@pytest.mark.parametrize("assignors", EAGER_AND_COOPERATIVE)
@given(data=st.data())
@settings(max_examples=40)
def test_members_crash_in_any_order_of_messages(
    assignors: tuple[str, ...], data: st.DataObject
) -> None:
    group = SimulatedGroup({"a": 7}, *assignors)
    for n in range(3):
        group.add(f"m{n}", {"a"})
    for number in data.draw(st.lists(st.integers(0, 9), max_size=40)):
        if group.steps:
            group.take_step(number)
        if number == 9:
            group.pass_time(1.0)
    group.crash(data.draw(st.sampled_from(["m0", "m1", "m2"])))
    group.settle()
    check_owners(group)
    check_balance(group)


@pytest.mark.parametrize("assignors", EAGER_AND_COOPERATIVE)
def test_a_new_member_gets_only_its_share_from_the_others(assignors: tuple[str, ...]) -> None:
    group = SimulatedGroup({"a": 12}, *assignors)
    for n in range(3):
        group.add(f"m{n}", {"a"})
    group.settle()
    before = {name: set(each.held) for name, each in group.applications.items()}
    group.moves = 0
    group.add("m3", {"a"})
    group.settle()
    check_owners(group)
    check_balance(group)
    kept = sum(len(before[n] & group.applications[n].held) for n in before)
    assert kept == 9
    assert group.overlaps == []
    # Eager members give up everything meanwhile; cooperative members only what moves.
    assert group.moves == (12 if assignors == ("sticky",) else 3)


def test_a_member_that_does_not_poll_loses_its_partitions_until_it_polls_again() -> None:
    group = SimulatedGroup({"a": 4}, "cooperative-sticky")
    group.add("m0", {"a"})
    group.add("m1", {"a"})
    group.settle()
    idle = group.applications["m0"]
    idle.polls = False
    for _ in range(int(POLL_S) + 5):
        group.pass_time(1.0)
        group.finish_steps()
    assert len(group.applications["m1"].held) == 4
    idle.polls = True
    group.settle()
    check_owners(group)
    check_balance(group)


def test_a_member_whose_session_expired_loses_its_partitions_and_joins_again() -> None:
    group = SimulatedGroup({"a": 4}, "cooperative-sticky")
    group.add("m0", {"a"})
    group.settle()
    group.coordinator.seats.clear()  # as if no heartbeat had arrived for a session timeout
    generation = group.coordinator.generation
    group.settle()
    check_owners(group)
    assert group.coordinator.generation > generation


def test_members_with_eager_and_both_assignors_share_a_group() -> None:
    """The first of the two rounds in which a group becomes cooperative (KIP-429)."""
    group = SimulatedGroup({"a": 4})
    group.add("old", {"a"}, "range")
    group.settle()
    group.add("new", {"a"}, "cooperative-sticky", "range")
    group.settle()
    check_owners(group)
    check_balance(group)
    assert group.coordinator.protocol == "range"
    assert group.overlaps == []


def test_a_settled_group_stays_as_it_is() -> None:
    group = SimulatedGroup({"a": 4, "b": 4}, "range", "cooperative-sticky")
    for n in range(3):
        group.add(f"m{n}", {"a", "b"})
    group.settle()
    generation = group.coordinator.generation
    for _ in range(int(10 * SESSION_S)):
        group.pass_time(1.0)
        group.finish_steps()
    assert group.coordinator.generation == generation
    check_owners(group)
