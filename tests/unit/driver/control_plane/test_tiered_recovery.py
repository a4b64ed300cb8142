"""The leader of a tiered partition after the loss of all of its logs."""

from uuid import UUID

import pytest

from sparklog.driver.control_plane.controller import CountUncleanRecoveries, Decision
from sparklog.metadata import PartitionImage
from sparklog.wire.protocol.private import (
    BrokerHeartbeatRequest,
    LogEnd,
    OfflineReplica,
    ReportLogEndsRequest,
)
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest, directory, partition

BUCKET = {"remote_dir": "memory://bucket/log"}


def placed(
    *isr: int, tiered: bool = True, **settings: str
) -> tuple[ControllerUnderTest, UUID, PartitionImage]:
    under_test = ControllerUnderTest(**(settings or BUCKET))
    under_test.register_all(3)
    state = partition(1, 2, 3, isr=isr)
    overrides = {"remote_storage_enable": "true"} if tiered else {}
    return under_test, under_test.place("a", state, **overrides), state


def state_of(under_test: ControllerUnderTest) -> PartitionImage:
    return under_test.image.topics["a"].partitions[0]


def says_gone(
    under_test: ControllerUnderTest, topic_id: UUID, broker_id: int, *, gone: bool = True
) -> Decision:
    lost = OfflineReplica(topic_id=topic_id, partition=0, lost=True, gone=gone)
    return under_test.handle(
        BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=under_test.epoch_of(broker_id), offline=(lost,)
        )
    )


def reports(
    under_test: ControllerUnderTest, topic_id: UUID, broker_id: int, end: int = 0
) -> Decision:
    return under_test.handle(
        ReportLogEndsRequest(
            broker_id=broker_id,
            broker_epoch=under_test.epoch_of(broker_id),
            ends=(
                LogEnd(
                    topic_id=topic_id,
                    partition=0,
                    current_leader_epoch=state_of(under_test).leader_epoch,
                    leader_epoch=0 if end else -1,
                    log_end_offset=end,
                ),
            ),
        )
    )


def all_lost(**settings: str) -> tuple[ControllerUnderTest, UUID]:
    """Every broker has come back with a new directory."""
    under_test, topic_id, _ = placed(1, 2, 3, **settings)
    under_test.lose(1, 2, 3)
    for broker_id in (1, 2, 3):
        under_test.crash(broker_id, directory_id=directory(10 + broker_id))
    return under_test, topic_id


def test_the_first_replica_leads_once_all_have_reported_empty_logs() -> None:
    under_test, topic_id = all_lost()
    before = state_of(under_test)
    assert (before.leader, before.isr, before.eligible, before.last_known) == (-1, (), (), ())
    assert reports(under_test, topic_id, 3).records == ()
    assert reports(under_test, topic_id, 2).records == ()
    decision = reports(under_test, topic_id, 1)
    after = state_of(under_test)
    assert (after.leader, after.isr, after.last_known) == (1, (1,), (1,))
    assert after.leader_epoch == before.leader_epoch + 1
    assert CountUncleanRecoveries(partitions=1) in decision.effects


@pytest.mark.parametrize("who", [1, 2, 3])
def test_nobody_leads_while_one_has_records(who: int) -> None:
    under_test, topic_id = all_lost()
    for broker_id in (1, 2, 3):
        reports(under_test, topic_id, broker_id, 7 if broker_id == who else 0)
    under_test.tick(3_600_000)
    assert state_of(under_test).leader == -1


def test_nobody_leads_while_one_is_away() -> None:
    under_test, topic_id = all_lost()
    under_test.lose(2)
    for broker_id in (1, 3):
        reports(under_test, topic_id, broker_id)
    under_test.tick(3_600_000)
    assert state_of(under_test).leader == -1
    under_test.crash(2, directory_id=directory(22))
    for broker_id in (1, 2, 3):
        reports(under_test, topic_id, broker_id)
    assert state_of(under_test).leader == 1


def test_a_topic_that_is_not_tiered_waits_for_an_operator() -> None:
    under_test, topic_id, _ = placed(1, tiered=False)
    under_test.lose(1)
    under_test.crash(1, directory_id=directory(11))
    for broker_id in (1, 2, 3):
        reports(under_test, topic_id, broker_id)
    assert state_of(under_test).leader == -1


def test_a_cluster_without_its_remote_dir_recovers_nothing() -> None:
    under_test, topic_id = all_lost(num_partitions="1")
    for broker_id in (1, 2, 3):
        reports(under_test, topic_id, broker_id)
    assert state_of(under_test).leader == -1


def test_the_last_log_that_is_gone_is_given_up() -> None:
    under_test, topic_id, before = placed(1)
    says_gone(under_test, topic_id, 1)
    after = state_of(under_test)
    assert (after.leader, after.isr, after.eligible, after.last_known) == (-1, (), (), ())
    assert after.leader_epoch == before.leader_epoch + 1
    assert says_gone(under_test, topic_id, 1).records == ()
    for broker_id in (1, 2, 3):
        reports(under_test, topic_id, broker_id)
    assert state_of(under_test).leader == -1, "the log of broker 1 is still offline"
    under_test.heartbeat(1)
    under_test.tick(1)
    assert state_of(under_test).leader == 1


def test_the_last_log_stays_the_leaders_while_something_is_left_of_it() -> None:
    under_test, topic_id, before = placed(1)
    says_gone(under_test, topic_id, 1, gone=False)
    assert state_of(under_test) == before


def test_another_replica_leads_when_a_log_is_gone() -> None:
    under_test, topic_id, _ = placed(1, 2)
    says_gone(under_test, topic_id, 1)
    assert (state_of(under_test).leader, state_of(under_test).isr) == (2, (2,))
