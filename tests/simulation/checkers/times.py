"""A lookup by time names the first record since then, and skips none, in whichever tier it is.

Records count that are there at the end, and that were below a high watermark before the question:
they were readable all the time.  A leader that had been replaced may not know them.
"""

from bisect import bisect_right

from sparklog.types import NO_LEADER_EPOCH, NO_OFFSET
from tests.simulation.checkers.promises import promises_of
from tests.simulation.checkers.tiers import tiers_of
from tests.simulation.compaction_events import TimeLookedUp
from tests.simulation.events import LogId
from tests.simulation.final_state import FinalState
from tests.simulation.history import NEVER, History


def check(history: History, final: FinalState) -> list[str]:
    promises, tiers = promises_of(history), tiers_of(history)
    logs = {log: _Times(log, final) for log in final.logs}
    found: list[str] = []
    for _, answer in history.each(TimeLookedUp):
        times = logs.get(answer.log)
        if times is None or promises.may_be_lost(answer.log, 0):
            continue
        where = (
            f"{answer.log}: the first record since {answer.timestamp} is said to be at "
            f"{answer.offset}"
        )
        known = times.known.get(answer.offset)
        if known is not None and not known == answer.found_timestamp >= answer.timestamp:
            found.append(f"{where}, of {answer.found_timestamp}; that record is of {known}")
        if answer.leader_epoch == NO_LEADER_EPOCH or promises.is_stale(answer):
            continue
        end = tiers.high_watermark(answer.log, answer.asked)
        first = times.first(answer.timestamp, end)
        if first < (NEVER if answer.offset == NO_OFFSET else answer.offset):
            found.append(f"{where}, offset {first} of {times.known[first]} could be read before")
    return found


class _Times:
    """The timestamps of the records of one log at the end of a run."""

    def __init__(self, log: LogId, final: FinalState) -> None:
        state = final.logs[log]
        self.known = {o: time for o, time in state.timestamps().items() if o >= state.start}
        self._offsets = sorted(self.known)

    def first(self, timestamp: int, end: int) -> int:
        """The first offset below ``end`` with at least this timestamp; NEVER without one."""
        below = self._offsets[: bisect_right(self._offsets, end - 1)]
        return next((offset for offset in below if self.known[offset] >= timestamp), NEVER)
