"""Registration, heartbeats, fencing, and the leaders afterwards."""

from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.driver.control_plane.controller import (
    CountUncleanRecoveries,
    Decision,
    TimePassed,
    WarnOperator,
)
from sparklog.errors import ErrorCode
from sparklog.metadata import (
    BrokerFenced,
    BrokerIdAssigned,
    BrokerImage,
    BrokerRegistered,
    BrokerRemoved,
    BrokerUnfenced,
    PartitionChanged,
    PartitionImage,
)
from sparklog.types import TopicPartition
from sparklog.wire.protocol.private import (
    AssignBrokersRequest,
    AssignBrokersResponse,
    AssignedBroker,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    LostBroker,
    OfflineReplica,
    ReportLossRequest,
    ReportLossResponse,
)
from tests.unit.driver.control_plane.driver_fakes import (
    CLUSTER,
    ControllerUnderTest,
    directory,
    incarnation,
    partition,
    registered,
    registration,
)

SESSION_MS = 9_000
BROKER_1 = BrokerImage(
    broker_id=1,
    directory_id=directory(1),
    incarnation=incarnation(1),
    broker_epoch=0,
    host="127.0.0.1",
    port=9101,
    executor_host="host-a",
    executor_id="1",
    job="job-1",
)
LED = PartitionImage(replicas=(1,), isr=(1,), last_known=(1,), leader=1)
#: After the sole replica's broker was fenced.
OFFLINE = replace(LED, isr=(), eligible=(1,), leader=-1, leader_epoch=1, partition_epoch=1)


def changed(state: PartitionImage, topic: str = "a") -> PartitionChanged:
    return PartitionChanged(topic=topic, partition=0, state=state)


def with_topic() -> ControllerUnderTest:
    """Broker 1 leads the only partition of topic a."""
    under_test = ControllerUnderTest()
    under_test.register(1)
    under_test.create("a")
    return under_test


# -- ids


def test_ids_are_assigned_once_and_remembered() -> None:
    under_test = ControllerUnderTest()
    new = [AssignedBroker(broker_id=i, new=True) for i in (1, 2, 3)]
    assert under_test.handle(AssignBrokersRequest(count=2)) == Decision(
        records=(BrokerIdAssigned(broker_id=1), BrokerIdAssigned(broker_id=2)),
        response=AssignBrokersResponse(brokers=tuple(new[:2])),
    )
    under_test.register(2)
    known = AssignedBroker(broker_id=2, directory_id=directory(2), host="host-a")
    assert under_test.handle(AssignBrokersRequest(count=3)) == Decision(
        records=(BrokerIdAssigned(broker_id=3),),
        response=AssignBrokersResponse(brokers=(known, new[0], new[2])),
    )


def test_fewer_brokers_drop_unused_ids_and_keep_those_with_data() -> None:
    under_test = ControllerUnderTest()
    under_test.handle(AssignBrokersRequest(count=4))
    under_test.register(2)
    under_test.register(3)
    known = tuple(
        AssignedBroker(broker_id=i, directory_id=directory(i), host="host-a") for i in (2, 3)
    )
    assert under_test.handle(AssignBrokersRequest(count=1)) == Decision(
        records=(BrokerRemoved(broker_id=1), BrokerRemoved(broker_id=4)),
        response=AssignBrokersResponse(brokers=known),
    )


def test_a_senseless_number_of_brokers_is_refused() -> None:
    under_test = ControllerUnderTest()
    assert under_test.refusal(AssignBrokersRequest(count=0)) == ErrorCode.INVALID_REQUEST
    assert under_test.refusal(AssignBrokersRequest(count=1001)) == ErrorCode.INVALID_REQUEST


# -- registration


def test_a_first_registration_is_unfenced_at_once() -> None:
    assert ControllerUnderTest().register(1) == Decision(
        records=(
            BrokerRegistered(broker=BROKER_1, clean=True),
            BrokerUnfenced(broker_id=1),
        ),
        response=registered(0),
    )


