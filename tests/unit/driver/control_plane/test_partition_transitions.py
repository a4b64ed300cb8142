"""One partition with several replicas: which of them may lead after each loss (KIP-966)."""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.driver.control_plane.controller.partition_transitions import (
    LogSurvival,
    Rules,
    Transition,
    broker_stops,
    brokers_left,
    complete_transition,
    could_hand_over,
    elect_preferred,
    elect_unclean,
    isr_changed,
    new_partition,
    replica_failed,
)
from sparklog.metadata import ClusterImage, PartitionImage, TopicImage

THREE = PartitionImage(replicas=(1, 2, 3), isr=(1, 2, 3), last_known=(1, 2, 3), leader=1)
SINGLE = PartitionImage(replicas=(1,), isr=(1,), last_known=(1,), leader=1)


def alive(*brokers: int) -> Callable[[int], bool]:
    return lambda broker_id: broker_id in brokers


def rules(
    min_isr: int, *living: int, in_controlled_shutdown: frozenset[int] = frozenset()
) -> Rules:
    return Rules(
        min_isr=min_isr, is_alive=alive(*living), in_controlled_shutdown=in_controlled_shutdown
    )


def left(
    before: PartitionImage, gone: int | tuple[int, ...], survival: LogSurvival, rules: Rules
) -> PartitionImage:
    """Brokers leave; asserts that no unclean recovery follows."""
    transition = brokers_left(before, (gone,) if isinstance(gone, int) else gone, survival, rules)
    assert not transition.unclean
    return transition.state


def test_a_new_partition_is_led_by_its_first_living_replica() -> None:
    assert new_partition((3, 1, 2), alive(1, 2)) == PartitionImage(
        replicas=(3, 1, 2), isr=(1, 2), last_known=(1, 2), leader=1
    )


def test_another_isr_member_takes_over() -> None:
    assert brokers_left(THREE, (1,), LogSurvival.WHOLE, rules(2, 2, 3)) == Transition(
        state=PartitionImage(
            replicas=(1, 2, 3),
            isr=(2, 3),
            last_known=(2, 3),
            leader=2,
            leader_epoch=1,
            partition_epoch=1,
        )
    )


def test_below_min_insync_replicas_who_leaves_stays_eligible() -> None:
    two = left(THREE, 1, LogSurvival.WHOLE, rules(2, 2, 3))
    one = left(two, 2, LogSurvival.WHOLE, rules(2, 3))
    none = left(one, 3, LogSurvival.WHOLE, rules(2))
    assert [(s.isr, s.eligible, s.last_known, s.leader) for s in (two, one, none)] == [
        ((2, 3), (), (2, 3), 2),
        ((3,), (2,), (2, 3), 3),
        ((), (2, 3), (2, 3), -1),
    ]
    back = complete_transition(none, rules(2, 2)).state
    assert (back.isr, back.eligible, back.leader) == ((2,), (3,), 2)


def test_all_that_leave_at_once_have_the_same_log_and_stay_eligible() -> None:
    at_once = left(THREE, (1, 2), LogSurvival.WHOLE, rules(2, 3))
    assert at_once == replace(
        THREE, isr=(3,), eligible=(1, 2), leader=3, leader_epoch=1, partition_epoch=1
    )
    assert left(THREE, (1, 2, 3), LogSurvival.WHOLE, rules(1)) == replace(
        THREE, isr=(), eligible=(1, 2, 3), leader=-1, leader_epoch=1, partition_epoch=1
    )


def test_the_isr_that_is_back_at_its_size_ends_who_was_eligible() -> None:
    one = replace(THREE, isr=(3,), eligible=(1, 2), leader=3)
    assert isr_changed(one, (1, 3), rules(2, 1, 3)) == Transition(
        state=replace(one, isr=(1, 3), eligible=(), last_known=(1, 3), partition_epoch=1)
    )
    assert isr_changed(one, (1, 3), rules(3, 1, 3)) == Transition(
        state=replace(one, isr=(1, 3), eligible=(2,), partition_epoch=1)
    )


