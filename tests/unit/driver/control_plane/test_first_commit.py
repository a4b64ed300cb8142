"""The commit that takes a journal over, also one from which the last commits are missing."""

from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.driver.control_plane.controller import CountUncleanRecoveries, Decision
from sparklog.driver.control_plane.controller.topics import create_partitions
from sparklog.driver.control_plane.first_commit import first_records
from sparklog.driver.control_plane.skipped_numbers import (
    CONTROLLER_EPOCHS_SKIPPED,
    EPOCHS_SKIPPED,
    PRODUCER_IDS_SKIPPED,
)
from sparklog.metadata import (
    ClusterImage,
    ControllerChanged,
    PartitionChanged,
    PartitionImage,
    PartitionsAdded,
)
from sparklog.runtime_environment import SYSTEM
from sparklog.types import NO_NODE, Endpoint, TopicPartition
from sparklog.wire.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from sparklog.wire.protocol.private import LogEnd, ReportLogEndsRequest
from tests.unit.driver.control_plane.damaged_journals import image_at
from tests.unit.driver.control_plane.driver_fakes import (
    ControllerUnderTest,
    directory,
    partition,
)

HERE = Endpoint("10.0.0.1", 9000)
BUCKET = "memory://bucket/log"


def taken_over(image: ClusterImage, *, journal_may_be_old: bool = True) -> ClusterImage:
    """The image after the first commit."""
    epoch, records = first_records(image, HERE, SYSTEM, journal_may_be_old=journal_may_be_old)
    after = image.copy()
    after.replay_commit(image.version + 1, records)
    after.check_invariants()
    assert after.controller_epoch == epoch
    assert after.controller.endpoint == HERE
    return after


def test_the_journal_of_a_cluster_is_taken_over_with_a_higher_controller_epoch_alone() -> None:
    _, records = first_records(image_at(6), HERE, SYSTEM, journal_may_be_old=False)
    assert records == (ControllerChanged(controller_epoch=3, host=HERE.host, port=HERE.port),)


def test_no_number_that_the_missing_commits_may_have_used_is_used_again() -> None:
    """The copy ends at commit 6 of 10; the cluster has had all of them."""
    copied, last = image_at(6), image_at(10)
    after = taken_over(copied)
    assert after.controller_epoch == copied.controller_epoch + 1 + CONTROLLER_EPOCHS_SKIPPED
    assert after.next_producer_id == copied.next_producer_id + PRODUCER_IDS_SKIPPED
    assert after.next_producer_id > last.next_producer_id
    for tp, before in copied.partitions():
        known, raised = last.partition(tp), after.partition(tp)
        assert known is not None
        assert raised is not None
        assert raised.leader_epoch == before.leader_epoch + EPOCHS_SKIPPED > known.leader_epoch
        assert raised.partition_epoch > known.partition_epoch
        assert (raised.leader, raised.isr, raised.eligible) == (NO_NODE, (), ())
    for broker_id, broker in after.brokers.items():
        assert broker.broker_epoch > last.brokers[broker_id].broker_epoch
        assert broker.fenced


def test_a_replica_that_was_not_complete_does_not_count_as_such() -> None:
    """It may have a log that ends before the bucket does."""
    image = image_at(6)
    known = image.partition(TopicPartition("t", 0))
    assert known is not None
    assert known.isr == (2,)
    topic = image.topics["t"]
    topic.partitions[0] = replace(known, last_known=(2,))
    after = taken_over(image).partition(TopicPartition("t", 0))
    assert after is not None
    assert (after.replicas, after.last_known) == ((1, 2), (2,))


class Restored:
    """A tiered partition of three replicas, of which the first two were complete."""

    def __init__(self) -> None:
        before = ControllerUnderTest(remote_dir=BUCKET)
        before.register_all(3)
        state = partition(1, 2, 3, isr=(1, 2), leader_epoch=5)
        self.topic_id: UUID = before.place("a", state, remote_storage_enable="true")
        self.under_test = ControllerUnderTest(image=taken_over(before.image), remote_dir=BUCKET)

    def begin(self, broker_id: int, *, log_end_offset: int | None = None) -> Decision:
        """The broker begins, with a new directory or with a log; it reports where that ends."""
        changes = {} if log_end_offset else {"directory_id": directory(10 + broker_id)}
        self.under_test.crash(broker_id, clean_stop=True, **changes)
        end = LogEnd(
            topic_id=self.topic_id,
            partition=0,
            current_leader_epoch=self.state.leader_epoch,
            leader_epoch=5 if log_end_offset else -1,
            log_end_offset=log_end_offset or 0,
        )
        return self.under_test.handle(
            ReportLogEndsRequest(
                broker_id=broker_id, broker_epoch=self.under_test.epoch_of(broker_id), ends=(end,)
            )
        )

    @property
    def state(self) -> PartitionImage:
        return self.under_test.state("a")


def test_a_tiered_partition_is_led_once_all_replicas_have_begun_empty() -> None:
    restored = Restored()
    for broker_id in (1, 2):
        restored.begin(broker_id)
        assert restored.state.leader == NO_NODE
    decision = restored.begin(3)
    # The reports of the others were of the same leader epoch: no election came between.
    assert CountUncleanRecoveries(partitions=1) in decision.effects
    assert (restored.state.leader, restored.state.leader_epoch) == (1, 5 + EPOCHS_SKIPPED + 1)


def test_a_complete_replica_that_is_left_leads() -> None:
    restored = Restored()
    restored.begin(2)
    restored.begin(3)
    assert restored.state.leader == NO_NODE
    restored.begin(1, log_end_offset=7)
    assert (restored.state.leader, restored.state.isr) == (1, (1,))


@pytest.mark.parametrize("others", [(1, 2), (2, 1)])
def test_an_incomplete_replica_that_is_left_waits_for_the_operator(others: tuple[int, int]) -> None:
    restored = Restored()
    restored.begin(3, log_end_offset=7)
    for broker_id in others:
        restored.begin(broker_id)
    restored.under_test.tick(3_600_000)
    assert restored.state.leader == NO_NODE


@pytest.mark.parametrize(("known", "first"), [(3, 0), (EPOCHS_SKIPPED + 3, EPOCHS_SKIPPED + 3)])
def test_partitions_that_are_added_again_begin_above_the_epochs_of_lost_commits(
    known: int, first: int
) -> None:
    """The remote_dir may have records of partitions that the lost commits had added."""
    under_test = ControllerUnderTest()
    under_test.register(1)
    under_test.create("a")
    image = under_test.image.copy()
    state = partition(1, leader_epoch=known)
    changed = PartitionChanged(topic="a", partition=0, state=state)
    image.replay_commit(image.version + 1, [changed])
    wanted = CreatePartitionsTopic(name="a", count=3)
    [added] = create_partitions(image, CreatePartitionsRequest(topics=(wanted,))).records
    assert isinstance(added, PartitionsAdded)
    assert [each.leader_epoch for each in added.partitions] == [first, first]
