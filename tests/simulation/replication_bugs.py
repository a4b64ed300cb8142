"""Deliberate bugs of replication: of leaders and of followers.

Owns: the patches.  Must not know how they are caught.
"""

from dataclasses import replace

import sparklog.driver.control_plane.controller.partition_changes as partition_changes
import sparklog.driver.control_plane.controller.partition_transitions as transitions
import sparklog.executors.partition.replica as replica_module
from sparklog.driver.control_plane.controller.partition_transitions import Rules, Transition
from sparklog.executors.log.epoch_cache import EpochCache
from sparklog.executors.partition import Effect, RequiredOffset
from sparklog.executors.partition.follower_role import FollowerRole
from sparklog.executors.partition.isr import IsrState
from sparklog.executors.partition.leader_role import LeaderRole
from sparklog.executors.partition.partition import Partition
from sparklog.executors.partition.remote_replica import RemoteReplica
from sparklog.executors.partition.replica import Replica
from sparklog.executors.replica_manager.failed_logs import FailedLogs
from sparklog.executors.replica_manager.replica_manager import ReplicaManager
from sparklog.metadata import PartitionImage
from sparklog.types import Isolation, TopicPartition
from tests.simulation.planting import Patch, bug

# leaders

_NOBODY_IS_ABOUT_TO_JOIN: Patch = (RemoteReplica, "is_about_to_join", lambda self, *_: False)


@bug
def acknowledge_before_replication() -> list[Patch]:
    """A response with acks=all waits only for the leader."""
    real = LeaderRole._required_offset

    def required_offset(self: LeaderRole, acks: int, end_offset: int) -> RequiredOffset | None:
        return real(self, min(abs(acks), 1), end_offset)

    return [(LeaderRole, "_required_offset", required_offset)]


@bug
def commit_without_the_followers() -> list[Patch]:
    """The high watermark is the end of the leader's log."""
    return [(IsrState, "replicated_end", lambda self, own_end, leader_end: own_end)]


@bug
def commit_below_min_insync_replicas() -> list[Patch]:
    """The high watermark advances although the ISR is smaller than min.insync.replicas."""
    real = IsrState._derive

    def measure(self: IsrState) -> None:
        real(self)
        self.under_min_isr = False

    return [(IsrState, "_derive", measure)]


@bug
def shrink_before_the_answer() -> list[Patch]:
    """A replica that is proposed to leave the ISR counts as outside before the answer."""
    real = IsrState._derive

    def measure(self: IsrState) -> None:
        real(self)
        if self._pending is not None:
            wanted = {replica_id for replica_id, _ in self._pending.isr}
            self._maximal_isr = self._maximal_isr & wanted
            self.under_min_isr = len(wanted) < self.effective_min_isr

    return [(IsrState, "_derive", measure), _NOBODY_IS_ABOUT_TO_JOIN]


@bug
def ignore_a_follower_about_to_join() -> list[Patch]:
    """A replica that is proposed to join the ISR counts as outside until the answer."""
    real = IsrState._derive

    def measure(self: IsrState) -> None:
        real(self)
        members = self._state.isr if self._state is not None else ()
        self._maximal_isr = frozenset(members) - {self._node_id}

    return [(IsrState, "_derive", measure), _NOBODY_IS_ABOUT_TO_JOIN]


@bug
def join_from_anywhere() -> list[Patch]:
    """A follower joins the ISR with its first fetch."""
    real = IsrState._may_join

    def may_join(self: IsrState, replica_id: int, least_end: int) -> bool:
        return real(self, replica_id, min(least_end, 0))

    return [(IsrState, "_may_join", may_join)]


@bug
def acknowledge_when_replaced() -> list[Patch]:
    """A leader that was replaced acknowledges every delayed produce."""
    real = Partition.has_reached

    def has_reached(self: Partition, required: RequiredOffset) -> bool:
        return self.leader_epoch != required.leader_epoch or real(self, required)

    return [(Partition, "has_reached", has_reached)]


