"""What readers see of a log's ends never goes back, as far as it was promised.

The latest offset: never, not even behind a high watermark that a reader saw (KIP-207), nor behind
an acknowledged record.  The high watermark of reads: not while the broker lives; afterwards it may
be found again from below.  The log start: not while the broker lives.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from final_state import FinalState
from history import EndListed, Fetched, History, LogId

from checkers.promises import Promises


class Seen(NamedTuple):
    """A mark of a log, known at ``end``, asked for at ``start``."""

    end: int
    start: int
    mark: int
    what: str


def check(history: History, final: FinalState) -> list[str]:
    promises = Promises(history)
    marks: dict[LogId, list[Seen]] = defaultdict(list)
    starts: dict[LogId, list[Seen]] = defaultdict(list)
    lists: dict[LogId, list[Seen]] = defaultdict(list)
    for at, read in history.each(Fetched):
        marks[read.log].append(Seen(at, read.asked, read.high_watermark, "high watermark"))
        starts[read.log].append(Seen(at, read.asked, read.log_start, "log start"))
    for at, listed in history.each(EndListed):
        lists[listed.log].append(Seen(at, listed.asked, listed.offset, "latest offset"))
    ends: dict[LogId, list[Seen]] = defaultdict(list)
    for write, base_offset in history.base_offsets():
        known = base_offset + len(write.sent.values)
        ends[write.log].append(Seen(write.end, write.start, known, "acknowledged end"))
    found: list[str] = []
    for log in {**marks, **lists}:
        found += _falls(log, marks[log], marks[log], promises.restarted)
        found += _falls(log, starts[log], starts[log], promises.died)
        earlier = sorted([*marks[log], *lists[log], *ends[log]])
        found += _falls(log, earlier, lists[log], promises.may_be_lost)
    return found


class Excuse(Protocol):
    def __call__(self, log: LogId, start: int, end: int, /) -> bool: ...


def _falls(
    log: LogId, earlier: Iterable[Seen], later: Iterable[Seen], excuse: Excuse
) -> Iterator[str]:
    """Marks that are below one that was known before they were asked for."""
    known = sorted(earlier)
    taken = 0
    candidates: list[Seen] = []
    for mark in sorted(later, key=lambda seen: seen.start):
        while taken < len(known) and known[taken].end < mark.start:
            candidates.append(known[taken])
            taken += 1
        # One that is excused now may not be so for a later mark, but a higher one goes first.
        for before in sorted(candidates, key=lambda seen: -seen.mark):
            if before.mark <= mark.mark:
                break
            if excuse(log, before.start, mark.end):
                candidates.remove(before)
                continue
            yield (
                f"{log}: the {mark.what} is {mark.mark} after the {before.what} was {before.mark}"
            )
            return
