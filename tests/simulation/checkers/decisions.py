"""Each transaction is decided once, in the log of its coordinator, before any marker says so.

The records of a transactional id follow the transitions of a transaction, producer epochs never go
back, and a marker repeats the latest decision about its producer, in a partition of it.
"""

from collections.abc import Iterator

from sparklog.driver.transactions.transaction_state import TRANSITIONS
from tests.simulation.checkers.promises import promises_of
from tests.simulation.events import LogId
from tests.simulation.final_state import FinalState
from tests.simulation.history import History
from tests.simulation.transaction_events import (
    MarkerAppended,
    Producer,
    TransactionStateCommitted,
)

_DECIDED = {"PrepareCommit": True, "PrepareAbort": False}
#: A fenced transaction goes on to PrepareAbort in the same record.
_NEXT = {
    state.label: {entered.label for entered in targets} for state, targets in TRANSITIONS.items()
}
_NEXT["Ongoing"].add("PrepareAbort")


def check(history: History, final: FinalState) -> list[str]:
    promises = promises_of(history)
    logs = {event.log for _, event in history.each(TransactionStateCommitted)}
    lost = {log for log in logs if promises.may_be_lost(log, 0)}
    found: list[str] = []
    for log in sorted(logs - lost):
        found += _transitions(history, log)
    if not lost:
        found += _markers(history)
    return found


def _transitions(history: History, log: LogId) -> Iterator[str]:
    records: dict[int, TransactionStateCommitted] = {}
    for _, event in history.each(TransactionStateCommitted):
        if event.log == log:
            records.setdefault(event.offset, event)
    last: dict[str, TransactionStateCommitted] = {}
    for offset, event in sorted(records.items()):
        before = last.get(event.transactional_id)
        last[event.transactional_id] = event
        if before is None or before.state == "Dead":
            continue
        if event.state not in _NEXT[before.state]:
            yield (
                f"{log}: {event.transactional_id} goes from {before.state} to {event.state} at "
                f"offset {offset}"
            )
        one, other = before.producer, event.producer
        if event.state != "Dead" and one.producer_id == other.producer_id and other < one:
            yield (
                f"{log}: {event.transactional_id} goes from epoch {one.epoch} to {other.epoch} at "
                f"offset {offset}"
            )


def _markers(history: History) -> Iterator[str]:
    decided: dict[Producer, TransactionStateCommitted] = {}
    seen: set[tuple[LogId, int]] = set()
    for event in history.events:
        match event:
            case TransactionStateCommitted() if event.state in _DECIDED:
                decided[event.producer] = event
            case MarkerAppended() if (event.log, event.offset) not in seen:
                seen.add((event.log, event.offset))
                yield from _marker(event, decided.get(event.producer))
            case _:
                pass


def _marker(marker: MarkerAppended, decision: TransactionStateCommitted | None) -> Iterator[str]:
    kind = "commits" if marker.committed else "aborts"
    where = f"{marker.log}: the marker at offset {marker.offset} {kind} {marker.producer}"
    if decision is None:
        yield f"{where}, which nobody had decided"
    elif _DECIDED[decision.state] is not marker.committed:
        yield f"{where}, and the decision is {decision.state}"
    elif (marker.log.topic, marker.log.partition) not in decision.partitions:
        yield f"{where}, and the transaction does not have the partition"
