"""AlterPartition: which ISR changes of a leader are granted, and how they are answered."""

from dataclasses import replace
from uuid import UUID

from sparklog.driver.control_plane.controller import Decision
from sparklog.errors import ErrorCode
from sparklog.metadata import PartitionChanged, PartitionImage
from sparklog.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    ResponsePartitionData,
    ResponseTopicData,
    TopicData,
)
from sparklog.wire.protocol.private import (
    BrokerHeartbeatRequest,
    LostBroker,
    OfflineReplica,
    ReportLossRequest,
)
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest, incarnation

LED = PartitionImage(
    replicas=(1, 2, 3),
    isr=(1, 2),
    last_known=(1, 2),
    leader=1,
    leader_epoch=5,
    partition_epoch=7,
)


def three_brokers(
    state: PartitionImage = LED, **overrides: str
) -> tuple[ControllerUnderTest, UUID]:
    """Brokers 1 to 4, and topic a with one partition, by default led by broker 1."""
    under_test = ControllerUnderTest()
    under_test.register_all(4)
    return under_test, under_test.place("a", state, **overrides)


def proposal(
    topic_id: UUID | None,
    *isr: int,
    broker_epochs: dict[int, int] | None = None,
    by: int = 1,
    by_epoch: int = 0,
    **changes: int,
) -> AlterPartitionRequest:
    epochs = broker_epochs or {}
    members = tuple(BrokerState(broker_id=b, broker_epoch=epochs.get(b, 0)) for b in isr)
    data = PartitionData(leader_epoch=5, partition_epoch=7, new_isr_with_epochs=members)
    topic = TopicData(topic_id=topic_id, partitions=(replace(data, **changes),))
    return AlterPartitionRequest(broker_id=by, broker_epoch=by_epoch, topics=(topic,))


def answer(topic_id: UUID | None, **values: object) -> AlterPartitionResponse:
    part = ResponsePartitionData(**values)  # type: ignore[arg-type]
    return AlterPartitionResponse(
        topics=(ResponseTopicData(topic_id=topic_id, partitions=(part,)),)
    )


def error_of(under_test: ControllerUnderTest, request: AlterPartitionRequest) -> ErrorCode:
    """The error code of the only partition; asserts that nothing has changed."""
    decision = under_test.handle(request)
    assert isinstance(decision.response, AlterPartitionResponse)
    assert decision.records == ()
    (topic,) = decision.response.topics
    (part,) = topic.partitions
    return ErrorCode(part.error_code)


def test_a_caught_up_follower_joins() -> None:
    under_test, topic_id = three_brokers()
    after = replace(LED, isr=(1, 2, 3), last_known=(1, 2, 3), partition_epoch=8)
    assert under_test.handle(proposal(topic_id, 3, 1, 2)) == Decision(
        records=(PartitionChanged(topic="a", partition=0, state=after),),
        response=answer(topic_id, leader_id=1, leader_epoch=5, isr=(1, 2, 3), partition_epoch=8),
    )


def test_a_slow_follower_leaves_and_stays_eligible_below_the_minimum() -> None:
    under_test, topic_id = three_brokers(min_insync_replicas="2")
    decision = under_test.handle(proposal(topic_id, 1))
    after = replace(LED, isr=(1,), eligible=(2,), partition_epoch=8)
    assert decision == Decision(
        records=(PartitionChanged(topic="a", partition=0, state=after),),
        response=answer(topic_id, leader_id=1, leader_epoch=5, isr=(1,), partition_epoch=8),
    )


def test_what_is_so_already_is_granted_and_written_nowhere() -> None:
    under_test, topic_id = three_brokers()
    assert under_test.handle(proposal(topic_id, 1, 2)) == Decision(
        response=answer(topic_id, leader_id=1, leader_epoch=5, isr=(1, 2), partition_epoch=7)
    )


