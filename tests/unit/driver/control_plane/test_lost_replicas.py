"""An alive broker reports that it has lost its log of a partition, and will copy the leader's."""

from uuid import UUID

import pytest

from sparklog.driver.control_plane.controller import Decision, WarnOperator
from sparklog.errors import ErrorCode
from sparklog.metadata import PartitionImage
from sparklog.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from sparklog.wire.protocol.private import BrokerHeartbeatRequest, OfflineReplica
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest, partition


def state_of(under_test: ControllerUnderTest) -> PartitionImage:
    return under_test.image.topics["a"].partitions[0]


def says_lost(under_test: ControllerUnderTest, topic_id: UUID, broker_id: int) -> Decision:
    return under_test.handle(
        BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=under_test.epoch_of(broker_id),
            offline=(OfflineReplica(topic_id=topic_id, partition=0, lost=True),),
        )
    )


def placed(*isr: int, **overrides: str) -> tuple[ControllerUnderTest, UUID]:
    under_test = ControllerUnderTest()
    under_test.register_all(3)
    return under_test, under_test.place("a", partition(1, 2, 3, isr=isr), **overrides)


@pytest.mark.parametrize("broker_id", [1, 2])
def test_a_lost_log_leaves_every_set_and_the_leader_epoch_rises_once(broker_id: int) -> None:
    under_test, topic_id = placed(1, 2, 3, min_insync_replicas="3")
    before = state_of(under_test)
    says_lost(under_test, topic_id, broker_id)
    after = state_of(under_test)
    others = tuple(i for i in (1, 2, 3) if i != broker_id)
    assert (after.isr, after.eligible, after.last_known) == (others, (), others)
    assert after.leader == others[0]
    assert after.leader_epoch == before.leader_epoch + 1
    assert says_lost(under_test, topic_id, broker_id).records == ()


def test_the_epoch_rises_for_a_follower_that_is_in_no_set() -> None:
    """Its leader may have proposed it for the ISR, because of its fetches before the loss."""
    under_test, topic_id = placed(1, 2)
    before = state_of(under_test)
    says_lost(under_test, topic_id, 3)
    after = state_of(under_test)
    assert (after.leader, after.isr) == (before.leader, before.isr)
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.partition_epoch == before.partition_epoch + 1


def test_a_second_loss_is_news_again() -> None:
    under_test, topic_id = placed(1, 2)
    says_lost(under_test, topic_id, 3)
    under_test.heartbeat(3)
    epoch = state_of(under_test).leader_epoch
    says_lost(under_test, topic_id, 3)
    assert state_of(under_test).leader_epoch == epoch + 1


def test_the_only_one_in_sync_keeps_the_lead_until_an_operator_decides() -> None:
    under_test, topic_id = placed(1)
    before = state_of(under_test)
    (warning,) = says_lost(under_test, topic_id, 1).effects
    assert isinstance(warning, WarnOperator)
    assert warning.message.startswith("the log of a-0 is gone from broker(s) 1, and no other")
    assert says_lost(under_test, topic_id, 1).effects == ()
    assert state_of(under_test) == before
    request = ElectLeadersRequest(
        election_type=1, topic_partitions=(TopicPartitions(topic="a", partitions=(0,)),)
    )
    answer = under_test.handle(request).response
    results = [r.error_code for t in answer.replica_election_results for r in t.partition_result]  # type: ignore[union-attr]
    assert results == [ErrorCode.NONE]
    after = state_of(under_test)
    assert (after.leader, after.isr, after.last_known) == (2, (2,), (2,))


def test_the_last_copy_is_not_moved_away() -> None:
    """Seed 5083 of the simulation."""
    under_test, topic_id = placed(1)
    says_lost(under_test, topic_id, 1)
    moved = ReassignablePartition(partition_index=0, replicas=(1,))
    topics = (ReassignableTopic(name="a", partitions=(moved,)),)
    under_test.handle(AlterPartitionReassignmentsRequest(topics=topics))
    assert state_of(under_test).removing == (2, 3)
    under_test.handle(
        ElectLeadersRequest(
            election_type=1, topic_partitions=(TopicPartitions(topic="a", partitions=(0,)),)
        )
    )
    assert (state_of(under_test).leader, state_of(under_test).isr) == (2, (2,))
    assert state_of(under_test).removing == (2, 3), "broker 1 has not copied it yet"


def test_a_replica_that_a_start_missed_is_never_elected_with_the_registration() -> None:
    """The broker stopped cleanly, so its other partitions continue as before."""
    under_test, topic_id = placed(1, 2, min_insync_replicas="2")
    under_test.heartbeat(1, has_stopped=True)
    assert state_of(under_test).eligible == (1,)
    lost = (OfflineReplica(topic_id=topic_id, partition=0, lost=True),)
    under_test.crash(1, clean_stop=True, offline=lost)
    after = state_of(under_test)
    assert (after.leader, after.isr, after.eligible, after.last_known) == (2, (2,), (), (2,))
    assert not under_test.controller.has_failed(2, topic_id, 0)
    assert under_test.controller.has_failed(1, topic_id, 0)


def test_a_start_without_the_only_log_is_no_unclean_recovery() -> None:
    under_test, topic_id = placed(1)
    lost = (OfflineReplica(topic_id=topic_id, partition=0, lost=True),)
    effects = under_test.crash(1, offline=lost).effects
    assert [type(effect) for effect in effects] == [WarnOperator]
    assert state_of(under_test).leader == 1


@pytest.mark.parametrize("first", [1, 2])
def test_a_lost_log_is_not_elected_while_another_one_may_come_back(first: int) -> None:
    """Found by simulated seed 61042: its election made the other replica lose its eligibility."""
    under_test, topic_id = placed(1, 2, min_insync_replicas="2")
    under_test.lose(1, 2)
    assert (state_of(under_test).leader, set(state_of(under_test).eligible)) == (-1, {1, 2})
    lost = (OfflineReplica(topic_id=topic_id, partition=0, lost=True),)
    under_test.crash(first, clean_stop=True, offline=lost)
    assert (state_of(under_test).leader, state_of(under_test).isr) == (-1, ())
    other = 3 - first
    under_test.crash(other, clean_stop=True)
    says_lost(under_test, topic_id, first)
    after = state_of(under_test)
    assert (after.leader, after.isr, after.last_known) == (other, (other,), (other,))
