"""One partition with several replicas: who may lead after each loss (KIP-966)."""

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.driver.controller.elections import (
    Loss,
    Settled,
    broker_left,
    new_partition,
    settle,
)
from sparklog.metadata import ClusterImage, PartitionImage, TopicImage

THREE = PartitionImage(replicas=(1, 2, 3), isr=(1, 2, 3), last_known=(1, 2, 3), leader=1)


def alive(*brokers: int) -> Callable[[int], bool]:
    return lambda broker_id: broker_id in brokers


def test_a_new_partition_is_led_by_its_first_living_replica() -> None:
    assert new_partition((3, 1, 2), alive(1, 2)) == PartitionImage(
        replicas=(3, 1, 2), isr=(1, 2), last_known=(1, 2), leader=1
    )


def test_another_isr_member_takes_over() -> None:
    assert broker_left(THREE, 1, Loss.NONE, min_isr=2, is_alive=alive(2, 3)) == Settled(
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
    two = broker_left(THREE, 1, Loss.NONE, min_isr=2, is_alive=alive(2, 3)).state
    one = broker_left(two, 2, Loss.NONE, min_isr=2, is_alive=alive(3)).state
    none = broker_left(one, 3, Loss.NONE, min_isr=2, is_alive=alive()).state
    assert [(s.isr, s.eligible, s.last_known, s.leader) for s in (two, one, none)] == [
        ((2, 3), (), (2, 3), 2),
        ((3,), (2,), (2, 3), 3),
        ((), (2, 3), (2, 3), -1),
    ]
    back = settle(none, min_isr=2, is_alive=alive(2)).state
    assert (back.isr, back.eligible, back.leader) == ((2,), (3,), 2)


def test_an_unclean_replica_is_not_elected_while_a_clean_one_may_return() -> None:
    none = PartitionImage(replicas=(1, 2), isr=(), eligible=(1, 2), last_known=(1, 2))
    unclean = broker_left(none, 1, Loss.TAIL, min_isr=2, is_alive=alive(1))
    assert (unclean.state.eligible, unclean.state.leader, unclean.unclean) == ((2,), -1, False)


def test_two_unclean_candidates_are_not_chosen_between_without_their_logs() -> None:
    none = PartitionImage(replicas=(1, 2), isr=(), eligible=(1, 2), last_known=(1, 2))
    first = broker_left(none, 1, Loss.TAIL, min_isr=2, is_alive=alive(1, 2)).state
    both = broker_left(
        PartitionImage(replicas=(1, 2), isr=(), eligible=(2,), last_known=(1, 2)),
        2,
        Loss.TAIL,
        min_isr=2,
        is_alive=alive(1, 2),
    )
    assert first.leader == 2
    assert (both.state.leader, both.state.last_known, both.unclean) == (-1, (1, 2), False)


def test_a_clean_process_in_the_leaders_place_leads_at_a_new_epoch() -> None:
    again = broker_left(THREE, 1, Loss.NONE, min_isr=1, is_alive=alive(1, 2, 3)).state
    assert (again.isr, again.leader, again.leader_epoch) == ((1, 2, 3), 1, 1)


def test_nothing_to_settle_changes_no_epoch() -> None:
    assert settle(THREE, min_isr=2, is_alive=alive(1, 2, 3)) == Settled(state=THREE)


@given(st.data())
def test_epochs_only_rise_and_the_invariants_hold(data: st.DataObject) -> None:
    replicas = data.draw(st.permutations([1, 2, 3]))
    living = set(replicas)
    min_isr = data.draw(st.integers(1, 3))
    state = new_partition(replicas, living.__contains__)
    for _ in range(data.draw(st.integers(1, 12))):
        before = state
        broker_id = data.draw(st.sampled_from(replicas))
        step = data.draw(st.sampled_from(["leave", "return", *Loss]))
        if step == "leave":
            living.discard(broker_id)
            settled = broker_left(
                state, broker_id, Loss.NONE, min_isr=min_isr, is_alive=living.__contains__
            )
        elif step == "return":
            living.add(broker_id)
            settled = settle(state, min_isr=min_isr, is_alive=living.__contains__)
        else:
            assert isinstance(step, Loss)
            living.add(broker_id)
            settled = broker_left(
                state, broker_id, step, min_isr=min_isr, is_alive=living.__contains__
            )
        state = settled.state
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