def test_a_leader_of_other_epochs_gets_nothing() -> None:
    under_test, topic_id = three_brokers()
    cases = [
        ({"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 8}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 6}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ({"by": 2}, ErrorCode.INVALID_REQUEST),
        ({"partition_index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    for changes, code in cases:
        assert error_of(under_test, proposal(topic_id, 1, 2, 3, **changes)) == code, changes
    assert error_of(under_test, proposal(UUID(int=99), 1)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert error_of(under_test, proposal(None, 1)) == ErrorCode.UNKNOWN_TOPIC_ID


def test_replicas_that_cannot_be_are_refused() -> None:
    under_test, topic_id = three_brokers()
    for isr in ((), (2, 3), (1, 4), (1, 9), (1, 1)):
        assert error_of(under_test, proposal(topic_id, *isr)) == ErrorCode.INVALID_REQUEST, isr


def test_a_former_process_of_a_follower_is_not_taken() -> None:
    under_test, topic_id = three_brokers()
    under_test.register(3, incarnation=incarnation(9))
    assert error_of(under_test, proposal(topic_id, 1, 2, 3)) == ErrorCode.INELIGIBLE_REPLICA
    known = proposal(topic_id, 1, 2, 3, broker_epochs={3: 1})
    under_test.handle(known)
    assert under_test.state("a").isr == (1, 2, 3)


def test_a_fenced_follower_is_not_taken() -> None:
    under_test, topic_id = three_brokers()
    under_test.handle(ReportLossRequest(brokers=(LostBroker(broker_id=3),)))
    assert error_of(under_test, proposal(topic_id, 1, 2, 3)) == ErrorCode.INELIGIBLE_REPLICA


def test_a_replica_that_does_not_work_is_not_taken_though_its_broker_lives() -> None:
    """The last fetch of an offline replica may have been at the end of an idle log.  A leader would
    see it as caught up for ever, and from the ISR it could be elected before complete replicas."""
    under_test, topic_id = three_brokers()
    failed = OfflineReplica(topic_id=topic_id, partition=0)
    under_test.handle(BrokerHeartbeatRequest(broker_id=3, broker_epoch=0, offline=(failed,)))
    assert error_of(under_test, proposal(topic_id, 1, 2, 3)) == ErrorCode.INELIGIBLE_REPLICA
    under_test.heartbeat(3)  # it works again
    under_test.handle(proposal(topic_id, 1, 2, 3))
    assert under_test.state("a").isr == (1, 2, 3)


def test_others_join_without_the_one_that_may_not() -> None:
    alone = replace(LED, isr=(1,), last_known=(1,))
    under_test, topic_id = three_brokers(alone)
    failed = OfflineReplica(topic_id=topic_id, partition=0)
    under_test.handle(BrokerHeartbeatRequest(broker_id=3, broker_epoch=0, offline=(failed,)))
    decision = under_test.handle(proposal(topic_id, 1, 2, 3))
    assert decision.response == answer(
        topic_id, leader_id=1, leader_epoch=5, isr=(1, 2), partition_epoch=8
    )
    assert under_test.state("a").isr == (1, 2)


def test_a_replica_that_does_not_work_never_takes_the_lead_from_one_that_does() -> None:
    under_test, topic_id = three_brokers(replace(LED, replicas=(1, 2), isr=(1, 2)))
    failed = OfflineReplica(topic_id=topic_id, partition=0)
    beat = BrokerHeartbeatRequest(broker_id=2, broker_epoch=0, offline=(failed,))
    under_test.handle(beat)
    assert under_test.state("a").isr == (1,)
    under_test.handle(proposal(topic_id, 1, 2, partition_epoch=8))  # the leader sees it caught up
    under_test.lose(1)
    under_test.handle(beat)
    under_test.register(1, incarnation=incarnation(9), clean_stop=True)
    assert under_test.state("a").leader == 1


def test_version_2_gives_ids_alone() -> None:
    under_test, topic_id = three_brokers()
    under_test.register(3, incarnation=incarnation(9))
    part = PartitionData(leader_epoch=5, partition_epoch=7, new_isr=(1, 2, 3))
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=0,
        topics=(TopicData(topic_id=topic_id, partitions=(part,)),),
    )
    under_test.handle(request)
    assert under_test.state("a").isr == (1, 2, 3)


def test_a_process_that_was_replaced_may_not_ask() -> None:
    under_test, topic_id = three_brokers()
    assert under_test.refusal(proposal(topic_id, 1, by_epoch=1)) == ErrorCode.STALE_BROKER_EPOCH
    stranger = proposal(topic_id, 1, by=9)
    assert under_test.refusal(stranger) == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_partition_that_is_named_twice_is_changed_once() -> None:
    under_test, topic_id = three_brokers()
    once = proposal(topic_id, 1, 2, 3)
    decision = under_test.handle(replace(once, topics=once.topics * 2))
    assert isinstance(decision.response, AlterPartitionResponse)
    codes = [part.error_code for topic in decision.response.topics for part in topic.partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
    assert len(decision.records) == 1


def test_the_isr_that_completes_a_reassignment_may_end_the_leader() -> None:
    moving = replace(LED, replicas=(3, 1, 2), adding=(3,), removing=(1,))
    ends_with_new_leader(moving, (3, 2), last_known=(2, 3))


def test_so_it_may_be_for_a_leader_that_stays() -> None:
    moving = replace(LED, replicas=(1, 3, 2), adding=(3,), removing=(2,))
    ends_with_new_leader(moving, (1, 3), last_known=(1, 3))


def ends_with_new_leader(
    moving: PartitionImage, replicas: tuple[int, ...], last_known: tuple[int, ...]
) -> None:
    """Once all three are in sync, the reassignment is complete, and the first of its replicas leads
    in a new epoch."""
    under_test, topic_id = three_brokers(moving)
    decision = under_test.handle(proposal(topic_id, 1, 2, 3))
    after = PartitionImage(
        replicas=replicas,
        isr=replicas,
        last_known=last_known,
        leader=replicas[0],
        leader_epoch=6,
        partition_epoch=8,
    )
    assert decision == Decision(
        records=(PartitionChanged(topic="a", partition=0, state=after),),
        response=answer(topic_id, error_code=ErrorCode.NEW_LEADER_ELECTED),
    )
