"""The same offset always holds the same record, unless it was lost legally in between."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.simulation.checkers.promises import Promises, promises_of
from tests.simulation.events import LogId
from tests.simulation.final_state import FinalState
from tests.simulation.history import History


class Sight(NamedTuple):
    """A record that was known to be at an offset at some moment of [start, end]."""

    end: int
    start: int
    log: LogId
    offset: int
    value: bytes | None
    witness: str


def check(history: History, final: FinalState) -> list[str]:
    promises = promises_of(history)
    last: dict[tuple[LogId, int], Sight] = {}
    found: list[str] = []
    for sight in sorted(_sights(history, final, promises), key=lambda sight: sight[:2]):
        key = (sight.log, sight.offset)
        before = last.get(key)
        last[key] = sight
        if before is None or before.value == sight.value:
            continue
        # Either may have been seen first: a consumer gives out what it fetched a while ago, and a
        # leader that does not know that it was replaced what was there before a loss.
        if not promises.may_be_lost(sight.log, min(before.start, sight.start), sight.end):
            found.append(
                f"offset {sight.offset} of {sight.log} was {_short(before.value)} for "
                f"{before.witness} and is {_short(sight.value)} for {sight.witness}"
            )
    return found


def _sights(history: History, final: FinalState, promises: Promises) -> Iterator[Sight]:
    for at, read in history.reads():
        start = 0 if promises.may_be_stale(read) else read.asked
        for offset, value in read.records:
            yield Sight(at, start, read.log, offset, value, read.reader)
    for write, base_offset in history.base_offsets():
        if promises.write_may_be_lost(write):
            continue
        for offset, value in enumerate(write.sent.values, base_offset):
            yield Sight(write.end, write.start, write.log, offset, value, write.sent.producer)
    end = history.position
    for log, state in final.logs.items():
        for offset, value in state.records().items():
            yield Sight(end, end, log, offset, value, "the end")


def _short(value: bytes | None) -> str:
    return "null" if value is None else value.rstrip(b".").decode(errors="replace")[:40]
