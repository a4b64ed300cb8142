"""The leader after an unclean stop of every replica that had all acknowledged records."""

from dataclasses import replace
from uuid import UUID

from sparklog.driver.control_plane.controller import CountUncleanRecoveries, Decision, WarnOperator
from sparklog.errors import ErrorCode
from sparklog.metadata import PartitionImage
from sparklog.wire.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from sparklog.wire.protocol.private import (
    BrokerHeartbeatRequest,
    LogEnd,
    OfflineReplica,
    ReportLogEndsRequest,
    ReportLogEndsResponse,
)
from tests.unit.driver.control_plane.driver_fakes import (
    ControllerUnderTest,
    changed,
    directory,
    incarnation,
    partition,
)

WAIT_MS = 30_000
WAITS = WarnOperator(
    message="every replica that is known to be complete has stopped uncleanly; the others of them "
    "are waited for up to 30000 ms: a-0"
)


def all_crashed(**overrides: str) -> tuple[ControllerUnderTest, UUID]:
    """Brokers 1 and 2, the only complete replicas, are gone; broker 3 had fallen behind."""
    under_test = ControllerUnderTest()
    under_test.register_all(3)
    topic_id = under_test.place("a", partition(1, 2, 3, isr=(1, 2)), **overrides)
    under_test.lose(1, 2, 3)
    return under_test, topic_id


def lost_the_only_one_in_sync(brokers: int) -> tuple[ControllerUnderTest, UUID]:
    """Broker 1, the only one in sync, is gone; the others are alive, with unclean elections on."""
    under_test = ControllerUnderTest()
    under_test.register_all(brokers)
    topic_id = under_test.place(
        "a",
        partition(*range(1, brokers + 1), isr=(1,)),
        unclean_leader_election_enable="true",
    )
    under_test.lose(1)
    return under_test, topic_id


def report(
    under_test: ControllerUnderTest,
    topic_id: UUID,
    broker_id: int,
    leader_epoch: int,
    log_end_offset: int,
    *,
    broker_epoch: int | None = None,
    number: int = 0,
    current: int | None = None,
) -> Decision:
    """A report; ``current`` is the leader epoch that the broker knows (default: the present)."""
    topic = under_test.image.topic_by_id(topic_id)
    state = topic.partitions.get(number) if topic is not None else None
    if current is None and state is not None:
        current = state.leader_epoch
    end = LogEnd(
        topic_id=topic_id,
        partition=number,
        current_leader_epoch=-1 if current is None else current,
        leader_epoch=leader_epoch,
        log_end_offset=log_end_offset,
    )
    epoch = under_test.epoch_of(broker_id) if broker_epoch is None else broker_epoch
    return under_test.handle(
        ReportLogEndsRequest(broker_id=broker_id, broker_epoch=epoch, ends=(end,))
    )


def recovered(before: PartitionImage, leader: int) -> PartitionImage:
    return replace(
        before,
        isr=(leader,),
        eligible=(),
        last_known=(leader,),
        leader=leader,
        leader_epoch=before.leader_epoch + 1,
        partition_epoch=before.partition_epoch + 1,
    )


def decided(before: PartitionImage, leader: int) -> Decision:
    return Decision(
        records=(changed("a", recovered(before, leader)),),
        effects=(
            WarnOperator(
                message=f"unclean recovery, the best log at hand leads: a-0 by broker {leader}; "
                "records that it lacks are lost, even if they were acknowledged"
            ),
            CountUncleanRecoveries(partitions=1),
        ),
    )


def test_the_best_log_leads_once_all_that_knew_everything_have_reported() -> None:
    under_test, topic_id = all_crashed(min_insync_replicas="2")
    under_test.crash(1)
    under_test.crash(2)
    before = under_test.state("a")
    assert (before.isr, before.eligible, before.last_known, before.leader) == ((), (), (1, 2), -1)
    assert report(under_test, topic_id, 1, 0, 100) == Decision(
        response=ReportLogEndsResponse(), effects=(WAITS,)
    )
    expected = decided(before, 2)
    assert report(under_test, topic_id, 2, 0, 101) == replace(
        expected, response=ReportLogEndsResponse()
    )


def test_a_later_epoch_counts_more_than_a_longer_log() -> None:
    under_test, topic_id = all_crashed(min_insync_replicas="2")
    under_test.crash(1)
    under_test.crash(2)
    report(under_test, topic_id, 1, 4, 50)
    report(under_test, topic_id, 2, 3, 90)
    assert under_test.leaders() == {"a-0": 1}


def test_of_equal_logs_the_first_replica_leads() -> None:
    under_test, topic_id = all_crashed(min_insync_replicas="2")
    under_test.crash(2)
    under_test.crash(1)
    report(under_test, topic_id, 2, 3, 90)
    report(under_test, topic_id, 1, 3, 90)
    assert under_test.leaders() == {"a-0": 1}


