"""Deliberate bugs of compaction, each as a patch of the real code.

Owns: what the checker of compacted topics must catch.  Must not know how it is caught.
"""

from collections.abc import Callable

import sparklog.executors.cleaner.log_cleaner as log_cleaner_module
from sparklog.config import TopicConfig
from sparklog.executors.cleaner.batch_filter import BatchFilter
from sparklog.executors.cleaner.log_cleaner import LogCleaner
from sparklog.executors.cleaner.plan import CleanableRange, cleanable_range
from sparklog.executors.cleaner.transactions import CleanedTransactions
from sparklog.executors.log import AbortedTxn, CleanedSegment
from sparklog.executors.log.flush import NEVER, FlushState
from sparklog.executors.log.names import LOG_SUFFIX, file_name
from sparklog.executors.log.segment_swap import SegmentSwap
from sparklog.executors.partition import Partition
from sparklog.executors.replication.clean_offsets import CleanOffsets
from sparklog.types import MAX_INT64
from sparklog.wire.records.batch import BatchHeader
from sparklog.wire.records.control import EndTxnMarker
from tests.simulation.planting import Bug, Patch, bug, unhunted

#: Only runs with compacted topics show these.
CLEANER_BUGS: set[str] = set()


def cleaner_bug(make: Bug) -> Bug:
    CLEANER_BUGS.add(make.__name__)
    return bug(make)


def _clean_below(stable_offset: Callable[[Partition], int]) -> list[Patch]:
    def range_of(self: LogCleaner, partition: Partition, now_ms: int) -> CleanableRange:
        log = partition.log
        return cleanable_range(
            log.segments,
            config=partition.config,
            clean_offset=log.clean_offset,
            log_start_offset=log.log_start_offset,
            stable_offset=stable_offset(partition),
            now_ms=now_ms,
        )

    return [(LogCleaner, "_range_of", range_of)]


@cleaner_bug
def clean_past_the_recovery_point() -> list[Patch]:
    """Records that a loss of power takes back supersede others.

    Sealed segments wait for a flush that somebody asks for; otherwise they are flushed at once, and
    hardly ever dirty.
    """
    real = FlushState.target

    def target(
        self: FlushState, config: TopicConfig, log_end_offset: int, now_ms: int
    ) -> int | None:
        is_promised = config.flush_messages != NEVER or config.flush_ms != NEVER
        return real(self, config, log_end_offset, now_ms) if is_promised else None

    return [
        (FlushState, "target", target),
        *_clean_below(lambda partition: partition.unclamped_last_stable_offset),
    ]


@cleaner_bug
def clean_past_the_stable_offset() -> list[Patch]:
    """Records that a new leader takes back supersede others."""
    return _clean_below(lambda partition: partition.log.log_end_offset)


@cleaner_bug
def drop_tombstones_early() -> list[Patch]:
    """A tombstone goes with the second cleaning, before its delete horizon."""
    return [(log_cleaner_module, "delete_horizon_ms", lambda config, now_ms: now_ms)]


@cleaner_bug
def drop_markers_early() -> list[Patch]:
    """A marker goes before the records of its transaction."""
    real = CleanedTransactions.end

    def end(
        self: CleanedTransactions, header: BatchHeader, marker: EndTxnMarker | None
    ) -> tuple[bool, AbortedTxn | None]:
        real(self, header, marker)
        return True, None

    return [
        (CleanedTransactions, "end", end),
        (BatchFilter, "_may_go", lambda self, header: True),
    ]


@cleaner_bug
def delete_the_replaced_segments_first() -> list[Patch]:
    """A swap deletes the segments before the cleaned one can take their place."""
    real = SegmentSwap._begin

    def begin(self: SegmentSwap, cleaned: CleanedSegment) -> None:
        for segment in self._segments:
            if cleaned.base_offset <= segment.base_offset < cleaned.next_offset:
                name = file_name(segment.base_offset, LOG_SUFFIX)
                self._half.delete(f"{self._partition_dir}/{name}")
        real(self, cleaned)

    return [(SegmentSwap, "_begin", begin)]


@unhunted
def forget_the_replicas_that_are_away() -> list[Patch]:
    """A tombstone goes although a replica may hold an older record of its key."""

    async def lowest(self: CleanOffsets, partition: Partition) -> int:
        return MAX_INT64

    return [(CleanOffsets, "lowest", lowest)]
