"""The retention rules: which segments are deleted.

Owns: the rules of ``UnifiedLog.deleteOldSegments``.  Must not know files; it counts segments,
oldest first.  Age and size count only if ``cleanup.policy`` has delete; segments below the log
start go in any log.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from sparklog.config import NO_LIMIT, TopicConfig


class RetentionLimits(NamedTuple):
    """The greatest age in ms, and the greatest size in bytes; NO_LIMIT for none."""

    age_ms: int
    size: int

    @classmethod
    def whole_log(cls, config: TopicConfig) -> "RetentionLimits":
        return cls(config.retention_ms, config.retention_bytes) if config.deletes else NO_LIMITS


NO_LIMITS: Final = RetentionLimits(NO_LIMIT, NO_LIMIT)


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
    limits: RetentionLimits,
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
    limited = limits.size != NO_LIMIT
    if limited:
        excess_bytes = sum(segment.size for segment in segments) - limits.size
    count = 0
    for index, segment in enumerate(segments):
        active = index + 1 == len(segments)
        next_base = log_end_offset if active else segments[index + 1].base_offset
        if next_base > stable_offset or (active and segment.size == 0):
            break
        too_big = limited and excess_bytes >= segment.size
        below_start = next_base <= log_start_offset and not active
        too_old = limits.age_ms != NO_LIMIT and now_ms - segment.age_timestamp > limits.age_ms
        if not (too_big or below_start or too_old):
            break
        excess_bytes -= segment.size
        count += 1
    return count