def test_after_a_clean_stop_the_broker_leads_again() -> None:
    under_test = with_topic()
    assert under_test.heartbeat(1, has_stopped=True) == Decision(
        records=(BrokerFenced(broker_id=1, reason="stopped cleanly"), changed(OFFLINE)),
        response=BrokerHeartbeatResponse(fenced=True),
    )
    again = replace(BROKER_1, incarnation=incarnation(9), broker_epoch=1)
    leads = replace(LED, leader_epoch=2, partition_epoch=2)
    assert under_test.register(1, incarnation=incarnation(9), clean_stop=True) == Decision(
        records=(
            BrokerRegistered(broker=again, clean=True),
            changed(leads),
            BrokerUnfenced(broker_id=1),
        ),
        response=registered(1),
    )


def test_a_crashed_broker_that_comes_back_at_once_leads_at_a_higher_epoch() -> None:
    under_test = with_topic()
    again = replace(BROKER_1, incarnation=incarnation(9), broker_epoch=1)
    leads = replace(LED, leader_epoch=1, partition_epoch=1)
    assert under_test.register(1, incarnation=incarnation(9)) == Decision(
        records=(
            BrokerRegistered(broker=again, clean=False),
            changed(leads),
            BrokerUnfenced(broker_id=1),
        ),
        response=registered(1),
        effects=(
            WarnOperator(
                message="broker 1 stopped uncleanly and was the last that had everything of a-0: "
                "it leads again from what its log holds; if its machine failed too, records that "
                "were not on disk yet are lost (unclean recovery)"
            ),
            CountUncleanRecoveries(partitions=1),
        ),
    )


def test_a_crashed_and_fenced_broker_is_recovered_from_what_was_known_last() -> None:
    under_test = with_topic()
    under_test.handle(ReportLossRequest(brokers=(LostBroker(broker_id=1),)))
    decision = under_test.register(1, incarnation=incarnation(9))
    assert decision.records[1] == changed(replace(LED, leader_epoch=2, partition_epoch=2))
    assert decision.effects[1:] == (CountUncleanRecoveries(partitions=1),)


def test_a_directory_that_was_put_back_from_a_copy_did_not_stop_cleanly() -> None:
    under_test = ControllerUnderTest()
    under_test.register_all(2)
    under_test.place("a", partition(1, 2), min_insync_replicas="2")
    copied_at = under_test.epoch_of(1)
    for process, clean_epoch, eligible in (
        (8, copied_at, (1,)),
        (9, copied_at, ()),
    ):
        under_test.heartbeat(1, has_stopped=True)
        under_test.register(
            1, incarnation=incarnation(process), clean_stop=True, clean_epoch=clean_epoch
        )
        assert under_test.state("a").eligible == eligible


def test_a_new_directory_never_leads_what_the_old_one_held() -> None:
    under_test = with_topic()
    under_test.handle(ReportLossRequest(brokers=(LostBroker(broker_id=1),)))
    decision = under_test.register(1, directory_id=directory(7), incarnation=incarnation(9))
    lost = replace(OFFLINE, eligible=(), last_known=(), partition_epoch=2)
    assert decision == Decision(
        records=(
            BrokerRegistered(
                broker=replace(
                    BROKER_1,
                    directory_id=directory(7),
                    incarnation=incarnation(9),
                    broker_epoch=1,
                ),
                clean=False,
            ),
            changed(lost),
            BrokerUnfenced(broker_id=1),
        ),
        response=registered(1),
        effects=(
            WarnOperator(
                message="broker 1 came back with a new directory; offline for good, because only "
                "the former one held them: a-0; sparklog elect-leaders --unclean lets an empty "
                "replica lead them"
            ),
        ),
    )
    under_test.heartbeat(1, has_stopped=True)
    under_test.register(1, directory_id=directory(7), incarnation=incarnation(10), clean_stop=True)
    assert under_test.leaders() == {"a-0": -1}
    under_test.create("b")
    assert under_test.leaders() == {"a-0": -1, "b-0": 1}
    # The old directory has missed the later decisions, so it is not accepted either.
    under_test.heartbeat(1, has_stopped=True)
    under_test.register(1, incarnation=incarnation(11), clean_stop=True)
    assert under_test.leaders() == {"a-0": -1, "b-0": -1}


def test_the_same_process_may_register_again_and_changes_nothing() -> None:
    under_test = with_topic()
    assert under_test.register(1) == Decision(
        records=(
            BrokerRegistered(broker=replace(BROKER_1, broker_epoch=1), clean=True),
            BrokerUnfenced(broker_id=1),
        ),
        response=registered(1),
    )
    assert under_test.leader_epoch("a") == 0


