"""Offsets of plain topics have no gaps: neither in a log at the end nor in any read."""

from collections.abc import Iterator

from tests.simulation.events import Consumed, Fetched, LogId
from tests.simulation.final_state import FinalLog, FinalState
from tests.simulation.history import History


def check(history: History, final: FinalState) -> list[str]:
    found: list[str] = []
    for log, state in final.logs.items():
        found += _in_log(log, state)
    for _, read in history.reads():
        if read.log not in final.compacted_logs:
            found += _in_read(read)
    return found


def _in_log(log: LogId, state: FinalLog) -> Iterator[str]:
    if state.damage:
        yield f"{log} cannot be read to its end: {state.damage}"
        return
    expected: int | None = None
    for batch in state.batches:
        if expected is None and batch.base_offset > state.start:
            yield f"{log} starts at {state.start}, its first batch at {batch.base_offset}"
        if expected is not None and batch.base_offset != expected:
            yield f"{log}: a batch at offset {batch.base_offset} where {expected} follows"
        expected = batch.next_offset
    if (state.start if expected is None else expected) != state.end:
        yield f"{log} ends at {state.end}, its last batch at {expected}"


def _in_read(read: Fetched | Consumed) -> Iterator[str]:
    offsets = [offset for offset, _ in read.records]
    if not offsets:
        return
    if offsets[0] > read.offset:
        yield f"{read.log}: a read from {read.offset} began at {offsets[0]}"
    if offsets[-1] < read.offset:
        yield f"{read.log}: a read from {read.offset} ended at {offsets[-1]}"
    if offsets != list(range(offsets[0], offsets[0] + len(offsets))):
        yield f"{read.log}: a read from {read.offset} gave the offsets {offsets[:20]}"
