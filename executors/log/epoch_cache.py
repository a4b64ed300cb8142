"""Which leader epoch wrote which offsets of a partition.

Owns: the ordered epochs behind ``leader-epoch-checkpoint`` (``LeaderEpochFileCache``, KIP-101,
KIP-279) and the questions that truncation asks of them.  Must not know files: it says ``dirty``
when its text has to be written again.
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
        """-1 when no epoch is known."""
        return self._entries[-1].epoch if self._entries else NO_LEADER_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """``epoch`` writes from ``start_offset`` on.

        Entries that contradict it are dropped: the log is the truth, what it contradicts was left
        behind by a leader that lost.
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
        """These batches follow each other at the log's end."""
        for header in headers:
            self.assign(header.partition_leader_epoch, header.base_offset)

    def correct(self, epoch: int, offset: int) -> None:
        """A batch at ``offset`` is of ``epoch``: drop what says that a later one had begun there.

        A leader that wrote nothing says so, and may have written that down; what it copied of an
        older epoch afterwards tells.
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
        """Where the first epoch begins that is later than that one; None when there is none."""
        index = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        return self._entries[index].start_offset if index < len(self._entries) else None

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote ``offset``; -1 when it lies before all that is known."""
        if self._entries and self._entries[-1].start_offset <= offset:
            return self._entries[-1].epoch
        index = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[index - 1].epoch if index else NO_LEADER_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch: the largest known epoch <= ``epoch`` and where it ended.

        (-1, -1) when ``epoch`` is not known and not below a known one.
        """
        if epoch < 0 or epoch > self.latest_epoch:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        index = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        found = self._entries[index - 1].epoch if index else epoch
        return found, self._entries[index].start_offset

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at ``end_offset``: forget the epochs that began at or after it."""
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
            self.dirty = True

    def truncate_from_start(self, start_offset: int, end_offset: int) -> None:
        """The log now starts at ``start_offset``: its epoch starts there, earlier ones are gone.

        Of a log that is empty now, ending where it starts, the epoch of the record before that is
        kept: it says how far the log had come, and is no epoch that has written nothing yet.
        """
        start_offset = min(start_offset, end_offset - 1)
        index = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if index == 0 or (index == 1 and self._entries[0].start_offset == start_offset):
            return
        kept = EpochEntry(self._entries[index - 1].epoch, start_offset)
        self._entries[:index] = [kept]
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
