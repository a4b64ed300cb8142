"""The leader epochs of a log and their start offsets.

Owns: the ordered epochs of ``leader-epoch-checkpoint`` (``LeaderEpochFileCache``, KIP-101, KIP-279)
and the lookups for truncation.  Must not know files: ``dirty`` says that the checkpoint must be
written again.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from sparklog.executors.log.checkpoint import EpochEntry, encode_epochs
from sparklog.types import NO_LEADER_EPOCH, NO_OFFSET
from sparklog.wire.records.batch import BatchHeader


class EpochCache:
    """Epochs and start offsets, both ascending."""

    __slots__ = ("_entries", "dirty")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries = list(entries)
        self.dirty = False

    @property
    def entries(self) -> Sequence[EpochEntry]:
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The largest known epoch; -1 when no epoch is known."""
        return self._entries[-1].epoch if self._entries else NO_LEADER_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that ``epoch`` begins at ``start_offset``.

        Entries that contradict the log are dropped: a leader that lost its role left them behind.
        """
        if epoch < 0 or (self._entries and self._entries[-1].epoch == epoch):
            return
        while self._entries and (
            self._entries[-1].epoch > epoch or self._entries[-1].start_offset >= start_offset
        ):
            self._entries.pop()
        if self.latest_epoch != epoch:
            self._entries.append(EpochEntry(epoch, start_offset))
        self.dirty = True

    def assign_all(self, headers: Iterable[BatchHeader]) -> None:
        """Note the epochs of batches that follow each other at the log's end."""
        for header in headers:
            self.assign(header.partition_leader_epoch, header.base_offset)

    def correct(self, epoch: int, offset: int) -> None:
        """Note that the batch at ``offset`` is of ``epoch``, and drop later epochs at that offset.

        A leader that wrote no record may have written its epoch to the checkpoint; batches of an
        older epoch that it copied afterwards show that.
        """
        if epoch < 0 or self.epoch_at(offset) <= epoch:
            return
        begun = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        kept = [entry for entry in self._entries[:begun] if entry.epoch <= epoch]
        if not kept or kept[-1].epoch < epoch:
            kept.append(EpochEntry(epoch, offset))
        self._entries[:begun] = kept
        self.dirty = True

    def start_after(self, epoch: int) -> int | None:
        """Where the first epoch above ``epoch`` begins; None without such an epoch."""
        index = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        return self._entries[index].start_offset if index < len(self._entries) else None

    def epoch_at(self, offset: int) -> int:
        """The epoch of ``offset``; -1 below the first known epoch."""
        if self._entries and self._entries[-1].start_offset <= offset:
            return self._entries[-1].epoch
        index = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[index - 1].epoch if index else NO_LEADER_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The answer of OffsetForLeaderEpoch: the largest known epoch <= ``epoch``, and its end.

        Returns (-1, -1) when ``epoch`` is negative or above all known epochs.
        """
        if epoch < 0 or epoch > self.latest_epoch:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        index = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        found = self._entries[index - 1].epoch if index else epoch
        return found, self._entries[index].start_offset

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that begin at or after ``end_offset``, where the log ends now."""
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
            self.dirty = True

    def truncate_from_start(self, start_offset: int, end_offset: int) -> None:
        """Drop the epochs below ``start_offset``, where the log starts now.

        A log that is empty now keeps the epoch of its last record: the epoch says how far the log
        had come, unlike an epoch that has written nothing yet.
        """
        start_offset = min(start_offset, end_offset - 1)
        index = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if index == 0 or (index == 1 and self._entries[0].start_offset == start_offset):
            return
        kept = EpochEntry(self._entries[index - 1].epoch, start_offset)
        self._entries[:index] = [kept]
        self.dirty = True

    def take_over(self, entries: Iterable[EpochEntry], end_offset: int) -> None:
        """Put the epochs of another log in front of those known.

        Entries count as far as they begin below both ``end_offset`` and the first known epoch, and
        are not above that epoch.
        """
        first = self._entries[0] if self._entries else None
        if first is not None:
            end_offset = min(end_offset, first.start_offset)
        kept = [
            entry
            for entry in entries
            if entry.start_offset < end_offset and (first is None or entry.epoch <= first.epoch)
        ]
        if not kept:
            return
        if first is not None and kept[-1].epoch == first.epoch:
            del self._entries[0]  # it began earlier than this log knew
        self._entries[:0] = kept
        self.dirty = True

    def clear(self) -> None:
        self.dirty = self.dirty or bool(self._entries)
        self._entries.clear()

    def encode(self) -> bytes:
        """The text of ``leader-epoch-checkpoint``."""
        return encode_epochs(self._entries)

    def check_invariants(self) -> None:
        for before, after in pairwise(self._entries):
            assert before.epoch < after.epoch, self._entries
            assert before.start_offset < after.start_offset, self._entries
