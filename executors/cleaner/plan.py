"""The plan of a cleaning: which offsets of a log can be cleaned, and how segments are joined.

Owns: the rules of Kafka's ``LogCleanerManager.cleanableOffsets`` and
``Cleaner.groupSegmentsBySize``, with the dirty ratio and the lags (KIP-58, KIP-354).  Must not know
files, keys or processes; it takes segments, oldest first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from sparklog.config import TopicConfig
from sparklog.types import MAX_INT32, MAX_INT64

#: The most segments that are joined to one.
GROUP_SEGMENTS_MAX: Final = 200


class _Size(Protocol):
    @property
    def size(self) -> int: ...


class _Timestamp(Protocol):
    @property
    def timestamp(self) -> int: ...


class CleanableSegment(Protocol):
    """The properties of a segment that the rules use; sizes in bytes, times in milliseconds."""

    @property
    def base_offset(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def largest(self) -> _Timestamp: ...

    @property
    def age_timestamp(self) -> int:
        """The largest timestamp, or the time of the last append when no record has one."""
        ...

    @property
    def first_timestamp(self) -> int:
        """The first batch's largest timestamp, or -1."""
        ...

    @property
    def offset_index(self) -> _Size: ...

    @property
    def time_index(self) -> _Size: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanableRange:
    """The dirty offsets [first_dirty, end) of a log that can be cleaned; ``end`` is a base offset.

    ``overdue_ms`` is how long ago ``max.compaction.lag.ms`` asked for the cleaning, or 0.
    """

    first_dirty: int
    end: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int = 0

    @property
    def dirty_ratio(self) -> float:
        """The share of dirty bytes among the bytes that can be clean after the cleaning."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, config: TopicConfig) -> bool:
        """Whether the log is to be cleaned now, by its dirty ratio or by the age of its records."""
        if not self.cleanable_bytes:
            return False
        return self.overdue_ms > 0 or self.dirty_ratio > config.min_cleanable_dirty_ratio


def cleanable_range(
    segments: Sequence[CleanableSegment],
    *,
    config: TopicConfig,
    clean_offset: int | None,
    log_start_offset: int,
    stable_offset: int,
    now_ms: int,
) -> CleanableRange:
    """The range to clean next.

    Args:
        segments: all segments; the last is active.
        clean_offset: the log was cleaned below this offset; None for never.
        stable_offset: everything below is replicated and flushed, and its transactions have ended.
        now_ms: the wall clock.
    """
    *sealed, active = segments
    first_dirty = log_start_offset if clean_offset is None else clean_offset
    if not log_start_offset <= first_dirty <= active.next_offset:
        # Records were deleted, or the log has lost its end: all of it may be dirty.
        first_dirty = log_start_offset
    dirty = [segment for segment in sealed if segment.next_offset > first_dirty]
    end = dirty[0].base_offset if dirty else active.base_offset
    cleanable_bytes = 0
    for segment in dirty:
        if segment.next_offset > stable_offset or _is_young(segment, config, now_ms):
            break
        cleanable_bytes += segment.size
        end = segment.next_offset
    return CleanableRange(
        first_dirty=first_dirty,
        end=end,
        clean_bytes=sum(s.size for s in sealed if s.next_offset <= first_dirty),
        cleanable_bytes=cleanable_bytes,
        overdue_ms=_overdue_ms(dirty, config, now_ms),
    )


def _is_young(segment: CleanableSegment, config: TopicConfig, now_ms: int) -> bool:
    lag_ms = config.min_compaction_lag_ms
    return lag_ms > 0 and segment.age_timestamp > now_ms - lag_ms


def _overdue_ms(dirty: Sequence[CleanableSegment], config: TopicConfig, now_ms: int) -> int:
    until_ms = now_ms - config.max_compaction_lag_ms
    if until_ms <= 0:
        return 0
    firsts = [segment.first_timestamp for segment in dirty]
    oldest_ms = min((first for first in firsts if first > 0), default=until_ms)
    return max(0, until_ms - oldest_ms)


def group_segments(
    segments: Sequence[CleanableSegment], *, config: TopicConfig, end_offset: int
) -> list[tuple[CleanableSegment, ...]]:
    """The segments below ``end_offset``, in groups that are joined to one segment each.

    No joined segment exceeds ``segment.bytes``, ``segment.index.bytes`` or the 31 bits of relative
    offsets, except for a segment that does so alone.  A group has at most GROUP_SEGMENTS_MAX
    segments, because the files of a group are renamed in one turn of the event loop.
    """
    groups: list[list[CleanableSegment]] = []
    sizes = (0, 0, 0)
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        own = (segment.size, segment.offset_index.size, segment.time_index.size)
        joined = (sizes[0] + own[0], sizes[1] + own[1], sizes[2] + own[2])
        if groups and _fit(groups[-1], segment, joined, config):
            groups[-1].append(segment)
            sizes = joined
        else:
            groups.append([segment])
            sizes = own
    return [tuple(group) for group in groups]


def _fit(
    group: Sequence[CleanableSegment],
    segment: CleanableSegment,
    joined: tuple[int, int, int],
    config: TopicConfig,
) -> bool:
    """Whether a segment may join the group; ``joined`` are the sizes of both together."""
    assert group[-1].next_offset <= segment.base_offset, (group[-1], segment)
    size, offset_index_size, time_index_size = joined
    return (
        len(group) < GROUP_SEGMENTS_MAX
        and size <= config.segment_bytes
        and max(offset_index_size, time_index_size) <= config.segment_index_bytes
        and segment.next_offset - 1 - group[0].base_offset <= MAX_INT32
    )


def delete_horizon_ms(config: TopicConfig, now_ms: int) -> int:
    """The delete horizon of a tombstone that is cleaned for the first time now (KIP-534)."""
    return min(now_ms + config.delete_retention_ms, MAX_INT64)
