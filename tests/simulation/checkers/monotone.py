"""What readers see of a log's ends never goes back, as far as it was promised.

The latest offset: never (KIP-207), neither behind one that was told nor behind the high watermark
of a read nor behind an acknowledged record; but a leader that does not know that it was replaced
may tell what it told before.  The high watermark and the log start of reads: not in one leader
epoch, which no leader outlives, nor on one follower, unless that has ended in between.  A reader
that goes from one replica to another may see them go back.  An end that was told after the topic
was to be deleted may be that of the next topic of this name, because ListOffsets goes by names; one
that was told of a topic whose name another one had may be that one's, until records have been
written or read there, which goes by ids.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from tests.simulation.checkers.promises import Promises, promises_of
from tests.simulation.events import EndListed, Fetched, LogId, TopicDeleteInvoked
from tests.simulation.final_state import FinalState
from tests.simulation.history import NEVER, History


class Seen(NamedTuple):
    """A mark of a log, known at ``end``, asked for at ``start``."""

    end: int
    start: int
    mark: int
    what: str


def check(history: History, final: FinalState) -> list[str]:
    promises = promises_of(history)
    marks: dict[tuple[LogId, int, int], list[Seen]] = defaultdict(list)
    starts: dict[tuple[LogId, int, int], list[Seen]] = defaultdict(list)
    lists: dict[LogId, list[Seen]] = defaultdict(list)
    known: dict[LogId, list[Seen]] = defaultdict(list)
    for at, read in history.each(Fetched):
        mark = Seen(at, read.asked, read.high_watermark, "high watermark")
        replica = (read.log, read.leader_epoch, read.follower)
        marks[replica].append(mark)
        known[read.log].append(mark._replace(start=0) if promises.may_be_stale(read) else mark)
        start = Seen(at, read.asked, read.log_start, "log start")
        starts[replica].append(start)
    deletions = {deleted.topic_id: at for at, deleted in history.each(TopicDeleteInvoked)}
    begun = _begun(history, promises)
    for at, listed in history.each(EndListed):
        until = deletions.get(listed.log.topic_id, NEVER)
        if listed.asked < begun.get(listed.log, 0) or at > until:
            continue
        mark = Seen(at, listed.asked, listed.offset, "latest offset")
        is_stale = promises.is_stale(listed)
        known[listed.log].append(mark._replace(start=0) if is_stale else mark)
        if not is_stale:
            lists[listed.log].append(mark)
    for write, base_offset in history.base_offsets():
        if promises.was_committed(write):
            end = base_offset + len(write.sent.values)
            known[write.log].append(Seen(write.end, write.start, end, "acknowledged end"))
    found: list[str] = []
    for (log, _, follower), seen in [*marks.items(), *starts.items()]:
        found += _falls(log, seen, seen, partial(promises.was_away, follower))
    for log, seen in lists.items():
        found += _falls(log, known[log], seen, partial(promises.may_be_lost, log))
    return found


def _begun(history: History, promises: Promises) -> Mapping[LogId, int]:
    """From where on it is known to be this log of a name, and not an earlier one."""
    found: dict[LogId, int] = {}
    names: set[tuple[str, int]] = set()
    for log in promises.copies:  # in the order of their creation
        name = (log.topic, log.partition)
        found[log] = NEVER if name in names else 0
        names.add(name)
    served = [(at, read.log) for at, read in history.each(Fetched)]
    served += [(write.end, write.log) for write, _ in history.base_offsets()]
    for at, log in served:
        found[log] = min(found.get(log, 0), at)
    return found


class Excuse(Protocol):
    def __call__(self, start: int, end: int, /) -> bool: ...


def _falls(
    log: LogId, earlier: Iterable[Seen], later: Iterable[Seen], excuse: Excuse
) -> Iterator[str]:
    """Marks that are below one that was known before they were asked for."""
    known = sorted(earlier)
    taken = 0
    candidates: list[tuple[int, Seen]] = []  # a heap, the highest mark first
    for mark in sorted(later, key=lambda seen: seen.start):
        while taken < len(known) and known[taken].end < mark.start:
            heappush(candidates, (-known[taken].mark, known[taken]))
            taken += 1
        while candidates and (before := candidates[0][1]).mark > mark.mark:
            # One that is excused now may not be so for a later mark, but a higher one goes first.
            if excuse(before.start, mark.end):
                heappop(candidates)
                continue
            yield (
                f"{log}: the {mark.what} is {mark.mark} after the {before.what} was {before.mark}"
            )
            return
