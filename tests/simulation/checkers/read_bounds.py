"""Reads stay within bounds: sound bytes, below the high watermark, not below the log start.

And what is within the bounds is there: a read below the high watermark gives something.
"""

from collections.abc import Iterator

from tests.simulation.checkers.promises import promises_of
from tests.simulation.events import (
    DeleteRecordsInvoked,
    FetchDamaged,
    Fetched,
    LogId,
    RecordsDeleted,
)
from tests.simulation.final_state import FinalState
from tests.simulation.history import History


def check(history: History, final: FinalState) -> list[str]:
    promises = promises_of(history)
    deleted = _deleted(history)
    found = [
        f"{event.log}: {event.reader} read damaged bytes from offset {event.offset}: {event.error}"
        for _, event in history.each(FetchDamaged)
    ]
    for at, read in history.each(Fetched):
        found += _outside(read)
        for start, done, low_watermark in deleted.get(read.log, ()):
            hidden = done < read.asked and read.offset < low_watermark
            # A follower that was away may not have heard of it.
            unheard = promises.was_away(
                read.follower, start, at
            ) or promises.deletion_may_be_undone(read.log, start, done, at)
            if hidden and not promises.is_stale(read) and not unheard:
                found.append(
                    f"{read.log}: {read.reader} read from offset {read.offset}, records below "
                    f"{low_watermark} had been deleted"
                )
    return found


def _outside(read: Fetched) -> Iterator[str]:
    where = f"{read.log}: {read.reader} read from offset {read.offset}"
    if read.log_start > read.high_watermark:
        yield f"{where}: log start {read.log_start} above high watermark {read.high_watermark}"
    if read.offset < read.log_start:
        yield f"{where}, below the log start {read.log_start}"
    if read.records and read.records[-1][0] >= read.high_watermark:
        yield (
            f"{where} and got offset {read.records[-1][0]}, the high watermark is "
            f"{read.high_watermark}"
        )
    if read.complete and not read.records and read.offset < read.high_watermark:
        yield f"{where} and got nothing, the high watermark is {read.high_watermark}"


def _deleted(history: History) -> dict[LogId, list[tuple[int, int, int]]]:
    """Acknowledged DeleteRecords: positions of question and answer, and what it said."""
    found: dict[LogId, list[tuple[int, int, int]]] = {}
    ends = history.ends(RecordsDeleted)
    for start, asked in history.each(DeleteRecordsInvoked):
        if asked.op in ends:
            at, answer = ends[asked.op]
            found.setdefault(asked.log, []).append((start, at, answer.low_watermark))
    return found