def test_a_second_process_with_a_live_id_is_refused() -> None:
    under_test = with_topic()
    other_directory = registration(1, directory_id=directory(7), incarnation=incarnation(9))
    assert under_test.refusal(other_directory) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    copied_to_another_host = registration(1, incarnation=incarnation(9), executor_host="host-b")
    assert under_test.refusal(copied_to_another_host) == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_it_is_accepted_once_the_session_has_ended() -> None:
    under_test = with_topic()
    for under_test.now_ms in range(0, SESSION_MS + 1, 1000):
        under_test.handle(TimePassed())
    under_test.register(1, incarnation=incarnation(9), executor_host="host-b")
    assert under_test.leaders() == {"a-0": 1}


def test_after_a_restart_of_the_controller_the_same_directory_is_believed_from_any_host() -> None:
    under_test = ControllerUnderTest(with_topic().image.copy())
    under_test.register(1, incarnation=incarnation(9), executor_host="host-b")
    assert under_test.leaders() == {"a-0": 1}


def test_registrations_that_cannot_be_are_refused() -> None:
    under_test = with_topic()
    cases = [
        (registration(2, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (registration(0), ErrorCode.INVALID_REGISTRATION),
        (registration(-1), ErrorCode.INVALID_REGISTRATION),
        (registration(2, directory_id=None), ErrorCode.INVALID_REGISTRATION),
        (registration(2, incarnation=None), ErrorCode.INVALID_REGISTRATION),
        (registration(2, host=""), ErrorCode.INVALID_REGISTRATION),
        (registration(2, directory_id=directory(1)), ErrorCode.INVALID_REGISTRATION),
    ]
    assert [under_test.refusal(request) for request, _ in cases] == [code for _, code in cases]
    assert under_test.image.cluster_id == CLUSTER


# -- sessions


def test_a_heartbeat_of_a_live_broker_changes_nothing() -> None:
    under_test = with_topic()
    assert under_test.heartbeat(1) == Decision(response=BrokerHeartbeatResponse(fenced=False))


def test_a_silent_broker_is_fenced_and_heard_again() -> None:
    under_test = with_topic()
    decisions = {}
    for under_test.now_ms in range(0, SESSION_MS + 1, 1000):
        decisions[under_test.now_ms] = under_test.handle(TimePassed())
    fencing = decisions.pop(SESSION_MS)
    assert set(decisions.values()) == {Decision()}
    assert fencing == Decision(
        records=(BrokerFenced(broker_id=1, reason="silent for 9000 ms"), changed(OFFLINE)),
        effects=(WarnOperator(message="fenced broker 1 at 127.0.0.1:9101: silent for 9000 ms"),),
    )
    assert under_test.heartbeat(1) == Decision(
        records=(
            BrokerUnfenced(broker_id=1),
            changed(replace(LED, leader_epoch=2, partition_epoch=2)),
        ),
        response=BrokerHeartbeatResponse(fenced=False),
    )


def test_nobody_is_fenced_for_a_time_in_which_the_controller_itself_stood_still() -> None:
    under_test = with_topic()
    under_test.handle(TimePassed())
    under_test.now_ms = 10 * SESSION_MS
    assert under_test.handle(TimePassed()) == Decision()
    for under_test.now_ms in range(10 * SESSION_MS, 11 * SESSION_MS + 1, 1000):
        under_test.handle(TimePassed())
    assert under_test.leaders() == {"a-0": -1}


def test_after_a_restart_brokers_have_one_session_to_be_heard() -> None:
    image = with_topic().image.copy()
    under_test = ControllerUnderTest(image)
    for under_test.now_ms in range(0, SESSION_MS, 1000):
        assert under_test.handle(TimePassed()) == Decision()
    under_test.heartbeat(1)
    for under_test.now_ms in range(SESSION_MS, 2 * SESSION_MS - 1000, 1000):
        assert under_test.handle(TimePassed()) == Decision()


def test_a_heartbeat_of_a_former_registration_is_refused() -> None:
    under_test = with_topic()
    under_test.register(1, incarnation=incarnation(9))
    stale = BrokerHeartbeatRequest(broker_id=1, broker_epoch=0)
    unknown = BrokerHeartbeatRequest(broker_id=8, broker_epoch=0)
    assert under_test.refusal(stale) == ErrorCode.STALE_BROKER_EPOCH
    assert under_test.refusal(unknown) == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_brokers_that_are_reported_lost_are_fenced_in_one_decision() -> None:
    under_test = ControllerUnderTest()
    under_test.register_all(3)
    under_test.create("a", partitions=3)
    lost = ReportLossRequest(
        brokers=(
            LostBroker(broker_id=1, incarnation=incarnation(1)),
            LostBroker(broker_id=2),
            LostBroker(broker_id=2),
            LostBroker(broker_id=3, incarnation=UUID(int=99)),
            LostBroker(broker_id=8),
        )
    )
    decision = under_test.handle(lost)
    assert decision.records[:2] == (
        BrokerFenced(broker_id=1, reason="reported lost"),
        BrokerFenced(broker_id=2, reason="reported lost"),
    )
    assert decision.response == ReportLossResponse()
    assert under_test.leaders() == {"a-0": -1, "a-1": -1, "a-2": 3}
    assert under_test.handle(lost) == Decision(response=ReportLossResponse())


def test_the_state_of_an_offline_partition_names_who_has_its_records() -> None:
    under_test = with_topic()
    under_test.heartbeat(1, has_stopped=True)
    assert under_test.image.partition(TopicPartition("a", 0)) == OFFLINE


# -- offline replicas


def test_a_heartbeat_tells_which_replicas_do_not_work() -> None:
    under_test = ControllerUnderTest()
    under_test.register_all(2)
    pair, single = partition(1, 2), partition(1)
    topic_id = under_test.place("a", pair, single, partition(2))
    offline = tuple(OfflineReplica(topic_id=topic_id, partition=n) for n in (0, 1, 2, 7))
    unknown = OfflineReplica(topic_id=UUID(int=99), partition=0)
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=0, offline=(*offline, unknown))
    other = replace(pair, isr=(2,), last_known=(2,), leader=2, leader_epoch=1, partition_epoch=1)
    assert under_test.handle(request) == Decision(
        records=(changed(other),), response=BrokerHeartbeatResponse(fenced=False)
    )
    assert under_test.handle(request) == Decision(response=BrokerHeartbeatResponse(fenced=False))


def test_it_gives_way_as_soon_as_another_is_back() -> None:
    under_test = ControllerUnderTest()
    under_test.register_all(2)
    topic_id = under_test.place("a", partition(1, 2), min_insync_replicas="2")
    under_test.lose(2)
    offline = (OfflineReplica(topic_id=topic_id, partition=0),)
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=0, offline=offline)
    assert under_test.handle(request).records == ()
    under_test.heartbeat(2)
    assert under_test.leaders() == {"a-0": 1}
    under_test.handle(request)
    assert (under_test.leaders(), under_test.state("a").isr) == ({"a-0": 2}, (2,))


