"""The detection of torn writes by the leader epochs of stored batches.

Owns: the detection.  Must not know files, or what follows from a torn write.

No checksum covers a batch's leader epoch, but along a log epochs never fall.  Where an epoch falls,
one of the batches is torn.  A batch with an epoch that no leader can have is torn by itself.
"""

from sparklog.executors.log.checkpoint import EpochEntry
from sparklog.executors.log.epoch_cache import EpochCache
from sparklog.types import NO_LEADER_EPOCH


class EpochOrder:
    """The leader epochs of batches in the order of the log.

    A batch below ``trusted_to`` was flushed, and the epoch of a batch at which ``checkpoint`` lets
    that epoch begin is right.  A lower epoch after such a batch is wrong.  Otherwise either batch
    may be wrong, and the log ends before the first of them.
    """

    __slots__ = ("_begun", "_checkpoint", "_trusted_to", "torn_from")

    def __init__(self, checkpoint: EpochCache, trusted_to: int) -> None:
        self._checkpoint = EpochCache(checkpoint.entries)
        self._trusted_to = trusted_to
        self._begun: list[EpochEntry] = []
        #: The offset of the first batch that may be torn; None so far.
        self.torn_from: int | None = None

    def add(self, epoch: int, base_offset: int) -> bool:
        """Take the next batch; return whether this batch and all earlier batches are credible."""
        if self.torn_from is None and epoch < NO_LEADER_EPOCH and base_offset >= self._trusted_to:
            self.torn_from = base_offset
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
