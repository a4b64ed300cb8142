"""A lookup by time names the first record since then, and skips none, in whichever tier it is.

Records count that were readable all the time: those of segments that the manifest names before the
question and after the answer, and those that are there at the end and were below a high watermark
before the question.  A leader that had been replaced may not know them.
"""

from bisect import bisect_left

from sparklog.types import NO_LEADER_EPOCH, NO_OFFSET
from tests.simulation.checkers import deletions
from tests.simulation.checkers.promises import Promises, promises_of
from tests.simulation.checkers.tiers import Tiers, tiers_of
from tests.simulation.compaction_events import TimeLookedUp
from tests.simulation.events import DeleteRecordsInvoked, LogId, RecordsDeleted
from tests.simulation.final_state import FinalState
from tests.simulation.history import NEVER, History


def check(history: History, final: FinalState) -> list[str]:
    promises, tiers = promises_of(history), tiers_of(history)
    logs = {log: _Times(log, final) for log in final.logs}
    starts = _Starts(history, promises, tiers)
    found: list[str] = []
    for at, answer in history.each(TimeLookedUp):
        where = (
            f"{answer.log}: the first record since {answer.timestamp} is said to be at "
            f"{answer.offset}"
        )
        is_known = answer.leader_epoch != NO_LEADER_EPOCH and not promises.is_stale(answer)
        start = starts.highest(answer.log, at)
        skipped = _skipped(promises, tiers, start, at, answer)
        if is_known and skipped is not None:
            found.append(f"{where}, the bucket had {skipped}")
            continue
        times = logs.get(answer.log)
        if times is None or promises.may_be_lost(answer.log, 0):
            continue
        known = times.known.get(answer.offset)
        if known is not None and not known == answer.found_timestamp >= answer.timestamp:
            found.append(f"{where}, of {answer.found_timestamp}; that record is of {known}")
        if not is_known:
            continue
        end = tiers.high_watermark(answer.log, answer.asked - 1)
        first = times.first(answer.timestamp, start, end)
        if first < (NEVER if answer.offset == NO_OFFSET else answer.offset):
            found.append(f"{where}, offset {first} of {times.known[first]} could be read before")
    return found


def _skipped(
    promises: Promises, tiers: Tiers, start: int, at: int, answer: TimeLookedUp
) -> str | None:
    """The first batch in the bucket that an answer has skipped; None: there is none."""
    log = answer.log
    before, after = tiers.state_at(log, answer.asked - 1), tiers.state_at(log, at)
    if before is None or after is None:
        return None
    reached = NEVER if answer.offset == NO_OFFSET else answer.offset
    for each in before.segments:
        if each.segment.segment_id not in after.live:
            continue
        for batch in each.batches:
            if start <= batch.base_offset and batch.next_offset <= reached:
                if batch.max_timestamp < answer.timestamp or batch.ends_transaction:
                    continue
                if promises.may_be_lost(log, tiers.added_at(log, each), at):
                    return None
                return f"[{batch.base_offset}, {batch.next_offset}) of {batch.max_timestamp}"
    return None


class _Starts:
    """Where the logs may start at most, by what was asked for.

    A crash may undo a deletion that was not answered, so the log may start lower at the end.
    """

    def __init__(self, history: History, promises: Promises, tiers: Tiers) -> None:
        self._tiers = tiers
        self._asked: dict[LogId, list[tuple[int, DeleteRecordsInvoked]]] = {}
        for at, asked in history.each(DeleteRecordsInvoked):
            self._asked.setdefault(asked.log, []).append((at, asked))
        self._answered = {each.op: each.low_watermark for _, each in history.each(RecordsDeleted)}
        self._retained = set(deletions.retained_topics(history, promises))

    def highest(self, log: LogId, at: int) -> int:
        if log.topic_id in self._retained:
            return NEVER
        asked = (each for when, each in self._asked.get(log, ()) if when <= at)
        return max((self._highest(each, at) for each in asked), default=0)

    def _highest(self, asked: DeleteRecordsInvoked, at: int) -> int:
        if asked.before != NO_OFFSET:
            return asked.before
        return self._answered.get(asked.op, self._tiers.high_watermark(asked.log, at))


class _Times:
    """The timestamps of the records of one log at the end of a run."""

    def __init__(self, log: LogId, final: FinalState) -> None:
        state = final.logs[log]
        self.known = {o: time for o, time in state.timestamps().items() if o >= state.start}
        self._offsets = sorted(self.known)

    def first(self, timestamp: int, start: int, end: int) -> int:
        """The first offset in [start, end) with at least this timestamp; NEVER without one."""
        low, high = (bisect_left(self._offsets, each) for each in (start, end))
        readable = self._offsets[low:high]
        return next((offset for offset in readable if self.known[offset] >= timestamp), NEVER)
