"""The truncation of one log: what is written down before, which files go, and in which order.

Owns: the recovery point and log start while a truncation is under way, and the truncation itself,
of segments, snapshots, leader epochs and producer state, each step durable before the next.  Must
not know why a log is truncated.
"""

from sparklog.config import TopicConfig
from sparklog.executors.log.epoch_cache import EpochCache
from sparklog.executors.log.flush import FlushState, save_epochs
from sparklog.executors.log.roller import Roller
from sparklog.executors.log.segment_list import restore_producers
from sparklog.storage_backends.base import FileHalf


class LogTruncation:
    """The truncations of one log, one after the other."""

    __slots__ = (
        "_epochs",
        "_flush",
        "_folder",
        "_half",
        "_log_start_before",
        "_producers",
        "_roller",
        "_segments",
        "_snapshots",
    )

    def __init__(
        self,
        half: FileHalf,
        folder: str,
        epochs: EpochCache,
        roller: Roller,
        flush: FlushState,
    ) -> None:
        self._half = half
        self._folder = folder
        self._epochs = epochs
        self._roller = roller
        self._flush = flush
        self._segments = roller.segments
        self._snapshots = roller.snapshots
        self._producers = roller.producers
        #: The log start when the truncation was announced.
        self._log_start_before = 0

    def drops_everything(self, offset: int, log_start_offset: int) -> bool:
        """Whether a truncation to ``offset`` leaves nothing of the log."""
        return offset <= max(log_start_offset, self._segments[0].base_offset)

    def announce(self, offset: int, log_start_offset: int, *, start_over: bool) -> int:
        """Lower the recovery point to the lowest end that the truncation may leave.

        Returns the log start offset to use until the truncation ends.
        """
        self._log_start_before = log_start_offset
        if start_over or self.drops_everything(offset, log_start_offset):
            log_start_offset = min(log_start_offset, offset)
            self._flush.announce_cut(log_start_offset)
        else:
            self._flush.announce_cut(self._segments.base_below(offset))
        return log_start_offset

    def conclude(self, log_start_offset: int) -> int:
        """End the truncation, completed or abandoned.  Returns the log start offset from now on."""
        return self._log_start_before if self._flush.forget_cut() else log_start_offset

    def truncate_to(self, offset: int, config: TopicConfig, now_ms: int) -> None:
        """Drop what ends at or above ``offset``, which lies above the first base offset.

        Blocks.  A StorageError leaves a log that must not be used.
        """
        self._segments.truncate_to(offset)
        self._half.flush_folder(self._folder)
        self._segments.active.activate(config)
        self._epochs.truncate_from_end(self._segments.end_offset)
        save_epochs(self._half, self._folder, self._epochs)
        restore_producers(self._producers, self._snapshots, self._segments, now_ms)

    def start_over(self, offset: int, config: TopicConfig, now_ms: int) -> None:
        """Drop everything; the log starts and ends at ``offset``.  See ``truncate_to``."""
        self._segments.start_over(lambda: self._roller.create(offset, config, now_ms))
        self._snapshots.delete_all()
        self._half.flush_folder(self._folder)
        self._producers.clear()
        self._epochs.clear()
        save_epochs(self._half, self._folder, self._epochs)
