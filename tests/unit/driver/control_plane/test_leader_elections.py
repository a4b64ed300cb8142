"""ElectLeaders, and leader rebalancing."""

from dataclasses import replace

from sparklog.driver.control_plane.controller import CountUncleanRecoveries, Decision, WarnOperator
from sparklog.errors import ErrorCode
from sparklog.metadata import PartitionImage
from sparklog.wire.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from sparklog.wire.protocol.private import LogEnd, ReportLogEndsRequest
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest, changed, partition

PREFERRED, UNCLEAN = 0, 1
ASTRAY = partition(1, 2, leader=2)


def three_brokers(*states: PartitionImage, **settings: str) -> ControllerUnderTest:
    under_test = ControllerUnderTest(**settings)
    under_test.register_all(3)
    under_test.place("a", *states)
    return under_test


def elect(election_type: int, *partitions: int, topic: str = "a") -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=(TopicPartitions(topic=topic, partitions=partitions),),
    )


def answer(*results: PartitionResult, topic: str = "a") -> ElectLeadersResponse:
    return ElectLeadersResponse(
        replica_election_results=(ReplicaElectionResult(topic=topic, partition_result=results),)
    )


def refused(number: int, code: ErrorCode, message: str) -> PartitionResult:
    return PartitionResult(partition_id=number, error_code=code, error_message=message)


def led_again(state: PartitionImage, leader: int) -> PartitionImage:
    return replace(
        state,
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        partition_epoch=state.partition_epoch + 1,
    )


# -- preferred


def test_partitions_go_back_to_their_preferred_leaders() -> None:
    under_test = three_brokers(ASTRAY, partition(1, 2), partition(3, 1, isr=(1,), leader=1))
    assert under_test.handle(elect(PREFERRED, 0, 0, 1, 2, 3)) == Decision(
        records=(changed("a", led_again(ASTRAY, 1)),),
        response=answer(
            PartitionResult(partition_id=0),
            refused(1, ErrorCode.ELECTION_NOT_NEEDED, "broker 1 leads a-1 already"),
            refused(
                2,
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                "broker 3, the preferred leader of a-2, is not alive and in sync",
            ),
            refused(3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition a-3"),
        ),
    )


def test_asked_for_all_partitions_only_those_in_question_are_answered_of_every_topic() -> None:
    under_test = three_brokers(ASTRAY, partition(1, 2), partition(3, 1, isr=(1,), leader=1))
    under_test.place("b", partition(2, 1))
    decision = under_test.handle(ElectLeadersRequest())
    of_a = answer(
        PartitionResult(partition_id=0),
        refused(
            2,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            "broker 3, the preferred leader of a-2, is not alive and in sync",
        ),
    )
    [result_of_a, result_of_b] = decision.response.replica_election_results
    assert (result_of_a,) == of_a.replica_election_results
    assert result_of_b == ReplicaElectionResult(topic="b")
    assert under_test.leaders() == {"a-0": 1, "a-1": 1, "a-2": 1, "b-0": 2}


def test_a_broker_that_stops_is_not_preferred() -> None:
    under_test = three_brokers(partition(1, 2))
    under_test.heartbeat(1, wants_stop=True)
    under_test.handle(elect(PREFERRED, 0))
    assert under_test.leaders() == {"a-0": 2}


def test_an_unknown_topic_and_an_unknown_type_are_refused() -> None:
    under_test = three_brokers(ASTRAY)
    assert under_test.handle(elect(PREFERRED, 0, topic="x")) == Decision(
        response=answer(
            refused(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition x-0"), topic="x"
        )
    )
    assert under_test.refusal(elect(7, 0)) == ErrorCode.INVALID_REQUEST


# -- unclean


def test_an_unclean_election_takes_the_best_log_that_is_known() -> None:
    under_test = three_brokers(partition(1, 2, 3, isr=(1,)))
    under_test.lose(1)
    before = under_test.state("a")
    topic_id = under_test.image.topics["a"].topic_id
    for broker_id, end in ((2, 10), (3, 12)):
        log_end = LogEnd(
            topic_id=topic_id, current_leader_epoch=1, leader_epoch=0, log_end_offset=end
        )
        report = ReportLogEndsRequest(broker_id=broker_id, broker_epoch=0, ends=(log_end,))
        assert under_test.handle(report).records == ()
    after = led_again(replace(before, isr=(3,), eligible=(), last_known=(3,)), 3)
    assert under_test.handle(elect(UNCLEAN, 0)) == Decision(
        records=(changed("a", after),),
        response=answer(PartitionResult(partition_id=0)),
        effects=(
            WarnOperator(
                message="unclean recovery, the best log at hand leads: a-0 by broker 3; records "
                "that it lacks are lost, even if they were acknowledged"
            ),
            CountUncleanRecoveries(partitions=1),
        ),
    )


def test_without_reports_a_replica_that_was_complete_once_goes_first() -> None:
    under_test = three_brokers(
        partition(1, 2, 3, isr=(), eligible=(), leader=-1, last_known=(1, 3)),
        partition(1, 2, 3, isr=(), eligible=(), leader=-1, last_known=()),
    )
    under_test.lose(1)
    under_test.handle(elect(UNCLEAN, 0, 1))
    assert under_test.leaders() == {"a-0": 3, "a-1": 2}


def test_what_has_a_leader_or_no_living_replica_is_left_alone() -> None:
    under_test = three_brokers(partition(1, 2), partition(3))
    under_test.lose(3)
    assert under_test.handle(elect(UNCLEAN, 0, 1)) == Decision(
        response=answer(
            refused(0, ErrorCode.ELECTION_NOT_NEEDED, "a-0 has a leader, broker 1"),
            refused(
                1,
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                "no replica of a-1 is alive and works; its brokers are [3]",
            ),
        )
    )


# -- leader rebalancing

EVERY_MS = 300_000


def test_partitions_return_when_a_broker_leads_too_few_of_its_own() -> None:
    under_test = three_brokers(ASTRAY, *[partition(1, 2)] * 8, partition(3, 1, leader=1))
    assert under_test.tick(EVERY_MS - 1) == Decision()
    # Broker 1 does not lead one of its nine partitions, broker 3 not its only one.
    assert under_test.tick(EVERY_MS).records == (
        changed("a", led_again(ASTRAY, 1)),
        changed("a", led_again(partition(3, 1, leader=1), 3), number=9),
    )
    assert under_test.tick(2 * EVERY_MS) == Decision()


def test_a_tenth_may_be_astray() -> None:
    under_test = three_brokers(ASTRAY, *[partition(1, 2)] * 9)
    assert under_test.tick(EVERY_MS) == Decision()


def test_what_is_not_in_sync_stays_where_it_is() -> None:
    under_test = three_brokers(partition(1, 2, isr=(2,), leader=2))
    assert under_test.tick(EVERY_MS) == Decision()


def test_it_can_be_turned_off_and_made_stricter() -> None:
    off = three_brokers(ASTRAY, auto_leader_rebalance_enable="false")
    assert off.tick(EVERY_MS) == Decision()
    strict = ControllerUnderTest(
        **{"leader.imbalance.per.broker.percentage": "0"},
        **{"leader.imbalance.check.interval.seconds": "10"},
    )
    strict.register_all(3)
    strict.place("a", ASTRAY, *[partition(1, 2)] * 99)
    assert strict.tick(9_999) == Decision()
    assert strict.tick(10_000).records == (changed("a", led_again(ASTRAY, 1)),)
