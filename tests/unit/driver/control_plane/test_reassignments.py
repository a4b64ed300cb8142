"""Reassignments: begun, completed by the ISR, replaced, cancelled, refused (KIP-455)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.driver.control_plane.controller.partition_transitions import (
    LogSurvival,
    Rules,
    brokers_left,
    isr_changed,
)
from sparklog.driver.control_plane.controller.reassignments import (
    begin_reassignment,
    cancel_reassignment,
)
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import BrokerDraining, PartitionChanged, PartitionImage
from sparklog.types import NO_NODE
from sparklog.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from sparklog.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest, partition

ON_1_2 = PartitionImage(replicas=(1, 2), isr=(1, 2), last_known=(1, 2), leader=1)


def moving(*wanted: tuple[int, tuple[int, ...] | None], **more: Any) -> Any:
    """A request to reassign partitions of topic ``a``."""
    parts = tuple(
        ReassignablePartition(partition_index=number, replicas=replicas)
        for number, replicas in wanted
    )
    topics = (ReassignableTopic(name="a", partitions=parts),)
    return AlterPartitionReassignmentsRequest(topics=topics, **more)


def brokers(count: int = 4, *partitions: PartitionImage, **settings: str) -> ControllerUnderTest:
    under_test = ControllerUnderTest()
    under_test.register_all(count)
    under_test.place("a", *(partitions or (ON_1_2,)), **settings)
    return under_test


def answers(under_test: ControllerUnderTest, request: Any) -> list[tuple[int, str | None]]:
    response = under_test.handle(request).response
    assert isinstance(response, AlterPartitionReassignmentsResponse)
    return [
        (part.error_code, part.error_message)
        for topic in response.responses
        for part in topic.partitions
    ]


def refused(under_test: ControllerUnderTest, request: Any) -> tuple[int, str | None]:
    before = under_test.image.copy()
    (answer,) = answers(under_test, request)
    assert under_test.image == before
    return answer


def propose(under_test: ControllerUnderTest, *isr: int) -> ErrorCode:
    """The leader of a-0 proposes an ISR.  Returns the new state."""
    state = under_test.state("a")
    topic = under_test.image.topics["a"]
    proposal = PartitionData(
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        new_isr_with_epochs=tuple(
            BrokerState(broker_id=b, broker_epoch=under_test.epoch_of(b)) for b in isr
        ),
    )
    response = under_test.handle(
        AlterPartitionRequest(
            broker_id=state.leader,
            broker_epoch=under_test.epoch_of(state.leader),
            topics=(TopicData(topic_id=topic.topic_id, partitions=(proposal,)),),
        )
    ).response
    assert isinstance(response, AlterPartitionResponse)
    return ErrorCode(response.topics[0].partitions[0].error_code)


# -- begin and end


def test_a_partition_has_its_old_and_its_new_replicas_until_the_new_are_in_sync() -> None:
    under_test = brokers()
    decision = under_test.handle(moving((0, (3, 4))))
    both = PartitionImage(
        replicas=(3, 4, 1, 2),
        isr=(1, 2),
        last_known=(1, 2),
        adding=(3, 4),
        removing=(1, 2),
        leader=1,
        partition_epoch=1,
    )
    assert decision.records == (PartitionChanged(topic="a", partition=0, state=both),)
    assert propose(under_test, 1, 2, 3) is ErrorCode.NONE
    assert under_test.state("a").adding == (3, 4)
    assert propose(under_test, 1, 2, 3, 4) is ErrorCode.NEW_LEADER_ELECTED
    assert under_test.state("a") == PartitionImage(
        replicas=(3, 4), isr=(3, 4), last_known=(3, 4), leader=3, leader_epoch=1, partition_epoch=3
    )


def test_a_leader_that_stays_leads_at_a_new_epoch_once_replicas_went() -> None:
    under_test = brokers()
    under_test.handle(moving((0, (1, 3))))
    assert propose(under_test, 1, 2, 3) is ErrorCode.NEW_LEADER_ELECTED
    after = under_test.state("a")
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((1, 3), (1, 3), 1, 1)


def test_more_replicas_are_added_without_a_new_epoch() -> None:
    under_test = brokers()
    under_test.handle(moving((0, (1, 2, 3))))
    assert propose(under_test, 1, 2, 3) is ErrorCode.NONE
    after = under_test.state("a")
    assert (after.replicas, after.adding, after.leader_epoch) == ((1, 2, 3), (), 0)


def test_fewer_replicas_and_another_order_need_no_wait() -> None:
    under_test = brokers()
    under_test.handle(moving((0, (2, 1))))
    assert under_test.state("a") == PartitionImage(
        replicas=(2, 1), isr=(1, 2), last_known=(1, 2), leader=1, partition_epoch=1
    )
    under_test.handle(moving((0, (2,))))
    assert under_test.state("a") == PartitionImage(
        replicas=(2,), isr=(2,), last_known=(2,), leader=2, leader_epoch=1, partition_epoch=2
    )


def test_no_broker_that_is_about_to_stop_leads_when_the_leader_goes() -> None:
    under_test = ControllerUnderTest()
    under_test.register_all(3)
    under_test.heartbeat(1, wants_stop=True)
    under_test.place("a", partition(1, 2, 3, leader=3))
    assert answers(under_test, moving((0, (1, 2)))) == [(0, None)]
    assert (under_test.state("a").replicas, under_test.leaders()) == ((1, 2), {"a-0": 2})


def test_where_replicas_are_already_nothing_changes() -> None:
    under_test = brokers()
    assert under_test.handle(moving((0, (1, 2)))).records == ()


def test_replicas_that_hold_records_stay_until_enough_others_are_in_sync() -> None:
    one_of_two = PartitionImage(replicas=(1, 2), isr=(1, 2), last_known=(1, 2), leader=1)
    under_test = brokers(4, one_of_two, min_insync_replicas="2")
    under_test.heartbeat(2, has_stopped=True)
    under_test.handle(moving((0, (2, 3))))
    assert propose(under_test, 1, 3) is ErrorCode.NONE
    assert under_test.state("a").removing == (1,)
    under_test.register(2, clean_stop=True)
    assert propose(under_test, 1, 2, 3) is ErrorCode.NEW_LEADER_ELECTED
    assert under_test.state("a").replicas == (2, 3)


def test_many_partitions_move_in_one_commit_and_one_by_one() -> None:
    under_test = brokers(4, ON_1_2, ON_1_2)
    request = moving((0, (3, 4)), (1, (9,)), (2, (1,)))
    assert [code for code, _ in answers(under_test, request)] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [under_test.state("a", number).adding for number in (0, 1)] == [(3, 4), ()]


# -- replacing and cancelling


def test_a_new_move_replaces_the_former_from_where_that_began() -> None:
    under_test = brokers()
    under_test.handle(moving((0, (3, 2))))
    under_test.handle(moving((0, (4, 2))))
    state = under_test.state("a")
    assert (state.replicas, state.adding, state.removing) == ((4, 2, 1), (4,), (1,))
    under_test.handle(moving((0, None)))
    assert under_test.state("a") == PartitionImage(
        replicas=(2, 1),
        isr=(1, 2),
        last_known=(1, 2),
        leader=1,
        leader_epoch=2,
        partition_epoch=3,
    )


def test_what_the_former_move_added_and_the_new_one_wants_is_still_waited_for() -> None:
    under_test = brokers()
    under_test.handle(moving((0, (3, 2))))
    under_test.handle(moving((0, (3, 1))))
    state = under_test.state("a")
    assert (state.replicas, state.adding, state.removing) == ((3, 1, 2), (3,), (2,))


def test_a_cancelled_move_leaves_the_replicas_that_were() -> None:
    under_test = brokers()
    under_test.handle(moving((0, (3, 4))))
    propose(under_test, 1, 2, 3)
    under_test.handle(moving((0, None)))
    state = under_test.state("a")
    assert (state.replicas, state.isr, state.adding, state.removing) == ((1, 2), (1, 2), (), ())
    assert (state.leader, state.leader_epoch) == (1, 1)


def test_a_leader_that_was_being_added_hands_back_when_its_move_is_cancelled() -> None:
    under_test = brokers(4, ON_1_2, min_insync_replicas="1")
    under_test.handle(moving((0, (3, 4, 1, 2))))
    propose(under_test, 1, 2, 3)
    under_test.heartbeat(1, has_stopped=True)
    assert under_test.state("a").leader == 3
    under_test.handle(moving((0, None)))
    assert (under_test.state("a").leader, under_test.state("a").isr) == (2, (2,))


def test_a_move_is_not_given_up_when_records_could_be_lost_with_it() -> None:
    under_test = brokers(4, ON_1_2, min_insync_replicas="2")
    under_test.handle(moving((0, (3, 4))))
    propose(under_test, 1, 2, 3)
    under_test.heartbeat(2, has_stopped=True)
    assert under_test.state("a").isr == (3, 1)
    message = (
        "without [3] only [1] would be in sync, and acknowledged records could be lost; wait until "
        "more of the former replicas are"
    )
    for request in (moving((0, None)), moving((0, (4, 1)))):
        assert refused(under_test, request) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


# -- refusals


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (
            moving((0, None)),
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            "no replicas of it are moving",
        ),
        (
            moving((0, ())),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partition 0 has an empty list of replicas",
        ),
        (
            moving((0, (1, 1))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partition 0 names a broker twice: [1, 1]",
        ),
        (
            moving((0, (1, 9))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partition 0 names broker 9, which is not registered",
        ),
        (
            moving((0, (-1,))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partition 0 names broker -1, which is not registered",
        ),
        (
            moving((0, (0,))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partition 0 names broker 0, which is not registered",
        ),
        (
            moving((0, (2, 4))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partition 0 names broker 4, which is being drained and takes no replicas",
        ),
        (
            moving((1, (1,))),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "there is no partition a-1",
        ),
        (
            moving((0, (3,)), allow_replication_factor_change=False),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "a-0 has 2 replicas and would get 1, which the request does not allow",
        ),
        (
            moving((0, (1,)), (0, (2,))),
            ErrorCode.INVALID_REQUEST,
            "the request names the partition twice",
        ),
    ],
)
def test_a_move_that_cannot_be(request_: Any, code: ErrorCode, message: str) -> None:
    under_test = brokers()
    under_test.image.replay(BrokerDraining(broker_id=4, draining=True))
    assert refused(under_test, request_) == (code, message)


def test_a_move_to_a_broker_that_is_away_waits_for_it() -> None:
    under_test = brokers()
    under_test.heartbeat(3, has_stopped=True)
    assert answers(under_test, moving((0, (1, 3)))) == [(0, None)]
    assert under_test.state("a").adding == (3,)


@given(st.data())
def test_no_move_ever_gives_up_the_records(data: st.DataObject) -> None:
    """In any history some replica is known to have all records, unless its log was damaged."""
    min_isr = data.draw(st.integers(1, 3))
    living = {1, 2, 3, 4, 5}
    rules = Rules(min_isr=min_isr, is_alive=living.__contains__)
    state = PartitionImage(replicas=(1, 2, 3), isr=(1, 2, 3), last_known=(1, 2, 3), leader=1)
    for _ in range(data.draw(st.integers(1, 15))):
        before = state
        step = data.draw(st.sampled_from(["move", "cancel", "isr", "leave", "return"]))
        broker_id = data.draw(st.sampled_from([1, 2, 3, 4, 5]))
        try:
            if step == "move":
                size = data.draw(st.integers(1, 4))
                targets = data.draw(st.permutations([1, 2, 3, 4, 5]))[:size]
                state = begin_reassignment(state, tuple(targets), rules).state
            elif step == "cancel":
                state = cancel_reassignment(state, rules).state
            elif step == "leave":
                living.discard(broker_id)
                state = brokers_left(state, {broker_id}, LogSurvival.WHOLE, rules).state
            elif step == "return":
                living.add(broker_id)
                state = brokers_left(state, {broker_id}, LogSurvival.WHOLE, rules).state
            elif not state.offline:
                others = data.draw(st.sets(st.sampled_from(state.replicas)))
                state = isr_changed(state, (others & living) | {state.leader}, rules).state
        except KafkaError:
            assert state == before
        assert state.isr or state.eligible
        assert state.leader == NO_NODE or state.leader in living
        assert {*state.isr, *state.eligible} <= set(state.replicas)
        assert {*state.adding, *state.removing} <= set(state.replicas)
        assert (state.partition_epoch > before.partition_epoch) == (state != before)
        if not set(before.replicas) <= set(state.replicas) and state.leader != NO_NODE:
            assert state.leader_epoch > before.leader_epoch
        dropped = {*before.isr, *before.eligible} - set(state.replicas)
        if dropped:
            assert len(state.isr) >= state.required_isr(min_isr)
