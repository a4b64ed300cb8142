"""A group whose members commit after processing has processed every record, once it has drained."""

from collections import defaultdict

from tests.simulation.checkers.promises import promises_of
from tests.simulation.events import (
    DeleteRecordsInvoked,
    Fetched,
    GroupDrained,
    LogId,
    Processed,
    RecordsDeleted,
    ReplicaSeen,
)
from tests.simulation.final_state import FinalState
from tests.simulation.history import NEVER, History


def check(history: History, final: FinalState) -> list[str]:
    """What was below a log's start at any time may come back with a crash, and be skipped.  So may
    anything of a log that lost records, where positions are above the end for a while."""
    promises = promises_of(history)
    processed: dict[tuple[str, LogId], dict[int, bytes | None]] = defaultdict(dict)
    for _, event in history.each(Processed):
        processed[event.group, event.log].update(event.records)
    starts = _highest_starts(history)
    found: list[str] = []
    for _, drained in history.each(GroupDrained):
        for log, end in drained.ends:
            state = final.logs.get(log)
            if drained.error or state is None or promises.may_be_lost(log, 0):
                continue
            start = max(state.start, starts[log])
            there = processed[drained.group, log]
            skipped = [
                offset
                for offset, value in state.records().items()
                if start <= offset < end and there.get(offset, ...) != value
            ]
            if skipped:
                found.append(
                    f"group {drained.group} has not processed offset {skipped[0]} of {log}, nor "
                    f"{len(skipped) - 1} others below {end}"
                )
    return found


def _highest_starts(history: History) -> dict[LogId, int]:
    """How far each log was deleted at most, as far as anybody saw or asked for it."""
    starts: dict[LogId, int] = defaultdict(int)
    deleted = history.ends(RecordsDeleted)
    for event in history.events:
        match event:
            case Fetched():
                log, start = event.log, event.log_start
            case ReplicaSeen():
                log, start = event.log, event.start
            case DeleteRecordsInvoked(op=op) if op in deleted:
                log, start = event.log, deleted[op][1].low_watermark
            case DeleteRecordsInvoked():
                log, start = event.log, event.before if event.before >= 0 else NEVER
            case _:
                continue
        starts[log] = max(starts[log], start)
    return starts
