"""A batch read's plan: which offsets of which partitions, in how many pieces.

Owns: the resolution of bounds against what the cluster answered, the checks on them, and the split
into ranges.  Must not know the client, Spark or the clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sparklog.dataframe.options import Bound
from sparklog.errors import ConfigError
from sparklog.types import OffsetSpec, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """What one partition holds: ``[earliest, latest)``; latest is the last stable offset."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """``[start, end)`` of one partition, read by one task.

    ``min_timestamp_ms`` lets the task skip batches that hold only older records.
    """

    topic_partition: TopicPartition
    start: int
    end: int
    min_timestamp_ms: int | None = None

    @property
    def size(self) -> int:
        return self.end - self.start


def resolve_start(
    bound: Bound, partition: TopicPartition, held: PartitionOffsets, by_time: int | None
) -> int:
    """The start offset.  ``by_time`` is what a lookup of the bound's timestamp found, if any.

    Raises ConfigError when the bound names an offset that the partition does not hold.
    """
    if bound.timestamp_ms is not None:
        if by_time is None:
            raise ConfigError(
                f"startingTimestamp {bound.timestamp_ms}: no record of {partition} is that new"
            )
        return max(by_time, held.earliest)
    return _resolve_offset(bound, partition, held, "startingOffsets")


def resolve_end(
    bound: Bound, partition: TopicPartition, held: PartitionOffsets, by_time: int | None
) -> int:
    """The end offset (exclusive).  A time that no record reaches means the latest offset."""
    if bound.timestamp_ms is not None:
        return held.latest if by_time is None else min(by_time, held.latest)
    return _resolve_offset(bound, partition, held, "endingOffsets")


def _resolve_offset(
    bound: Bound, partition: TopicPartition, held: PartitionOffsets, option: str
) -> int:
    if bound.offsets is None:
        wanted = int(bound.special if bound.special is not None else OffsetSpec.LATEST)
    elif partition in bound.offsets:
        wanted = bound.offsets[partition]
    else:
        raise ConfigError(f"{option} gives no offset for {partition}; it must name every partition")
    if wanted == OffsetSpec.EARLIEST:
        return held.earliest
    if wanted == OffsetSpec.LATEST:
        return held.latest
    if not held.earliest <= wanted <= held.latest:
        raise ConfigError(
            f"{option}: offset {wanted} of {partition} is out of range; "
            f"the partition holds [{held.earliest}, {held.latest})"
        )
    return wanted


def check_names(bound: Bound, partitions: Sequence[TopicPartition], option: str) -> None:
    """An offset for a partition that is not read is an error, as in Spark's Kafka source."""
    extra = sorted(set(bound.offsets or ()) - set(partitions))
    if extra:
        raise ConfigError(f"{option} names {extra[0]}, which this read does not select")


def narrow(
    ranges: Sequence[OffsetRange], starts: Mapping[TopicPartition, int | None], lower_ms: int
) -> list[OffsetRange]:
    """Apply a lower timestamp bound.

    ``starts`` has, per partition, the first offset with timestamp >= ``lower_ms`` (None: no such
    record).  No earlier offset can pass, even where timestamps are unordered.
    """
    narrowed = []
    for item in ranges:
        first = starts.get(item.topic_partition)
        start = item.end if first is None else min(max(item.start, first), item.end)
        narrowed.append(
            OffsetRange(
                topic_partition=item.topic_partition,
                start=start,
                end=item.end,
                min_timestamp_ms=lower_ms,
            )
        )
    return narrowed


def split(ranges: Sequence[OffsetRange], min_partitions: int | None) -> list[OffsetRange]:
    """Drop empty ranges and split the largest so that there are at least ``min_partitions``.

    As ``KafkaOffsetRangeCalculator``: each range gets a share of the pieces in proportion to its
    size; no piece is empty, so fewer pieces come out when there are fewer offsets than wanted.
    """
    filled = [item for item in ranges if item.size > 0]
    if not min_partitions or len(filled) >= min_partitions:
        return filled
    total = sum(item.size for item in filled)
    pieces = {
        item: max(1, min(item.size, _share(item.size, total, min_partitions))) for item in filled
    }
    return [piece for item in filled for piece in _cut(item, pieces[item])]


def _share(size: int, total: int, wanted: int) -> int:
    """``size / total`` of ``wanted``, rounded up so that the sum never falls short."""
    return -(-size * wanted // total)


def _cut(item: OffsetRange, pieces: int) -> list[OffsetRange]:
    edges = [item.start + item.size * number // pieces for number in range(pieces + 1)]
    return [
        OffsetRange(
            topic_partition=item.topic_partition,
            start=start,
            end=end,
            min_timestamp_ms=item.min_timestamp_ms,
        )
        for start, end in pairwise(edges)
    ]
