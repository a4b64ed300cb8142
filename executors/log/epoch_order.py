"""Where the leader epochs of stored batches tell of a torn write.

Owns: finding it.  Must not know files, or what is done about it.

No checksum covers a batch's leader epoch, but along a log epochs never fall.  Where they do, one of
the batches is not what was written.
"""

from sparklog.executors.log.checkpoint import EpochEntry
from sparklog.executors.log.epoch_cache import EpochCache


class EpochOrder:
    """The epochs of the batches that are read, in order.

    Those below ``trusted_to`` were flushed, and an epoch that ``checkpoint`` lets begin where a
    batch has it is no accident: then what falls is what is wrong.  Else it may be either, and the
    log ends before the first of them.
    """

    __slots__ = ("_begun", "_checkpoint", "_trusted_to", "torn_from")

    def __init__(self, checkpoint: EpochCache, trusted_to: int) -> None:
        self._checkpoint = EpochCache(checkpoint.entries)
        self._trusted_to = trusted_to
        self._begun: list[EpochEntry] = []
        #: The offset from which on the batches cannot be believed.
        self.torn_from: int | None = None

    def add(self, epoch: int, base_offset: int) -> bool:
        """Whether this batch, and all before it, can be believed."""
        if self.torn_from is None:
            before = next((entry for entry in self._begun if entry.epoch > epoch), None)
            if before is not None:
                self.torn_from = base_offset if self._is_sure(before) else before.start_offset
            elif not self._begun or self._begun[-1].epoch < epoch:
                self._begun.append(EpochEntry(epoch, base_offset))
        return self.torn_from is None

    def _is_sure(self, entry: EpochEntry) -> bool:
        return (
            entry.start_offset < self._trusted_to
            or self._checkpoint.epoch_at(entry.start_offset) == entry.epoch
        )