def test_whom_the_leader_puts_out_stays_eligible_when_the_isr_is_too_small() -> None:
    assert isr_changed(THREE, (1, 3), rules(2, 1, 2, 3)).state == replace(
        THREE, isr=(1, 3), last_known=(1, 3), partition_epoch=1
    )
    assert isr_changed(THREE, (1,), rules(2, 1, 2, 3)).state == replace(
        THREE, isr=(1,), eligible=(2, 3), partition_epoch=1
    )
    assert isr_changed(THREE, (1,), rules(1, 1, 2, 3)).state == replace(
        THREE, isr=(1,), last_known=(1,), partition_epoch=1
    )
    assert isr_changed(THREE, (3, 2, 1), rules(2, 1, 2, 3)).state == THREE


def test_more_replicas_are_never_required_than_there_are() -> None:
    moving = replace(SINGLE, replicas=(2, 1), adding=(2,), removing=(1,))
    assert [s.required_isr(2) for s in (SINGLE, moving, THREE)] == [1, 1, 2]
    assert THREE.required_isr(9) == 3


def test_an_unclean_replica_is_not_elected_while_a_clean_one_may_return() -> None:
    none = PartitionImage(replicas=(1, 2), isr=(), eligible=(1, 2), last_known=(1, 2))
    unclean = left(none, 1, LogSurvival.HEAD, rules(2, 1))
    assert (unclean.eligible, unclean.leader) == ((2,), -1)


def test_two_unclean_candidates_are_not_chosen_between_without_their_logs() -> None:
    none = PartitionImage(replicas=(1, 2), isr=(), eligible=(1, 2), last_known=(1, 2))
    first = left(none, 1, LogSurvival.HEAD, rules(2, 1, 2))
    waits = PartitionImage(replicas=(1, 2), isr=(), eligible=(2,), last_known=(1, 2))
    both = left(waits, 2, LogSurvival.HEAD, rules(2, 1, 2))
    assert first.leader == 2
    assert (both.leader, both.last_known) == (-1, (1, 2))
    assert elect_unclean(both, 2, rules(2, 1, 2)) == Transition(
        state=replace(both, isr=(2,), last_known=(2,), leader=2, leader_epoch=1, partition_epoch=2),
        unclean=True,
    )


def test_who_stopped_uncleanly_is_waited_for_until_the_isr_is_back_at_its_size() -> None:
    """Nothing was acknowledged meanwhile: the log of 2 may have entries that 1 loses (issue 5)."""
    pair = PartitionImage(replicas=(1, 2), isr=(1, 2), last_known=(1, 2), leader=1)
    alone = left(pair, 2, LogSurvival.WHOLE, rules(2, 1))
    caught_up_not_yet = left(alone, 2, LogSurvival.HEAD, rules(2, 1, 2))
    assert (caught_up_not_yet.isr, caught_up_not_yet.eligible) == ((1,), ())
    assert caught_up_not_yet.last_known == (1, 2)
    both_unclean = left(caught_up_not_yet, 1, LogSurvival.HEAD, rules(2, 1, 2))
    assert (both_unclean.leader, both_unclean.last_known) == (-1, (1, 2))
    back = isr_changed(caught_up_not_yet, (1, 2), rules(2, 1, 2)).state
    assert left(back, 2, LogSurvival.HEAD, rules(1, 1, 2)).last_known == (1,)


def test_the_only_one_that_knew_everything_leads_again_with_what_it_has() -> None:
    assert brokers_left(SINGLE, (1,), LogSurvival.HEAD, rules(1, 1)) == Transition(
        state=replace(SINGLE, leader_epoch=1, partition_epoch=1), unclean=True
    )


def test_a_new_directory_holds_nothing_and_is_not_waited_for() -> None:
    none = PartitionImage(replicas=(1, 2), isr=(), eligible=(1, 2), last_known=(1, 2))
    emptied = left(none, 1, LogSurvival.NOTHING, rules(2, 1))
    assert emptied == replace(none, eligible=(2,), last_known=(2,), partition_epoch=1)
    assert left(emptied, 2, LogSurvival.NOTHING, rules(2, 1, 2)) == replace(
        emptied, eligible=(), last_known=(), partition_epoch=2
    )


def test_a_clean_process_in_the_leaders_place_leads_at_a_new_epoch() -> None:
    again = left(THREE, 1, LogSurvival.WHOLE, rules(1, 1, 2, 3))
    assert again == replace(THREE, leader_epoch=1, partition_epoch=1)
    assert left(THREE, 2, LogSurvival.WHOLE, rules(1, 1, 2, 3)) == THREE


