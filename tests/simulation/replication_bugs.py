"""Deliberate bugs of replication: of leaders and of followers.

Owns: the patches.  Must not know how they are caught.
"""

from dataclasses import replace

import sparklog.driver.control_plane.controller.elections as elections
import sparklog.driver.control_plane.controller.partition_changes as partition_changes
import sparklog.executors.partition.replica as replica_module
from sparklog.driver.control_plane.controller.elections import Rules, Settled
from sparklog.executors.log.epoch_cache import EpochCache
from sparklog.executors.partition import AckWait, Effect
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
    """An answer that is to wait for all in-sync replicas waits for the leader."""
    real = LeaderRole._wait_for

    def wait_for(self: LeaderRole, acks: int, end_offset: int) -> AckWait | None:
        return real(self, min(abs(acks), 1), end_offset)

    return [(LeaderRole, "_wait_for", wait_for)]


@bug
def commit_without_the_followers() -> list[Patch]:
    """The high watermark follows the leader's log."""
    return [(IsrState, "replicated_end", lambda self, own_end, leader_end: own_end)]


@bug
def commit_below_min_insync_replicas() -> list[Patch]:
    """The high watermark goes on however few replicas are in sync."""
    real = IsrState._derive

    def measure(self: IsrState) -> None:
        real(self)
        self.under_min_isr = False

    return [(IsrState, "_derive", measure)]


@bug
def leave_out_who_is_proposed_to_leave() -> list[Patch]:
    """Who is to leave the ISR does not count before the controller has agreed."""
    real = IsrState._derive

    def measure(self: IsrState) -> None:
        real(self)
        if self._pending is not None:
            wanted = {replica_id for replica_id, _ in self._pending.isr}
            self._maximal_isr = self._maximal_isr & wanted
            self.under_min_isr = len(wanted) < self.effective_min_isr

    return [(IsrState, "_derive", measure), _NOBODY_IS_ABOUT_TO_JOIN]


@bug
def leave_out_who_is_about_to_join() -> list[Patch]:
    """Who is to join the ISR does not count before the leader has heard that it did."""
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
    """A leader that learns that it was replaced says yes to all who wait."""
    real = Partition.is_settled

    def is_settled(self: Partition, wait: AckWait) -> bool:
        return self.leader_epoch != wait.leader_epoch or real(self, wait)

    return [(Partition, "is_settled", is_settled)]


@bug
def commit_all_that_a_new_leader_has() -> list[Patch]:
    """Whoever is elected takes its whole log for committed."""
    real = Partition.take_role

    def take_role(self: Partition, state: PartitionImage, now_ms: int) -> list[Effect]:
        epoch = self.leader_epoch
        effects = real(self, state, now_ms)
        if self.is_leader and self.leader_epoch != epoch:
            effects += self.move_high_watermark(self.log.log_end_offset)
        return effects

    return [(Partition, "take_role", take_role)]


@bug
def tell_the_latest_offset_too_early() -> list[Patch]:
    """A new leader tells its high watermark before that has caught up (KIP-207)."""
    return [(Replica, "_require_known_end", lambda self: None)]


@bug
def trust_the_fetch_offset() -> list[Patch]:
    """Nobody looks whether a follower's log is the leader's, only whether it is long enough."""
    return [(replica_module, "find_divergence", lambda *_: None)]


@bug
def forget_an_epoch() -> list[Patch]:
    """A log does not note where a leader epoch began, but at every third."""
    real = EpochCache.assign

    def assign(self: EpochCache, epoch: int, start_offset: int) -> None:
        if epoch % 3 == 0:
            real(self, epoch, start_offset)

    return [(EpochCache, "assign", assign)]


@bug
def reopen_a_lost_log_in_the_isr() -> list[Patch]:
    """A log whose files are gone begins again empty, and nobody is told."""

    def may_copy(self: FailedLogs, topic_partition: TopicPartition, state: PartitionImage) -> bool:
        del state
        return self.is_lost(topic_partition)

    return [
        (FailedLogs, "may_copy", may_copy),
        (ReplicaManager, "offline", property(lambda self: {})),
    ]


@bug
def copy_a_lost_log_under_the_same_leader_epoch() -> list[Patch]:
    """What a leader knows of a follower outlives the follower's log."""
    real = FailedLogs.may_copy

    def may_copy(self: FailedLogs, topic_partition: TopicPartition, state: PartitionImage) -> bool:
        failed = self.get(topic_partition)
        if failed is not None and failed.lost:
            self._failed[topic_partition] = replace(failed, leader_epoch=-1)
        return real(self, topic_partition, state)

    def same_epoch(
        before: PartitionImage, broker_id: int, rules: Rules, *, is_newly_lost: bool = False
    ) -> Settled:
        del is_newly_lost
        return elections.replica_lost(before, broker_id, rules)

    return [
        (FailedLogs, "may_copy", may_copy),
        (partition_changes, "replica_lost", same_epoch),
    ]


# followers


@bug
def truncate_by_the_high_watermark() -> list[Patch]:
    """A follower cuts what it does not know to be committed (before KIP-101)."""
    real = FollowerRole.begin

    def begin(self: FollowerRole) -> None:
        real(self)
        replica = self._replica
        replica.log.begin_truncation(replica.high_watermark)
        replica.log.truncate_to(replica.high_watermark, 0)
        replica.log.end_truncation()
        replica.truncated()

    return [(FollowerRole, "begin", begin)]


@bug
def fetch_before_the_flush() -> list[Patch]:
    """A follower says that it has what it has not flushed, where a flush was promised."""
    return [(Partition, "flush_pending", property(lambda self: self.is_leader and _owed(self)))]


def _owed(partition: Partition) -> bool:
    return partition.log.recovery_point < partition.flush_promised


@bug
def serve_what_a_follower_has() -> list[Patch]:
    """Who reads from a follower gets its whole log."""
    real = Replica.readable_end

    def readable_end(self: Replica, isolation: Isolation) -> int:
        return real(self, isolation) if self.is_leader else self.log.log_end_offset

    return [(Replica, "readable_end", readable_end)]
