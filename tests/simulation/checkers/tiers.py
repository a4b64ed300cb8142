"""The manifests of a history, replayed commit by commit: what the checkers of tiers share.

Owns: the state of each manifest after each commit.  Must not know what a state has to be.  It is
written apart from the product's own replay.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from sparklog.remote_log.manifest_records import (
    LeaderBegan,
    LogStartMoved,
    SegmentAdded,
    SegmentShortened,
    SegmentsRemoved,
    TruncatedAfter,
)
from tests.simulation.events import HighWatermarkSeen, LogId
from tests.simulation.history import History
from tests.simulation.tier_events import TierCommitted, TierSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class TierState:
    """A manifest from position ``at`` on.

    ``removed`` has the ids that left it, and the times (ms) at which nobody was told of them any
    more.
    """

    at: int
    commit: TierCommitted
    segments: tuple[TierSegment, ...] = ()
    removed: Mapping[str, int] = field(default_factory=dict)
    log_start: int = 0
    leader_epoch: int = -1

    @property
    def end(self) -> int:
        """The next offset after the last segment; the log start without segments."""
        return self.segments[-1].segment.next_offset if self.segments else self.log_start

    @property
    def live(self) -> frozenset[str]:
        return frozenset(each.segment.segment_id for each in self.segments)


class Tiers:
    """Answers about one history."""

    def __init__(self, history: History) -> None:
        self.states: dict[LogId, list[TierState]] = {}
        for at, commit in history.each(TierCommitted):
            states = self.states.setdefault(commit.log, [])
            before = states[-1] if states else None
            now_ms = history.times_ms[at] if commit.locked_ms < 0 else commit.locked_ms
            states.append(_after(before, at, commit, now_ms))
        self._marks: dict[LogId, list[tuple[int, int]]] = {}
        for at, seen in history.each(HighWatermarkSeen):
            marks = self._marks.setdefault(seen.log, [])
            highest = max(seen.high_watermark, marks[-1][1] if marks else 0)
            marks.append((at, highest))

    def state_at(self, log: LogId, position: int) -> TierState | None:
        """The manifest as of a position; None before its first commit."""
        states = self.states.get(log, [])
        found = bisect_right(states, position, key=lambda state: state.at)
        return states[found - 1] if found else None

    def added_at(self, log: LogId, segment: TierSegment) -> int:
        """The position of the commit that has added a segment."""
        name = segment.segment.segment_id
        return next(state.at for state in self.states[log] if name in state.live)

    def last(self, log: LogId) -> TierState | None:
        states = self.states.get(log)
        return states[-1] if states else None

    def high_watermark(self, log: LogId, position: int) -> int:
        """The highest that any leader had up to a position."""
        marks = self._marks.get(log, [])
        found = bisect_right(marks, position, key=lambda mark: mark[0])
        return marks[found - 1][1] if found else 0


def _after(before: TierState | None, at: int, commit: TierCommitted, now_ms: int) -> TierState:
    segments = list(before.segments) if before is not None else []
    removed = dict(before.removed) if before is not None else {}
    log_start = before.log_start if before is not None else 0
    leader_epoch = before.leader_epoch if before is not None else -1
    added = {each.segment.segment_id: each for each in commit.added}
    for record in commit.records:
        gone: list[TierSegment] = []
        match record:
            case LeaderBegan():
                leader_epoch = record.leader_epoch
            case SegmentAdded():
                segments.append(added[record.segment.segment_id])
            case LogStartMoved():
                log_start = record.log_start_offset
            case SegmentsRemoved():
                gone = [s for s in segments if s.segment.segment_id in record.segment_ids]
                log_start = max([log_start, *(s.segment.next_offset for s in gone)])
            case TruncatedAfter():
                gone = [s for s in segments if s.segment.next_offset > record.offset]
            case SegmentShortened():
                segments[-1] = _shortened(segments[-1], record)
        segments = [s for s in segments if s not in gone]
        removed |= {s.segment.segment_id: now_ms for s in gone}
    return TierState(
        at=at,
        commit=commit,
        segments=tuple(segments),
        removed=removed,
        log_start=log_start,
        leader_epoch=leader_epoch,
    )


def _shortened(last: TierSegment, record: SegmentShortened) -> TierSegment:
    """The beginning of the last segment; its objects stay as they were."""
    end = record.segment.next_offset
    return replace(
        last,
        segment=record.segment,
        copied=last.copied or last.segment,
        batches=tuple(batch for batch in last.batches if batch.next_offset <= end),
    )


@lru_cache(maxsize=1)
def tiers_of(history: History) -> Tiers:
    """Of a history that is over; all checkers ask the same one."""
    return Tiers(history)
