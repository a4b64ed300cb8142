"""Cutting a log back: which files go, in which order, and what is remembered of them.

Owns: the cut itself, of segments, snapshots, leader epochs and producer state, each step durable
before the next.  Must not know why a log is cut, or what of it counts as flushed.
"""

from sparklog.config import TopicConfig
from sparklog.executors.log.epoch_cache import EpochCache
from sparklog.executors.log.names import EPOCH_CHECKPOINT
from sparklog.executors.log.roller import Roller
from sparklog.executors.log.segment_list import restore_producers
from sparklog.storage_backends.base import FileHalf


class Cutter:
    """Of one log.  Blocks.  What raises StorageError leaves a log that must not be used."""

    __slots__ = ("_epochs", "_folder", "_half", "_producers", "_roller", "_segments", "_snapshots")

    def __init__(self, half: FileHalf, folder: str, epochs: EpochCache, roller: Roller) -> None:
        self._half = half
        self._folder = folder
        self._epochs = epochs
        self._roller = roller
        self._segments = roller.segments
        self._snapshots = roller.snapshots
        self._producers = roller.producers

    def cut(self, offset: int, config: TopicConfig, now_ms: int) -> None:
        """Drop what ends at or above ``offset``, which lies above the first base offset."""
        self._segments.truncate_to(offset)
        self._half.flush_folder(self._folder)
        self._segments.active.activate(config)
        self._epochs.truncate_from_end(self._segments.end_offset)
        self.save_epochs()
        restore_producers(self._producers, self._snapshots, self._segments, now_ms)

    def start_over(self, offset: int, config: TopicConfig, now_ms: int) -> None:
        """Drop everything; the log starts and ends at ``offset``."""
        self._segments.start_over(lambda: self._roller.create(offset, config, now_ms))
        self._snapshots.delete_all()
        self._half.flush_folder(self._folder)
        self._producers.clear()
        self._epochs.clear()
        self.save_epochs()

    def save_epochs(self) -> None:
        """Durably."""
        self._half.put(f"{self._folder}/{EPOCH_CHECKPOINT}", self._epochs.encode())
        self._epochs.dirty = False