@bug
def commit_the_whole_log_of_a_new_leader() -> list[Patch]:
    """A new leader takes its whole log for committed."""
    real = Partition.make_leader_or_follower

    def make_leader_or_follower(
        self: Partition, state: PartitionImage, now_ms: int
    ) -> list[Effect]:
        epoch = self.leader_epoch
        effects = real(self, state, now_ms)
        if self.is_leader and self.leader_epoch != epoch:
            effects += self.move_high_watermark(self.log.log_end_offset)
        return effects

    return [(Partition, "make_leader_or_follower", make_leader_or_follower)]


@bug
def answer_latest_too_early() -> list[Patch]:
    """A new leader answers "latest" before its high watermark has caught up (KIP-207)."""
    return [(Replica, "_require_known_end", lambda self: None)]


@bug
def trust_the_fetch_offset() -> list[Patch]:
    """The leader does not check whether a follower's log diverges, only where it ends."""
    return [(replica_module, "find_divergence", lambda *_: None)]


@bug
def forget_an_epoch() -> list[Patch]:
    """A log notes only every third leader epoch in its history."""
    real = EpochCache.assign

    def assign(self: EpochCache, epoch: int, start_offset: int) -> None:
        if epoch % 3 == 0:
            real(self, epoch, start_offset)

    return [(EpochCache, "assign", assign)]


@bug
def reopen_a_lost_log_in_the_isr() -> list[Patch]:
    """A log whose files are gone begins again empty, and the controller is not told."""

    def may_copy(self: FailedLogs, topic_partition: TopicPartition, state: PartitionImage) -> bool:
        del state
        return self.is_lost(topic_partition)

    return [
        (FailedLogs, "may_copy", may_copy),
        (ReplicaManager, "offline", property(lambda self: {})),
    ]


@bug
def copy_a_lost_log_under_the_same_leader_epoch() -> list[Patch]:
    """A leader keeps its state of a follower whose log was lost, in the same leader epoch."""
    real = FailedLogs.may_copy

    def may_copy(self: FailedLogs, topic_partition: TopicPartition, state: PartitionImage) -> bool:
        failed = self.get(topic_partition)
        if failed is not None and failed.lost:
            self._failed[topic_partition] = replace(failed, leader_epoch=-1)
        return real(self, topic_partition, state)

    def same_epoch(
        before: PartitionImage,
        broker_id: int,
        rules: Rules,
        *,
        is_newly_lost: bool = False,
        is_gone: bool = False,
    ) -> Transition:
        del is_newly_lost
        return transitions.replica_lost(before, broker_id, rules, is_gone=is_gone)

    return [
        (FailedLogs, "may_copy", may_copy),
        (partition_changes, "replica_lost", same_epoch),
    ]


# followers


@bug
def truncate_by_the_high_watermark() -> list[Patch]:
    """A follower truncates to its high watermark (before KIP-101)."""
    real = FollowerRole.make_follower

    def make_follower(self: FollowerRole) -> None:
        real(self)
        replica = self._replica
        replica.log.begin_truncation(replica.high_watermark)
        replica.log.truncate_to(replica.high_watermark, 0)
        replica.log.end_truncation()
        replica.truncated()

    return [(FollowerRole, "make_follower", make_follower)]


@bug
def fetch_before_the_flush() -> list[Patch]:
    """A follower fetches behind records that it has promised to flush and not flushed."""
    return [
        (Partition, "flush_pending", property(lambda self: self.is_leader and _flush_pending(self)))
    ]


def _flush_pending(partition: Partition) -> bool:
    return partition.log.recovery_point < partition.flush_promised


@bug
def serve_above_the_high_watermark_of_a_follower() -> list[Patch]:
    """A consumer that reads from a follower gets records above the high watermark."""
    real = Replica.readable_end

    def readable_end(self: Replica, isolation: Isolation) -> int:
        return real(self, isolation) if self.is_leader else self.log.log_end_offset

    return [(Replica, "readable_end", readable_end)]
