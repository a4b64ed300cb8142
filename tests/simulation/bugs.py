"""Deliberate bugs: what the checkers must catch, each as a patch of the real code.

Owns: those of one broker and of the journal; ``replication_bugs``, ``controller_bugs``,
``coordinator_bugs``, ``cleaner_bugs``, ``tier_bugs`` and ``transaction_bugs`` have the others.
Must not know how they are caught.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import sparklog.executors.log.durable_log as durable_log_module
import sparklog.executors.log.log_loader as log_loader_module
import sparklog.executors.log.recovery as recovery_module
import sparklog.executors.log_dirs.stray_dirs as stray_dirs_module
import sparklog.executors.replica_manager.log_manager as log_manager_module
from sparklog.driver.control_plane.group_commit import GroupCommitter, OnOutcome
from sparklog.driver.control_plane.journal import CommitHeader, Journal, JournalConflict
from sparklog.errors import KafkaError, StorageError
from sparklog.executors.log.flush import FlushJob, FlushState
from sparklog.executors.log.log import AppendInfo, Log
from sparklog.executors.log.offset_index import OffsetIndex
from sparklog.executors.log.scan import Scan, ScanWindow
from sparklog.executors.log.txn_index import AbortedTxn
from sparklog.executors.log_dirs.broker_dir import BrokerDir, LogOffsets
from sparklog.executors.partition import PartitionRead
from sparklog.executors.partition.partition import Partition
from sparklog.executors.partition.producer_state import ProducerEntry, ProducerStateManager
from sparklog.metadata import Record
from sparklog.segment_files.index_entries import OffsetPosition
from sparklog.storage_backends.base import FileHalf, FileHandle
from sparklog.wire.records.batch import BatchHeader, Buffer
from tests.simulation import (
    cleaner_bugs,
    controller_bugs,
    coordinator_bugs,
    replication_bugs,
    tier_bugs,
    transaction_bugs,
)
from tests.simulation.planting import BUGS, Patch, bug, planted

__all__ = [
    "BUGS",
    "cleaner_bugs",
    "controller_bugs",
    "coordinator_bugs",
    "planted",
    "replication_bugs",
    "tier_bugs",
    "transaction_bugs",
]

# the append


@bug
def acknowledge_before_the_write() -> list[Patch]:
    """A write that fails is acknowledged all the same."""
    real = Log.append

    def append(
        self: Log,
        buffers: Sequence[Buffer],
        headers: Sequence[BatchHeader],
        now_ms: int,
        aborted: AbortedTxn | None = None,
    ) -> AppendInfo:
        try:
            return real(self, buffers, headers, now_ms, aborted)
        except StorageError:
            return AppendInfo(
                base_offset=headers[0].base_offset,
                last_offset=headers[-1].last_offset,
                segment_base_offset=headers[0].base_offset,
                position=0,
                size=0,
                rolled=False,
            )

    return [(Log, "append", append)]


@bug
def acknowledge_before_the_flush() -> list[Patch]:
    """No response waits for a promised flush."""
    return [(Partition, "flush_pending", property(lambda self: False))]


@bug
def accept_a_duplicate() -> list[Patch]:
    """A repeated batch is written again."""
    return [
        (ProducerEntry, "find_duplicate", lambda self, header: None),
        (ProducerStateManager, "_check_sequence", lambda self, entry, header, offset: None),
    ]


# flush


@bug
def believe_a_failed_flush() -> list[Patch]:
    """Records whose flush failed count as flushed."""
    real = FlushJob.run

    def run(self: FlushJob) -> None:
        try:
            real(self)
        except StorageError:
            return

    return [(FlushJob, "run", run)]


@bug
def count_later_appends_as_flushed() -> list[Patch]:
    """Records that are appended during a flush count as flushed by it."""
    real = FlushState.finished

    def finished(self: FlushState, job: FlushJob, log_end_offset: int) -> None:
        real(self, replace(job, target=log_end_offset), log_end_offset)

    return [(FlushState, "finished", finished)]


@bug
def forget_the_directory_at_a_roll() -> list[Patch]:
    """The names of new segments are not flushed."""
    real = durable_log_module.make_job

    def make_job(*args: Any, **more: Any) -> FlushJob:
        return real(*args, **{**more, "flush_names": False})

    return [(durable_log_module, "make_job", make_job)]


# recovery


@bug
def skip_the_crc_in_recovery() -> list[Patch]:
    """Torn bytes of the right length count as a batch."""
    return [(ScanWindow, "checksum_damage", lambda self, header, position: None)]


@bug
def truncate_one_batch_too_many() -> list[Patch]:
    """The recovery drops a torn tail together with the sound batch before it."""
    real = recovery_module.scan_batches

    def scan_batches(
        handle: FileHandle,
        base_offset: int,
        visit: Callable[[BatchHeader, int], None],
        **more: int,
    ) -> Scan:
        batches: list[tuple[BatchHeader, int]] = []
        scan = real(handle, base_offset, lambda header, at: batches.append((header, at)), **more)
        if scan.damage is not None and batches:
            header, position = batches.pop()
            scan = replace(scan, valid_size=position, next_offset=header.base_offset)
        for header, position in batches:
            visit(header, position)
        return scan

    return [(recovery_module, "scan_batches", scan_batches)]


@bug
def believe_in_a_clean_stop() -> list[Patch]:
    """Every start trusts the files on the disk, as after a clean stop."""
    real = BrokerDir._read_notes

    def read_notes(self: BrokerDir) -> None:
        real(self)
        self.clean = True

    return [(BrokerDir, "_read_notes", read_notes)]


@bug
def forget_the_producer_snapshot() -> list[Patch]:
    """Producers are known only from the batches behind the snapshot."""
    real = ProducerStateManager.load_snapshot

    def load_snapshot(self: ProducerStateManager, data: bytes, now_ms: int = 0) -> None:
        real(self, data, now_ms)
        self.clear()

    return [(ProducerStateManager, "load_snapshot", load_snapshot)]


@bug
def forget_the_log_start() -> list[Patch]:
    """Deleted records come back with the next start."""
    real = BrokerDir.write_checkpoints

    def write_checkpoints(self: BrokerDir, offsets: LogOffsets) -> None:
        real(self, replace(offsets, log_starts={}))

    return [(BrokerDir, "write_checkpoints", write_checkpoints)]


# reading


@bug
def index_one_entry_too_far() -> list[Patch]:
    """A lookup returns the entry behind the right entry."""
    real = OffsetIndex.lookup

    def lookup(self: OffsetIndex, offset: int) -> OffsetPosition:
        found = real(self, offset)
        entries: Iterable[OffsetPosition] = map(self.entry_at, range(self.entries))
        return next((entry for entry in entries if entry.offset > found.offset), found)

    return [(OffsetIndex, "lookup", lookup)]


@bug
def read_past_the_high_watermark() -> list[Patch]:
    """Clients read up to the log end, as replicas do."""
    real = Partition.read

    def read(self: Partition, offset: int, max_bytes: int, **more: Any) -> PartitionRead:
        return real(self, offset, max_bytes, **{**more, "replica_id": 0})

    return [(Partition, "read", read)]


@bug
def high_watermark_past_the_log_end() -> list[Patch]:
    """The high watermark is one above the log end."""
    real = Partition.own_end.fget
    assert real is not None
    return [(Partition, "own_end", property(lambda self: real(self) + 1))]


@bug
def deletion_leaves_the_records() -> list[Patch]:
    """A topic that comes back under its name finds the records of the deleted one."""
    real = log_loader_module.claim_partition_dir

    def claim_partition_dir(
        half: FileHalf, partition_dir: str, topic_id: UUID | None
    ) -> UUID | None:
        try:
            return real(half, partition_dir, topic_id)
        except KafkaError:
            return topic_id

    return [
        (log_manager_module, "delete_partition_dir", lambda *_: None),
        (stray_dirs_module, "find_stray_dirs", lambda *_: []),
        (log_loader_module, "claim_partition_dir", claim_partition_dir),
    ]


# the journal


@bug
def journal_without_a_nonce() -> list[Patch]:
    """A commit number that another controller has taken counts as this controller's commit."""
    real = Journal.commit

    def commit(self: Journal, header: CommitHeader, encoded_records: bytes) -> None:
        try:
            real(self, header, encoded_records)
        except JournalConflict:
            return

    return [(Journal, "commit", commit)]


@bug
def stale_controller_keeps_deciding() -> list[Patch]:
    """A controller whose commit number is taken goes on with the next number."""
    real = Journal.commit

    def commit(self: Journal, header: CommitHeader, encoded_records: bytes) -> None:
        while True:
            try:
                return real(self, header, encoded_records)
            except JournalConflict:
                header = replace(header, version=header.version + 1)

    return [(Journal, "commit", commit)]


@bug
def answer_before_the_commit() -> list[Patch]:
    """A decision of the controller is answered before it is in the journal."""
    real = GroupCommitter.add

    def add(self: GroupCommitter, records: tuple[Record, ...], on_outcome: OnOutcome) -> None:
        real(self, records, lambda failure: None)
        on_outcome(None)

    return [(GroupCommitter, "add", add)]
