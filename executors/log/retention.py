"""The retention rules: which segments are deleted.

Owns: the rules of ``UnifiedLog.deleteOldSegments``.  Must not know files; it counts segments,
oldest first.  Age and size count only if ``cleanup.policy`` has delete; segments below the log
start go in any log.
"""

from collections.abc import Sequence
from typing import Protocol

from sparklog.config import NO_LIMIT, TopicConfig


class SegmentAge(Protocol):
    """The properties of a segment that the rules use."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def age_timestamp(self) -> int:
        """The largest record timestamp in ms; without timestamps, the time of the last append."""
        ...


def count_deletable(
    segments: Sequence[SegmentAge],
    *,
    config: TopicConfig,
    log_start_offset: int,
    log_end_offset: int,
    stable_offset: int,
    now_ms: int,
) -> int:
    """How many segments, from the oldest, to delete: by time, by size, or below the log start.

    A segment with an offset >= ``stable_offset`` (high watermark or first unstable offset) stays,
    and an empty active segment too.  The count may include the active segment.
    """
    excess_bytes = 0
    limited = config.deletes and config.retention_bytes != NO_LIMIT
    if limited:
        excess_bytes = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for index, segment in enumerate(segments):
        active = index + 1 == len(segments)
        next_base = log_end_offset if active else segments[index + 1].base_offset
        if next_base > stable_offset or (active and segment.size == 0):
            break
        too_big = limited and excess_bytes >= segment.size
        below_start = next_base <= log_start_offset and not active
        if not (too_big or below_start or _too_old(segment, config, now_ms)):
            break
        excess_bytes -= segment.size
        count += 1
    return count


def _too_old(segment: SegmentAge, config: TopicConfig, now_ms: int) -> bool:
    if not config.deletes or config.retention_ms == NO_LIMIT:
        return False
    return now_ms - segment.age_timestamp > config.retention_ms
