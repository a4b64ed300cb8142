"""A story of one manifest, commit by commit, for the tests of checkers of tiers.

Owns: segments, and how a manifest is told.  Must not know a checker.
"""

from sparklog.remote_log import names
from sparklog.remote_log.manifest_records import (
    LeaderBegan,
    ManifestRecord,
    SegmentAdded,
    SegmentsRemoved,
)
from sparklog.remote_log.remote_segment import EpochStart, RemoteSegment
from sparklog.remote_log.takeover import LeaderLog
from tests.simulation.events import HighWatermarkSeen
from tests.simulation.final_state import FinalState
from tests.simulation.partition_story import LOG
from tests.simulation.tier_events import TierBatch, TierCommitted, TierSegment

NOTHING = FinalState()
FOLDER = names.segments_folder(LOG.topic_id, LOG.partition)


def batch(base: int, end: int, **more: int) -> TierBatch:
    return TierBatch(base, end, base * 100 + end)._replace(**more)


def segment(base: int, end: int, *batches: TierBatch, copy: int = 0) -> TierSegment:
    """Of leader epoch 0."""
    return TierSegment(
        segment=RemoteSegment(
            segment_id=names.segment_id(base, 0, 1, copy.to_bytes(8, "big")),
            base_offset=base,
            next_offset=end,
            log_size=10,
            leader_epochs=(EpochStart(0, base),),
            parts={},
        ),
        batches=batches or (batch(base, end),),
        epochs=(EpochStart(0, 0),),
    )


FIRST, SECOND = segment(0, 10), segment(10, 20)


class Manifest:
    """Commits one after the other, by broker 1 in epoch 0 unless it is said."""

    def __init__(self) -> None:
        self.number = 0

    def commit(
        self,
        *what: ManifestRecord | TierSegment,
        epoch: int = 0,
        broker: int = 1,
        start: int = -1,
        log: LeaderLog | None = None,
        locked_ms: int = -1,
    ) -> TierCommitted:
        self.number += 1
        added = tuple(each for each in what if isinstance(each, TierSegment))
        records = tuple(
            SegmentAdded(segment=each.segment) if isinstance(each, TierSegment) else each
            for each in what
        )
        return TierCommitted(
            log=LOG,
            number=self.number,
            leader_epoch=epoch,
            broker=broker,
            records=records,
            added=added,
            log_start=start,
            leader_log=log,
            locked_ms=locked_ms,
        )


def began(epoch: int = 0) -> LeaderBegan:
    return LeaderBegan(leader_epoch=epoch, nonce="n")


def removed(*segments: TierSegment) -> SegmentsRemoved:
    return SegmentsRemoved(
        segment_ids=tuple(each.segment.segment_id for each in segments), removed_ms=0
    )


def mark(high_watermark: int) -> HighWatermarkSeen:
    return HighWatermarkSeen(
        log=LOG, broker=1, leader_epoch=0, high_watermark=high_watermark, ends=()
    )
