"""Deliberate bugs of tiered logs, each as a patch of the real code.

Owns: what the checkers of tiers must catch.  Must not know how it is caught.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sparklog.executors.replica_manager.tier_searches as tier_searches_module
import sparklog.executors.tiering.copy_plan as copy_plan_module
import sparklog.executors.tiering.segment_copier as segment_copier_module
from sparklog.commit_log import CommitLog
from sparklog.errors import SparklogError
from sparklog.executors.log import AbortedTxn, Segment
from sparklog.executors.log.retained_log import RetainedLog
from sparklog.executors.partition import Appended, Effect, Partition, TieredStart
from sparklog.executors.replica_manager.remote_reads import RemoteReads
from sparklog.executors.replication.local_starts import LocalStarts
from sparklog.executors.tiering.copy_plan import Candidate, next_candidate
from sparklog.executors.tiering.follower_starts import FollowerStarts
from sparklog.executors.tiering.leadership import Leadership
from sparklog.executors.tiering.remote_log_manager import RemoteLogManager
from sparklog.metadata import PartitionImage
from sparklog.remote_log import takeover
from sparklog.remote_log.manifest import Manifest
from sparklog.remote_log.manifest_log import MANIFEST
from sparklog.remote_log.remote_segment import EpochStart
from sparklog.remote_log.service import RemoteLogService
from sparklog.types import MAX_INT64, OffsetTimestamp
from tests.simulation.planting import Bug, Patch, bug, unhunted

#: Only runs with tiered topics show these.
TIER_BUGS: set[str] = set()


def of_tiers(make: Bug) -> Bug:
    TIER_BUGS.add(make.__name__)
    return make


def tier_bug(make: Bug) -> Bug:
    return bug(of_tiers(make))


# the two tiers


@tier_bug
def delete_local_segments_before_they_are_copied() -> list[Patch]:
    """Local retention does not look at what is in the bucket."""
    real_offset, real_delete = RetainedLog.local_retention_offset, RetainedLog.delete_local_segments

    def local_retention_offset(self: RetainedLog, now_ms: int, stable_offset: int) -> int:
        self.tiered_end_offset = self.log_end_offset
        return real_offset(self, now_ms, stable_offset)

    def delete_local_segments(self: RetainedLog, offset: int, now_ms: int) -> int:
        self.tiered_end_offset = self.log_end_offset
        return real_delete(self, offset, now_ms)

    return [
        (RetainedLog, "local_retention_offset", local_retention_offset),
        (RetainedLog, "delete_local_segments", delete_local_segments),
    ]


@tier_bug
def copy_above_the_stable_offset() -> list[Patch]:
    """Records are copied that a new leader may take back, or a transaction may abort."""

    def candidate(
        segments: Sequence[Segment], remote_end: int, stable_offset: int, log_start_offset: int
    ) -> Candidate | None:
        return next_candidate(segments, remote_end, MAX_INT64, log_start_offset)

    return [(segment_copier_module, "next_candidate", candidate)]


@tier_bug
def cut_the_aborted_transactions_at_the_segment() -> list[Patch]:
    """A segment lists only the aborted transactions whose markers lie in it, as its local index."""
    real = copy_plan_module.aborted_overlapping

    def aborted_overlapping(
        segments: Sequence[Segment], segment: Segment
    ) -> tuple[AbortedTxn, ...]:
        first, end = segment.base_offset, segment.next_offset
        return tuple(txn for txn in real(segments, segment) if first <= txn.last_offset < end)

    return [(copy_plan_module, "aborted_overlapping", aborted_overlapping)]


@unhunted
@of_tiers
def keep_the_tiered_end_over_a_role_change() -> list[Patch]:
    """What a former leader had in the bucket counts under a new one, which may have removed it."""
    real = Partition.make_leader_or_follower

    def make_leader_or_follower(
        self: Partition, state: PartitionImage, now_ms: int
    ) -> list[Effect]:
        before = self.log.tiered_end_offset
        effects = real(self, state, now_ms)
        self.log.tiered_end_offset = min(before, self.log.log_end_offset)
        return effects

    return [(Partition, "make_leader_or_follower", make_leader_or_follower)]


# the manifest


@tier_bug
def commit_after_a_newer_leader_has_begun() -> list[Patch]:
    """A leader takes the next free number, whoever has written the commit before.

    If it only did not look who leads, it would read what the newer leader has committed, and then
    hardly ever have anything to add.
    """
    real = CommitLog.write_commit

    def write_commit(self: CommitLog[Any, Any, Any], header: Any, encoded_records: bytes) -> Any:
        owner = real(self, header, encoded_records)
        while self._kind is MANIFEST and owner.nonce != header.nonce:
            header = replace(header, version=header.version + 1)
            owner = real(self, header, encoded_records)
        return owner

    return [(CommitLog, "write_commit", write_commit)]


@tier_bug
def delete_garbage_without_a_delay() -> list[Patch]:
    """Objects go with the next look, while queries may read them."""
    real = Manifest.garbage_due
    return [(Manifest, "garbage_due", lambda self, now_ms, delay_ms: real(self, now_ms, 0))]


@tier_bug
def delete_a_live_segment_with_the_garbage() -> list[Patch]:
    """The first segment goes too."""
    real = Manifest.garbage_due

    def garbage_due(self: Manifest, now_ms: int, delay_ms: int) -> list[str]:
        due = real(self, now_ms, delay_ms)
        return due + [each.segment_id for each in self.segments()][: len(due)]

    return [(Manifest, "garbage_due", garbage_due)]


@tier_bug
def take_the_age_of_garbage_from_the_call() -> list[Patch]:
    """The time that a call has waited counts, while queries were told of the segments."""
    return [(RemoteLogService, "_clock", lambda self, called_ms: lambda: called_ms)]


# takeovers


@tier_bug
def take_over_without_a_cut() -> list[Patch]:
    """The segments that a new leader does not have stay in the manifest."""
    return [(Manifest, "divergence", lambda self, leader_epochs, log_end: None)]


@tier_bug
def cut_at_the_log_end_of_a_new_leader() -> list[Patch]:
    """The leader epochs are not compared, only how far the segments and the leader's log reach."""

    def divergence(self: Manifest, leader_epochs: Sequence[EpochStart], log_end: int) -> int | None:
        end = self.end_offset
        return log_end if end is not None and log_end < end else None

    return [(Manifest, "divergence", divergence)]


