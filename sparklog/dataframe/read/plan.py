"""The plan of a batch read: ranges of offsets by partition, one per task.

Owns: the resolution of bounds against the offsets of the cluster, the checks on bounds, and the
split into ranges.  Must not know the client, Spark or the clock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from uuid import UUID

from sparklog.dataframe.options import Bound, ReadOptions
from sparklog.errors import ConfigError, DataLossError
from sparklog.remote_log.remote_segment import TimeBounds
from sparklog.remote_log.signed_segments import SignedSegment
from sparklog.types import MAX_INT64, MIN_INT64, OffsetSpec, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """The offsets of one partition, ``[earliest, latest)``; latest is the last stable offset for
    readers of committed records, else the high watermark."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSource:
    """What of a range is in the bucket: the offsets below ``end``.

    The segments have URLs, which are good until ``expires_at_ms`` (time of day).  A task asks for
    segments that the plan does not have, which may be all.
    """

    end: int
    segments: tuple[SignedSegment, ...] = ()
    expires_at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """``[start, end)`` of one partition, read by one task.

    ``min_timestamp_ms`` lets the task skip batches with only older records, ``max_timestamp_ms``
    lets it skip parts of the bucket with only newer ones.  A task must not read a topic of the same
    name with another id than ``topic_id``.  With ``remote`` it reads from the bucket what is
    there, and the rest from brokers.
    """

    topic_partition: TopicPartition
    start: int
    end: int
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None
    topic_id: UUID | None = None
    remote: RemoteSource | None = field(default=None, compare=False)

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def times(self) -> TimeBounds:
        """The bounds of time of the wanted records."""
        lowest_ms, highest_ms = self.min_timestamp_ms, self.max_timestamp_ms
        return TimeBounds(
            MIN_INT64 if lowest_ms is None else lowest_ms,
            MAX_INT64 if highest_ms is None else highest_ms,
        )

    @property
    def remote_end(self) -> int:
        """The offset from which on the range is not in the bucket; without ``remote`` nobody has
        looked, and it may all be there."""
        return self.end if self.remote is None else min(self.end, self.remote.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundByTime:
    """The first offsets at or after the times of the bounds; None without a time or a record."""

    start: int | None = None
    end: int | None = None


def resolve(
    options: ReadOptions, tp: TopicPartition, held: PartitionOffsets, found: FoundByTime
) -> OffsetRange:
    """The range to read of one partition; its size is never negative.

    Raises ConfigError for bounds outside of the partition, DataLossError for requested records
    below the log start, unless the options allow such a loss.
    """
    start = _start(options, tp, held, found.start)
    end = _end(options, tp, held, found.end)
    if start > end:
        raise ConfigError(
            f"{tp} would be read from offset {start} to {end}: "
            f"{options.starting.option('starting')} lies behind {options.ending.option('ending')}"
        )
    if start < held.earliest and options.fail_on_data_loss:
        raise DataLossError(
            f"{options.starting.option('starting')}: offset {start} of {tp} is out of range; "
            f"the partition holds [{held.earliest}, {held.latest}), what was below is deleted. "
            "Start later, or read what is left with option failOnDataLoss=false"
        )
    return OffsetRange(
        topic_partition=tp, start=max(start, held.earliest), end=max(end, held.earliest)
    )


def _start(
    options: ReadOptions, tp: TopicPartition, held: PartitionOffsets, by_time: int | None
) -> int:
    bound = options.starting
    wanted_ms = bound.time_of(tp)
    if wanted_ms is None:
        return _offset(bound, "starting", tp, held)
    if by_time is not None:  # it may be newer than ``held``, as it was asked for later
        return min(max(by_time, held.earliest), held.latest)
    if options.unmatched_starts_latest:
        return held.latest
    raise ConfigError(
        f"{bound.option('starting')} {wanted_ms}: no record of {tp} is that new; "
        "option startingOffsetsByTimestampStrategy=latest reads nothing of such a partition"
    )


def _end(
    options: ReadOptions, tp: TopicPartition, held: PartitionOffsets, by_time: int | None
) -> int:
    """The end offset; a time later than every record means the latest offset."""
    bound = options.ending
    if bound.time_of(tp) is None:
        return _offset(bound, "ending", tp, held)
    return held.latest if by_time is None else min(by_time, held.latest)


def _offset(bound: Bound, side: str, tp: TopicPartition, held: PartitionOffsets) -> int:
    if bound.offsets is None:
        wanted = int(bound.special if bound.special is not None else OffsetSpec.LATEST)
    else:
        wanted = bound.offsets[tp]
    if wanted == OffsetSpec.EARLIEST:
        return held.earliest
    if wanted == OffsetSpec.LATEST:
        return held.latest
    if wanted > held.latest:
        raise ConfigError(
            f"{bound.option(side)}: offset {wanted} of {tp} is out of range; "
            f"the partition holds [{held.earliest}, {held.latest})"
        )
    return wanted


def check_names(bound: Bound, side: str, partitions: Sequence[TopicPartition]) -> None:
    """Check that bounds name exactly the partitions to read, as in Spark's Kafka source.

    Raises ConfigError.
    """
    named = bound.by_partition
    if named is None:
        return
    option = bound.option(side)
    extra = sorted(named.keys() - set(partitions))
    if extra:
        raise ConfigError(f"{option} names {extra[0]}, which this read does not select")
    missing = [tp for tp in partitions if tp not in named]
    if missing:
        raise ConfigError(
            f"{option} gives nothing for {missing[0]}; it must name every partition "
            "(as an offset, -2 stands for the earliest, -1 for the latest)"
        )


def split(
    ranges: Iterable[OffsetRange],
    min_partitions: int | None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Drop empty ranges, cut those above ``max_records`` offsets, and split the largest so that
    there are at least ``min_partitions``.

    Each range gets a share of the pieces in proportion to its size, as in
    ``KafkaOffsetRangeCalculator``.  No piece is empty, so there are fewer pieces if there are fewer
    offsets than wanted.
    """
    filled = [item for item in ranges if item.size > 0]
    pieces = {item: -(-item.size // max_records) if max_records else 1 for item in filled}
    if min_partitions and sum(pieces.values()) < min_partitions:
        total = sum(item.size for item in filled)
        for item, least in pieces.items():
            share = min(item.size, _share(item.size, total, min_partitions))
            pieces[item] = max(least, share)
    return [piece for item in filled for piece in _cut(item, pieces[item])]


def _share(size: int, total: int, wanted: int) -> int:
    """The share ``size / total`` of ``wanted``, rounded up so that the sum never falls short."""
    return -(-size * wanted // total)


def _cut(item: OffsetRange, pieces: int) -> list[OffsetRange]:
    edges = [item.start + item.size * number // pieces for number in range(pieces + 1)]
    return [replace(item, start=start, end=end) for start, end in pairwise(edges)]
