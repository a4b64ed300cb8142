"""Controlled shutdown: which leaderships a broker hands over, and when it may stop."""

from dataclasses import replace

from sparklog.driver.control_plane.controller import Decision
from sparklog.metadata import BrokerFenced, PartitionImage
from sparklog.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from sparklog.wire.protocol.private import BrokerHeartbeatResponse
from tests.unit.driver.control_plane.driver_fakes import (
    ControllerUnderTest,
    changed,
    incarnation,
    partition,
)

MAY_STOP = BrokerHeartbeatResponse(may_stop=True)
NOT_YET = BrokerHeartbeatResponse(may_stop=False)


def with_partitions(*states: PartitionImage, **overrides: str) -> ControllerUnderTest:
    under_test = ControllerUnderTest()
    under_test.register_all(3)
    under_test.place("a", *states, **overrides)
    return under_test


def test_one_commit_moves_everything_that_others_can_lead() -> None:
    led, followed, alone = partition(1, 2, 3), partition(2, 3, 1), partition(1)
    under_test = with_partitions(led, followed, alone, min_insync_replicas="2")
    assert under_test.heartbeat(1, wants_stop=True) == Decision(
        records=(
            changed(
                "a",
                replace(
                    led,
                    isr=(2, 3),
                    last_known=(2, 3),
                    leader=2,
                    leader_epoch=1,
                    partition_epoch=1,
                ),
            ),
            changed(
                "a", replace(followed, isr=(2, 3), last_known=(2, 3), partition_epoch=1), number=1
            ),
        ),
        response=MAY_STOP,
    )
    assert under_test.heartbeat(1, wants_stop=True) == Decision(response=MAY_STOP)
    offline = replace(alone, isr=(), eligible=(1,), leader=-1, leader_epoch=1, partition_epoch=1)
    assert under_test.heartbeat(1, has_stopped=True) == Decision(
        records=(
            BrokerFenced(broker_id=1, reason="stopped cleanly"),
            changed("a", offline, number=2),
        ),
        response=BrokerHeartbeatResponse(fenced=True),
    )


def test_it_is_asked_to_wait_for_a_replica_that_could_still_catch_up() -> None:
    under_test = with_partitions(partition(1, 2, isr=(1,)))
    assert under_test.heartbeat(1, wants_stop=True) == Decision(response=NOT_YET)
    caught_up = PartitionData(
        new_isr_with_epochs=tuple(BrokerState(broker_id=b, broker_epoch=0) for b in (1, 2))
    )
    topics = (TopicData(topic_id=under_test.image.topics["a"].topic_id, partitions=(caught_up,)),)
    under_test.handle(AlterPartitionRequest(broker_id=1, broker_epoch=0, topics=topics))
    assert under_test.state("a").isr == (1, 2)
    assert under_test.heartbeat(1, wants_stop=True).response == MAY_STOP
    assert under_test.leaders() == {"a-0": 2}


def test_who_is_fenced_or_leads_alone_may_stop_at_once() -> None:
    under_test = with_partitions(partition(1), partition(2, 3))
    under_test.lose(3)
    assert under_test.heartbeat(1, wants_stop=True) == Decision(response=MAY_STOP)
    assert under_test.heartbeat(2, wants_stop=True) == Decision(response=MAY_STOP)
    assert under_test.heartbeat(3, wants_stop=True) == Decision(
        response=BrokerHeartbeatResponse(fenced=True, may_stop=True)
    )
    assert under_test.leaders() == {"a-0": 1, "a-1": 2}


def test_when_all_stop_nobody_waits_for_anybody() -> None:
    under_test = with_partitions(partition(1, 2, 3))
    answers = [under_test.heartbeat(b, wants_stop=True).response for b in (1, 2, 3)]
    assert answers == [MAY_STOP] * 3
    assert under_test.state("a").isr == (3,)
    assert under_test.leaders() == {"a-0": 3}


def test_a_stopping_broker_does_not_come_back_into_an_isr() -> None:
    under_test = with_partitions(partition(1, 2, 3))
    under_test.heartbeat(3, wants_stop=True)
    assert under_test.state("a").isr == (1, 2)
    again = PartitionData(
        partition_epoch=1,
        new_isr_with_epochs=tuple(BrokerState(broker_id=b, broker_epoch=0) for b in (1, 2, 3)),
    )
    topics = (TopicData(topic_id=under_test.image.topics["a"].topic_id, partitions=(again,)),)
    request = AlterPartitionRequest(broker_id=1, broker_epoch=0, topics=topics)
    assert under_test.handle(request).records == ()
    assert under_test.state("a").isr == (1, 2)


def test_it_is_elected_again_only_in_need_and_its_next_process_freely() -> None:
    under_test = with_partitions(partition(2, 1, 3), partition(3, 1))
    under_test.heartbeat(1, wants_stop=True)
    under_test.lose(2)
    assert under_test.leaders() == {"a-0": 3, "a-1": 3}
    under_test.heartbeat(1, has_stopped=True)
    under_test.register(1, incarnation=incarnation(9), clean_stop=True)
    assert under_test.heartbeat(3, wants_stop=True).response == NOT_YET