def test_nothing_to_complete_changes_no_epoch() -> None:
    assert complete_transition(THREE, rules(2, 1, 2, 3)) == Transition(state=THREE)


def test_a_replica_whose_log_does_not_work_gives_way_to_others() -> None:
    everybody = rules(2, 1, 2, 3)
    assert replica_failed(THREE, 1, everybody).state == replace(
        THREE, isr=(2, 3), last_known=(2, 3), leader=2, leader_epoch=1, partition_epoch=1
    )
    assert replica_failed(THREE, 3, everybody).state == replace(
        THREE, isr=(1, 2), last_known=(1, 2), partition_epoch=1
    )
    small = replace(THREE, isr=(1, 2), last_known=(1, 2))
    failed = replica_failed(small, 1, everybody).state
    assert (failed.isr, failed.eligible, failed.leader) == ((2,), (), 2)
    assert replica_failed(failed, 1, everybody).state == failed


def test_where_nobody_else_can_lead_it_keeps_the_lead() -> None:
    alone = replace(THREE, isr=(1,), last_known=(1,))
    everybody = rules(1, 1, 2, 3)
    assert replica_failed(alone, 1, everybody).state == alone
    assert replica_failed(SINGLE, 1, everybody).state == SINGLE
    given_up = replica_failed(alone, 1, replace(everybody, unclean=True)).state
    assert (given_up.isr, given_up.leader, given_up.last_known) == ((), -1, (1,))
    eligible = replace(alone, eligible=(3,), last_known=(1, 3))
    taken_over = replica_failed(eligible, 1, rules(2, 1, 2, 3)).state
    assert (taken_over.isr, taken_over.leader) == ((3,), 3)


# -- stopping and preferred leaders


def test_a_broker_that_stops_hands_over_and_leaves_the_isr() -> None:
    stopping = rules(2, 1, 2, 3, in_controlled_shutdown=frozenset({1}))
    assert broker_stops(THREE, 1, stopping).state == replace(
        THREE, isr=(2, 3), last_known=(2, 3), leader=2, leader_epoch=1, partition_epoch=1
    )
    assert broker_stops(
        THREE, 3, replace(stopping, in_controlled_shutdown=frozenset({3}))
    ).state == replace(THREE, isr=(1, 2), last_known=(1, 2), partition_epoch=1)
    two = replace(THREE, isr=(1, 2), last_known=(1, 2))
    assert broker_stops(two, 1, stopping).state == replace(
        two, isr=(2,), eligible=(1,), leader=2, leader_epoch=1, partition_epoch=1
    )


def test_it_keeps_what_nobody_else_could_lead() -> None:
    alone = replace(THREE, isr=(1,), last_known=(1,))
    assert (
        broker_stops(alone, 1, rules(1, 1, 2, 3, in_controlled_shutdown=frozenset({1}))).state
        == alone
    )
    assert could_hand_over(alone, 1, rules(1, 1, 2, 3, in_controlled_shutdown=frozenset({1})))
    assert not could_hand_over(
        alone, 1, rules(1, 1, 2, 3, in_controlled_shutdown=frozenset({1, 2, 3}))
    )
    assert not could_hand_over(alone, 1, rules(1, 1))
    all_stop = rules(1, 1, 2, 3, in_controlled_shutdown=frozenset({1, 2, 3}))
    assert broker_stops(THREE, 1, all_stop).state == THREE


def test_a_stopping_broker_is_elected_only_when_there_is_no_other() -> None:
    stopping = frozenset({2})
    assert (
        left(THREE, 1, LogSurvival.WHOLE, rules(1, 2, 3, in_controlled_shutdown=stopping)).leader
        == 3
    )
    assert (
        left(THREE, (1, 3), LogSurvival.WHOLE, rules(1, 2, in_controlled_shutdown=stopping)).leader
        == 2
    )


