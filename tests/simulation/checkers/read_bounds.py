"""Reads stay within bounds: sound bytes, below the high watermark, not below the log start.

And what is within the bounds is there: a read below the high watermark gives something.
"""

from collections.abc import Iterator

from tests.simulation.checkers.promises import promises_of
from tests.simulation.events import FetchDamaged, Fetched, LogId
from tests.simulation.final_state import FinalState
from tests.simulation.history import Deletion, History


def check(history: History, final: FinalState) -> list[str]:
    promises = promises_of(history)
    deleted: dict[LogId, list[Deletion]] = {}
    for deletion in history.deletions():
        deleted.setdefault(deletion.log, []).append(deletion)
    found = [
        f"{event.log}: {event.reader} read damaged bytes from offset {event.offset}: {event.error}"
        for _, event in history.each(FetchDamaged)
    ]
    for at, read in history.each(Fetched):
        found += _outside(read)
        for deletion in deleted.get(read.log, ()):
            hidden = deletion.done < read.asked and read.offset < deletion.low_watermark
            # A follower that was away may not have heard of it, nor one that the leader took for
            # fenced.
            unheard = (
                promises.was_away(read.follower, deletion.start, at)
                or promises.may_not_know(deletion, read.follower, read.asked)
                or promises.deletion_may_be_undone(deletion, at)
            )
            if hidden and not promises.is_stale(read) and not unheard:
                found.append(
                    f"{read.log}: {read.reader} read from offset {read.offset}, records below "
                    f"{deletion.low_watermark} had been deleted"
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