def test_who_stays_away_is_waited_for_and_no_longer() -> None:
    under_test, topic_id = all_crashed(min_insync_replicas="2")
    under_test.crash(2)
    assert under_test.leaders() == {"a-0": -1}  # broker 1 may come back and have stopped cleanly
    under_test.crash(1)
    under_test.lose(1)
    before = under_test.state("a")
    under_test.tick(1_000)
    assert report(under_test, topic_id, 2, 0, 100).effects == (WAITS,)
    assert under_test.tick(1_000 + WAIT_MS - 1) == Decision()
    assert under_test.tick(1_000 + WAIT_MS) == decided(before, 2)


def test_who_fell_behind_earlier_is_not_asked() -> None:
    under_test, topic_id = all_crashed(min_insync_replicas="2")
    for broker_id in (1, 2, 3):
        under_test.crash(broker_id)
    assert report(under_test, topic_id, 3, 9, 999) == Decision(response=ReportLogEndsResponse())
    assert under_test.tick(2 * WAIT_MS) == Decision()
    report(under_test, topic_id, 1, 0, 100)
    report(under_test, topic_id, 2, 0, 99)
    assert under_test.leaders() == {"a-0": 1}


def test_while_a_complete_replica_may_come_back_no_log_is_good_enough() -> None:
    under_test, topic_id = all_crashed(min_insync_replicas="2")
    under_test.crash(1)
    assert under_test.state("a").eligible == (2,)
    report(under_test, topic_id, 1, 0, 100)
    assert under_test.tick(2 * WAIT_MS) == Decision()
    under_test.register(2, incarnation=incarnation(9), clean_stop=True)
    assert under_test.leaders() == {"a-0": 2}


def test_a_new_directory_is_neither_waited_for_nor_elected() -> None:
    under_test, topic_id = all_crashed(min_insync_replicas="2")
    under_test.crash(1)
    under_test.crash(2, directory_id=directory(7))
    assert under_test.leaders() == {"a-0": 1}
    under_test.lose(1, 2, 3)
    under_test.crash(1, directory_id=directory(8))
    report(under_test, topic_id, 1, 9, 999)
    under_test.crash(2, directory_id=directory(9))
    report(under_test, topic_id, 2, 9, 999)
    assert under_test.tick(2 * WAIT_MS) == Decision()
    assert under_test.leaders() == {"a-0": -1}


def test_only_what_nobody_else_had_is_called_offline_for_good() -> None:
    under_test = ControllerUnderTest()
    under_test.register_all(2)
    under_test.place("a", partition(1), partition(1, 2))
    under_test.lose(1, 2)
    decision = under_test.crash(1, directory_id=directory(7))
    assert decision.effects == (
        WarnOperator(
            message="broker 1 came back with a new directory; offline for good, because only the "
            "former one held them: a-0; sparklog elect-leaders --unclean lets an empty replica "
            "lead them"
        ),
    )
    assert under_test.state("a", 1).eligible == (2,)


def test_the_last_that_knew_everything_leads_as_soon_as_it_is_heard_again() -> None:
    under_test, _ = all_crashed(min_insync_replicas="2")
    under_test.crash(1)
    under_test.lose(1)
    under_test.crash(2, directory_id=directory(7))
    before = under_test.state("a")
    assert (before.leader, before.last_known) == (-1, (1,))
    decision = under_test.heartbeat(1)
    assert (decision.records[1:], decision.effects) == (
        decided(before, 1).records,
        decided(before, 1).effects,
    )


def test_the_report_of_a_former_process_counts_for_nothing() -> None:
    under_test, topic_id = all_crashed(min_insync_replicas="2")
    under_test.crash(1)
    under_test.crash(2)
    report(under_test, topic_id, 1, 0, 100)
    under_test.crash(1)
    stale = ReportLogEndsRequest(broker_id=1, broker_epoch=1)
    assert under_test.refusal(stale) == ErrorCode.STALE_BROKER_EPOCH
    report(under_test, topic_id, 2, 0, 99)
    assert under_test.leaders() == {"a-0": -1}
    report(under_test, topic_id, 1, 0, 98)
    assert under_test.leaders() == {"a-0": 2}


def test_a_report_made_before_another_leader_was_elected_counts_for_nothing() -> None:
    under_test, topic_id = all_crashed(unclean_leader_election_enable="true")
    under_test.register(1, incarnation=incarnation(1))
    under_test.lose(1)
    under_test.heartbeat(3)
    assert under_test.leader_epoch("a") == 3  # lost, led by 1 again, and lost again
    early = report(under_test, topic_id, 3, 9, 999, current=1)
    assert early == Decision(response=ReportLogEndsResponse())
    assert under_test.leaders() == {"a-0": -1}
    report(under_test, topic_id, 3, 0, 40)
    assert under_test.leaders() == {"a-0": 3}


def test_what_was_reported_is_forgotten_when_another_leader_is_elected() -> None:
    under_test, topic_id = lost_the_only_one_in_sync(3)
    report(under_test, topic_id, 3, 0, 90)
    under_test.heartbeat(1)
    assert under_test.leaders() == {"a-0": 1}
    under_test.lose(1)
    report(under_test, topic_id, 2, 0, 80)
    assert under_test.leaders() == {"a-0": -1}
    report(under_test, topic_id, 3, 0, 70)
    assert under_test.leaders() == {"a-0": 2}