def test_the_first_replica_is_preferred_when_it_is_in_sync() -> None:
    led_by_2 = replace(THREE, leader=2)
    assert elect_preferred(led_by_2, rules(2, 1, 2, 3)).state == replace(
        THREE, leader_epoch=1, partition_epoch=1
    )
    out = replace(led_by_2, isr=(2, 3))
    stopping = rules(2, 1, 2, 3, in_controlled_shutdown=frozenset({1}))
    assert elect_preferred(out, rules(2, 1, 2, 3)).state == out
    assert elect_preferred(led_by_2, stopping).state == led_by_2
    assert elect_preferred(THREE, rules(2, 1, 2, 3)).state == THREE


# -- reassignments

MOVING = PartitionImage(
    replicas=(4, 5, 1, 2, 3),
    isr=(1, 2, 3),
    last_known=(1, 2, 3),
    adding=(4, 5),
    removing=(2, 3),
    leader=2,
)


def test_a_reassignment_is_complete_when_all_that_it_adds_are_in_sync() -> None:
    everybody = rules(2, 1, 2, 3, 4, 5)
    half = isr_changed(MOVING, (1, 2, 3, 4), everybody).state
    assert half == replace(MOVING, isr=(4, 1, 2, 3), last_known=(1, 2, 3, 4), partition_epoch=1)
    assert isr_changed(half, (1, 2, 3, 4, 5), everybody).state == PartitionImage(
        replicas=(4, 5, 1),
        isr=(4, 5, 1),
        last_known=(1, 4, 5),
        leader=4,
        leader_epoch=1,
        partition_epoch=2,
    )


def test_it_waits_until_what_remains_is_as_large_as_it_has_to_be() -> None:
    shrinking = replace(THREE, isr=(2, 3), last_known=(2, 3), removing=(2,), leader=2)
    assert complete_transition(shrinking, rules(2, 1, 2, 3)).state == shrinking
    assert complete_transition(shrinking, rules(1, 1, 2, 3)).state == PartitionImage(
        replicas=(1, 3), isr=(3,), last_known=(3,), leader=3, leader_epoch=1, partition_epoch=1
    )
    only = replace(shrinking, removing=(2, 3))
    assert complete_transition(only, rules(1, 1, 2, 3)).state == only


def test_what_remains_of_a_dead_replica_does_not_hold_it_up() -> None:
    moving = PartitionImage(
        replicas=(4, 1, 2),
        isr=(4, 1),
        eligible=(2,),
        last_known=(1, 2, 4),
        adding=(4,),
        removing=(2,),
        leader=1,
    )
    assert complete_transition(moving, rules(2, 1, 4)).state == PartitionImage(
        replicas=(4, 1),
        isr=(4, 1),
        last_known=(1, 4),
        leader=1,
        leader_epoch=1,
        partition_epoch=1,
    )


# -- every history


@given(st.data())
def test_epochs_only_rise_and_the_invariants_hold(data: st.DataObject) -> None:
    replicas = data.draw(st.permutations([1, 2, 3]))
    living = set(replicas)
    min_isr = data.draw(st.integers(1, 3))
    present = Rules(min_isr=min_isr, is_alive=living.__contains__)
    state = new_partition(replicas, living.__contains__)
    for _ in range(data.draw(st.integers(1, 12))):
        before = state
        broker_id = data.draw(st.sampled_from(replicas))
        step = data.draw(st.sampled_from(["leave", "return", *LogSurvival]))
        if step == "leave":
            living.discard(broker_id)
            transition = brokers_left(state, (broker_id,), LogSurvival.WHOLE, present)
        elif step == "return":
            living.add(broker_id)
            transition = complete_transition(state, present)
        else:
            assert isinstance(step, LogSurvival)
            living.add(broker_id)
            transition = brokers_left(state, (broker_id,), step, present)
        state = transition.state
        assert state.leader_epoch >= before.leader_epoch
        assert (state.leader_epoch > before.leader_epoch) or state.leader == before.leader
        assert (state.partition_epoch > before.partition_epoch) == (state != before)
        assert state.offline or state.leader in living
        check(state)


def check(state: PartitionImage) -> None:
    topic = TopicImage("t", UUID(int=1), {0: state})
    image = ClusterImage(topics={"t": topic}, topics_by_id={topic.topic_id: topic})
    image.check_invariants()


def test_a_partition_needs_a_living_replica_to_begin_with() -> None:
    with pytest.raises(AssertionError):
        new_partition((1,), alive())