@tier_bug
def keep_the_segment_in_which_the_logs_diverge() -> list[Patch]:
    """Only the segments behind it leave the manifest."""
    real = Manifest.divergence

    def divergence(self: Manifest, leader_epochs: Sequence[EpochStart], log_end: int) -> int | None:
        offset = real(self, leader_epochs, log_end)
        segment = None if offset is None else self.segment_at(offset)
        if segment is None or segment.base_offset == offset:
            return offset
        return None if segment.next_offset == self.end_offset else segment.next_offset

    return [(Manifest, "divergence", divergence)]


@tier_bug
def cut_the_beginning_of_a_segment_too() -> list[Patch]:
    """The beginning of the segment in which the logs diverge leaves the manifest as well."""
    return [(takeover, "segment_to_shorten", lambda manifest, log, offset: None)]


# lookups


@tier_bug
def look_up_times_on_the_disk_only() -> list[Patch]:
    """The first record since a time is never searched in the bucket."""

    async def first_in_bucket(
        remote_reads: RemoteReads, partition: Partition, timestamp: int
    ) -> OffsetTimestamp | None:
        return None

    return [(tier_searches_module, "_first_in_bucket", first_in_bucket)]


# recoveries


@tier_bug
def commit_all_transactions_whose_markers_are_lost() -> list[Patch]:
    """The leader that ends them does not ask the bucket which were aborted."""
    real = Partition.end_hanging_transactions

    def end_hanging_transactions(
        self: Partition, aborted: Container[tuple[int, int]], *, now_ms: int
    ) -> list[Appended]:
        return real(self, (), now_ms=now_ms)

    return [(Partition, "end_hanging_transactions", end_hanging_transactions)]


# the log start


@tier_bug
def move_the_log_start_in_the_manifest_first() -> list[Patch]:
    """Retention removes segments from the manifest that the log still shows."""
    real = RemoteLogManager._advance_log_start

    async def advance_log_start(self: RemoteLogManager, led: Leadership, offset: int) -> None:
        if led.state is not None and offset > led.state.log_start_offset:
            args = led.leader_epoch, offset, self._now_ms()
            led.state = await self._call(led, "move_log_start", *args)
        await real(self, led, offset)

    return [(RemoteLogManager, "_advance_log_start", advance_log_start)]


@tier_bug
def move_the_log_start_as_a_follower() -> list[Patch]:
    """A follower takes the end of the bucket for the start of the log."""
    real = RemoteLogManager._learn_from_leaders

    async def learn_from_leaders(self: RemoteLogManager) -> None:
        await real(self)
        for partition in self._tiered(led=False):
            log = partition.log
            log.advance_log_start(min(log.tiered_end_offset, partition.high_watermark))

    return [(RemoteLogManager, "_learn_from_leaders", learn_from_leaders)]


@tier_bug
def leave_the_bucket_without_asking_the_other_replicas() -> list[Patch]:
    """The log of a topic that leaves starts where the files of its leader begin."""

    async def ask(self: LocalStarts, partition: Partition) -> Mapping[int, int | SparklogError]:
        state = partition.state
        return {} if state is None else {b: 0 for b in state.replicas if b != partition.node_id}

    return [(LocalStarts, "ask", ask)]


# followers


@tier_bug
def start_a_follower_without_leader_epochs() -> list[Patch]:
    """A follower that starts from the bucket knows no leader epochs below its start."""
    real = FollowerStarts.find

    async def find(
        self: FollowerStarts,
        partition: Partition,
        log_start_offset: int,
        local_log_start_offset: int,
    ) -> TieredStart:
        found = await real(self, partition, log_start_offset, local_log_start_offset)
        return found._replace(leader_epochs=())

    return [(FollowerStarts, "find", find)]


@tier_bug
def start_a_follower_without_producers() -> list[Patch]:
    """A follower that starts from the bucket knows no producers of the records there."""
    real = FollowerStarts.find

    async def find(
        self: FollowerStarts,
        partition: Partition,
        log_start_offset: int,
        local_log_start_offset: int,
    ) -> TieredStart:
        found = await real(self, partition, log_start_offset, local_log_start_offset)
        return found._replace(producer_snapshot=None)

    return [(FollowerStarts, "find", find)]
