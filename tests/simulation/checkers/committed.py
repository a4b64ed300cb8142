"""What is committed is in every log that counts, whenever a high watermark or an ISR changes.

A leader that is in office has its high watermark below what each member of the ISR and each
eligible replica has, flushed where the topic promises a flush; and only what is below it is
acknowledged in the name of all, or read, from whichever replica.  Of a history in which nobody
watched high watermarks, as one of real processes, it says nothing.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from tests.simulation.checkers.promises import ACKS_ALL, Promises, promises_of
from tests.simulation.events import Fetched, HighWatermarkSeen, LogId
from tests.simulation.final_state import FinalState
from tests.simulation.history import History


def check(history: History, final: FinalState) -> list[str]:
    promises = promises_of(history)
    found: list[str] = []
    marks: dict[LogId, list[tuple[int, int]]] = defaultdict(list)
    for at, seen in history.each(HighWatermarkSeen):
        found += _ahead(promises, at, seen)
        highest = max(seen.high_watermark, marks[seen.log][-1][1] if marks[seen.log] else 0)
        marks[seen.log].append((at, highest))
    if not marks:
        return []
    for write, base_offset in history.base_offsets():
        end = base_offset + len(write.sent.values)
        if write.sent.acks == ACKS_ALL and not _reached(marks[write.log], write.end, end):
            found.append(
                f"{write.log}: offset {end - 1} was acknowledged before any high watermark was "
                "above it"
            )
    for at, read in history.each(Fetched):
        if read.records and not _reached(marks[read.log], at, read.records[-1][0] + 1):
            found.append(
                f"{read.log}: {read.reader} read offset {read.records[-1][0]} before any high "
                "watermark was above it"
            )
    return found


def _ahead(promises: Promises, at: int, seen: HighWatermarkSeen) -> Iterator[str]:
    copies = promises.copies.get(seen.log)
    state = copies.state_at(at) if copies is not None else None
    if copies is None or state is None:
        return
    if (state.leader, state.leader_epoch) != (seen.broker, seen.leader_epoch):
        return  # it does not know yet that it was replaced
    for replica in seen.ends:
        end = replica.flushed if copies.durable else replica.end
        if replica.broker in {*state.isr, *state.eligible} and end < seen.high_watermark:
            yield (
                f"{seen.log}: broker {seen.broker} has the high watermark at "
                f"{seen.high_watermark}, broker {replica.broker} has the log up to {end}"
            )


def _reached(marks: list[tuple[int, int]], before: int, end: int) -> bool:
    """By position, the highest so far: the first that is high enough decides."""
    first = bisect_left(marks, end, key=lambda mark: mark[1])
    return first < len(marks) and marks[first][0] < before
