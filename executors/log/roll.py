"""The roll rules: when a new segment must be started.

Owns: the rules of Kafka's ``LogSegment.shouldRoll``.  Must not know files.
"""

from enum import Enum
from typing import Protocol
from zlib import crc32

from sparklog.config import TopicConfig
from sparklog.types import MAX_INT32


class RollReason(Enum):
    SIZE = "segment.bytes"
    TIME = "segment.ms"
    INDEX_FULL = "segment.index.bytes"
    OFFSET_OVERFLOW = "relative offset"


class RollingSegment(Protocol):
    """The properties of the active segment that the rules use."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def first_timestamp(self) -> int:
        """The first batch's largest timestamp, or -1."""
        ...

    @property
    def created_ms(self) -> int: ...

    @property
    def first_append_ms(self) -> int:
        """When this process appended the first batch, or -1 if it was found in the file."""
        ...

    @property
    def index_full(self) -> bool: ...


def roll_reason(
    segment: RollingSegment,
    *,
    append_size: int,
    append_last_offset: int,
    append_max_timestamp: int,
    config: TopicConfig,
    jitter_ms: int,
    now_ms: int,
) -> RollReason | None:
    """Why ``segment`` cannot take the append, or None when it can."""
    if not fits_relative(segment.base_offset, append_last_offset):
        return RollReason.OFFSET_OVERFLOW
    if segment.size == 0:
        return None
    if segment.size > config.segment_bytes - append_size:
        return RollReason.SIZE
    if segment.index_full:
        return RollReason.INDEX_FULL
    # Record timestamps count, so that a replica that copies old records rolls at the same place.
    if segment.first_timestamp >= 0:
        waited_ms = append_max_timestamp - segment.first_timestamp
    else:
        waited_ms = now_ms - segment.created_ms
    return RollReason.TIME if waited_ms > segment_ms_max(config) - jitter_ms else None


def is_roll_due(
    segment: RollingSegment, *, config: TopicConfig, jitter_ms: int, now_ms: int
) -> bool:
    """Whether ``segment`` must end although nothing is appended to it.

    The rules are those of a small append with a timestamp of now.  But old records count from their
    append: otherwise the segment that a backfill fills would be due whenever anybody looks.
    """
    reason = roll_reason(
        segment,
        append_size=0,
        append_last_offset=segment.base_offset,
        append_max_timestamp=now_ms,
        config=config,
        jitter_ms=jitter_ms,
        now_ms=now_ms,
    )
    if reason is not RollReason.TIME:
        return reason is not None
    return now_ms - segment.first_append_ms > segment_ms_max(config) - jitter_ms


def segment_ms_max(config: TopicConfig) -> int:
    """The greatest age of an active segment in milliseconds (``LogConfig.maxSegmentMs``).

    It is ``segment.ms``, or less where records must be compacted earlier, because the active
    segment is never cleaned.
    """
    if not config.compacts:
        return config.segment_ms
    return min(config.segment_ms, config.max_compaction_lag_ms)


def fits_relative(base_offset: int, offset: int) -> bool:
    """Whether the indexes can hold ``offset`` as 32 bits relative to the base."""
    return 0 <= offset - base_offset <= MAX_INT32


def roll_jitter_ms(partition_dir: str, base_offset: int, config: TopicConfig) -> int:
    """The share of ``segment.jitter.ms`` by which this segment is rolled earlier.

    The share looks random, and is the same in every run.  It spreads the rolls of many partitions.
    """
    limit = min(config.segment_jitter_ms, segment_ms_max(config))
    if limit == 0:
        return 0
    return crc32(f"{partition_dir}:{base_offset}".encode()) % limit
