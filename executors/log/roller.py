"""The rolls of a log: when and where a new segment starts, and the cleanup of a failed roll.

Owns: the order in which files change at a roll.  Must not know what is appended afterwards.
"""

from collections.abc import Sequence
from contextlib import suppress

from sparklog.config import TopicConfig
from sparklog.errors import StorageError
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.roll import fits_relative, is_roll_due, roll_jitter_ms, roll_reason
from sparklog.executors.log.segment import Segment
from sparklog.executors.log.segment_list import SegmentList
from sparklog.executors.log.snapshots import ProducerState, SnapshotFiles
from sparklog.storage_backends.base import FileHalf
from sparklog.wire.records.batch import BatchHeader


class Roller:
    """Creates the segments of one log; ``names_changed`` asks for a flush of the directory."""

    __slots__ = (
        "_files",
        "_half",
        "_partition_dir",
        "_unwanted",
        "names_changed",
        "producers",
        "segments",
        "snapshots",
    )

    def __init__(
        self,
        half: FileHalf,
        files: FileCache,
        partition_dir: str,
        segments: SegmentList,
        snapshots: SnapshotFiles,
        producers: ProducerState,
    ) -> None:
        self.segments = segments
        self.snapshots = snapshots
        self.producers = producers
        self._half = half
        self._files = files
        self._partition_dir = partition_dir
        #: The new segment of a failed roll.  It must be removed before the next write: if the log
        #: grew beyond it, recovery would take it for a segment that has lost its records.
        self._unwanted: Segment | None = None
        self.names_changed = True

    def due_at(
        self,
        active: Segment,
        headers: Sequence[BatchHeader],
        size: int,
        config: TopicConfig,
        now_ms: int,
    ) -> int | None:
        """The base offset of the segment that this append needs first; None if none is due."""
        reason = roll_reason(
            active,
            append_size=size,
            append_last_offset=headers[-1].last_offset,
            append_max_timestamp=max([header.max_timestamp for header in headers]),
            config=config,
            jitter_ms=roll_jitter_ms(self._partition_dir, active.base_offset, config),
            now_ms=now_ms,
        )
        if reason is None:
            return None
        # The log's end, not the first batch: then a gap between segments means lost bytes.
        end = active.next_offset
        return end if fits_relative(end, headers[-1].last_offset) else headers[0].base_offset

    def is_due(self, config: TopicConfig, now_ms: int) -> bool:
        """Whether the active segment must end although nothing is appended."""
        active = self.segments.active
        jitter_ms = roll_jitter_ms(self._partition_dir, active.base_offset, config)
        return is_roll_due(active, config=config, jitter_ms=jitter_ms, now_ms=now_ms)

    def roll(self, base_offset: int, config: TopicConfig, now_ms: int) -> bool:
        """Seal the active segment and start a new one at ``base_offset``; False if it starts there.

        Raises StorageError, and then nothing has changed.
        """
        segments, snapshots = self.segments, self.snapshots
        active = segments.active
        if base_offset == active.base_offset:
            return False
        try:
            segment = self.create(base_offset, config, now_ms)
            # Before any later batch is applied: the snapshot is exactly the state up to here.
            snapshots.write(base_offset, self.producers.to_snapshot())
            if active.size:
                active.seal()
            else:
                active.remove()
        except StorageError:
            active.activate(config)
            self._unwanted = self._segment(base_offset, config, now_ms)
            with suppress(StorageError):
                self.remove_unwanted()
            raise
        if not active.size:
            segments.remove(active)
        segments.append(segment)
        snapshots.keep_only(segments.base_offsets)
        return True

    def create(self, base_offset: int, config: TopicConfig, now_ms: int) -> Segment:
        """A new, empty, active segment."""
        self.names_changed = True
        segment = self._segment(base_offset, config, now_ms)
        segment.create(config)
        return segment

    def remove_unwanted(self) -> None:
        if self._unwanted is not None:
            self._unwanted.remove()
            self._unwanted = None

    def _segment(self, base_offset: int, config: TopicConfig, now_ms: int) -> Segment:
        return Segment(self._half, self._files, self._partition_dir, base_offset, config, now_ms)