def test_reports_of_what_is_led_unknown_or_elsewhere_change_nothing() -> None:
    under_test = ControllerUnderTest()
    under_test.register_all(3)
    topic_id = under_test.place("a", partition(1, 2), partition(1, isr=(), leader=-1))
    nothing = Decision(response=ReportLogEndsResponse())
    assert report(under_test, topic_id, 2, 0, 100) == nothing
    assert report(under_test, topic_id, 2, 0, 100, number=1) == nothing
    assert report(under_test, topic_id, 2, 0, 100, number=9) == nothing
    assert report(under_test, UUID(int=99), 2, 0, 100) == nothing


# -- topics with unclean elections


def test_a_topic_that_allows_it_is_led_by_whoever_is_alive() -> None:
    under_test, topic_id = all_crashed(unclean_leader_election_enable="true")
    under_test.heartbeat(3)
    before = under_test.state("a")
    assert (before.eligible, before.leader) == ((1, 2), -1)
    assert report(under_test, topic_id, 3, 0, 40) == replace(
        decided(before, 3), response=ReportLogEndsResponse()
    )


def test_of_several_the_best_log_is_taken_as_soon_as_all_have_reported() -> None:
    under_test, topic_id = lost_the_only_one_in_sync(4)
    report(under_test, topic_id, 2, 0, 40)
    report(under_test, topic_id, 4, 0, 41)
    assert under_test.leaders() == {"a-0": -1}
    report(under_test, topic_id, 3, 0, 39)
    assert under_test.leaders() == {"a-0": 4}


def test_a_living_broker_that_never_reports_is_waited_for_no_longer_than_others() -> None:
    under_test, topic_id = lost_the_only_one_in_sync(3)
    report(under_test, topic_id, 3, 0, 40)
    under_test.tick(WAIT_MS - 1)
    assert under_test.leaders() == {"a-0": -1}
    under_test.tick(WAIT_MS)
    assert under_test.leaders() == {"a-0": 3}


def test_the_permission_that_comes_later_counts_too() -> None:
    under_test, topic_id = all_crashed()
    under_test.heartbeat(3)
    report(under_test, topic_id, 3, 0, 40)
    assert under_test.leaders() == {"a-0": -1}
    before = under_test.state("a")
    under_test.configure("a", unclean_leader_election_enable="true")
    assert under_test.tick(1_000) == decided(before, 3)


def log_fails(under_test: ControllerUnderTest, topic_id: UUID, broker_id: int) -> Decision:
    """The broker is alive, but its disk has failed."""
    return under_test.handle(
        BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=under_test.epoch_of(broker_id),
            offline=(OfflineReplica(topic_id=topic_id, partition=0),),
        )
    )


def test_a_log_that_does_not_work_is_not_waited_for() -> None:
    under_test, topic_id = all_crashed(unclean_leader_election_enable="true")
    under_test.crash(2)
    log_fails(under_test, topic_id, 2)
    assert under_test.leaders()["a-0"] == -1
    under_test.heartbeat(3)
    report(under_test, topic_id, 3, 0, 40)
    assert under_test.leaders()["a-0"] == 3


def test_a_log_that_fails_after_its_report_is_not_elected() -> None:
    under_test, topic_id = lost_the_only_one_in_sync(3)
    report(under_test, topic_id, 2, 0, 90)
    log_fails(under_test, topic_id, 2)
    report(under_test, topic_id, 3, 0, 40)
    assert under_test.leaders() == {"a-0": 3}


def test_a_log_that_may_have_records_is_elected_before_one_that_has_none() -> None:
    under_test = ControllerUnderTest()
    under_test.register_all(2)
    topic_id = under_test.place("a", partition(1, 2, isr=(), leader=-1))
    chosen = TopicPartitions(topic="a", partitions=(0,))
    report(under_test, topic_id, 1, -1, 0)
    under_test.handle(ElectLeadersRequest(election_type=1, topic_partitions=(chosen,)))
    assert under_test.leaders() == {"a-0": 2}


def test_an_empty_log_is_elected_on_request_if_no_other_replica_works() -> None:
    under_test = ControllerUnderTest()
    under_test.register_all(2)
    topic_id = under_test.place("a", partition(1, 2, isr=(), leader=-1))
    under_test.lose(2)
    chosen = TopicPartitions(topic="a", partitions=(0,))
    report(under_test, topic_id, 1, -1, 0)
    under_test.handle(ElectLeadersRequest(election_type=1, topic_partitions=(chosen,)))
    assert under_test.leaders() == {"a-0": 1}


def test_nobody_can_elect_a_log_that_does_not_work() -> None:
    under_test = ControllerUnderTest()
    under_test.register_all(3)
    topic_id = under_test.place("a", partition(1, 2, 3, isr=(1,)))
    under_test.lose(1)
    chosen = TopicPartitions(topic="a", partitions=(0,))
    log_fails(under_test, topic_id, 2)
    under_test.handle(ElectLeadersRequest(election_type=1, topic_partitions=(chosen,)))
    assert under_test.leaders() == {"a-0": 3}