def test_a_new_directory_lets_the_only_other_log_lead() -> None:
    under_test = ControllerUnderTest()
    under_test.register_all(2)
    under_test.place("a", partition(1, 2))
    under_test.handle(ReportLossRequest(brokers=(LostBroker(broker_id=1), LostBroker(broker_id=2))))
    under_test.register(2, incarnation=incarnation(8))
    decision = under_test.register(1, directory_id=directory(7), incarnation=incarnation(9))
    assert under_test.state("a").leader == 2
    assert decision.effects == (
        WarnOperator(
            message="unclean recovery, the best log at hand leads: a-0 by broker 2; records that "
            "it lacks are lost, even if they were acknowledged"
        ),
        CountUncleanRecoveries(partitions=1),
    )


@pytest.mark.parametrize("lost", [False, True])
def test_nobody_is_called_a_leader_where_nobody_leads(lost: bool) -> None:
    under_test = ControllerUnderTest()
    under_test.register_all(2)
    topic_id = under_test.place("a", partition(1), unclean_leader_election_enable="true")
    offline = (OfflineReplica(topic_id=topic_id, partition=0, lost=lost),)
    decision = under_test.register(1, incarnation=incarnation(9), offline=offline)
    assert under_test.leaders() == {"a-0": -1}
    assert decision.effects == ()
