"""A consistent cut has all records of a committed transaction in its partitions, or none."""

from collections.abc import Mapping

from sparklog.metadata.topic_names import TRANSACTION_STATE
from tests.simulation.checkers.promises import promises_of
from tests.simulation.checkers.told_transactions import (
    ToldTransaction,
    ToldTransactions,
    told_transactions_of,
)
from tests.simulation.events import LogId
from tests.simulation.final_state import FinalState
from tests.simulation.history import History
from tests.simulation.transaction_events import CutTaken

#: The places of committed records by transaction and log: the first and the last offset.
_Spans = Mapping[int, Mapping[LogId, tuple[int, int]]]


def check(history: History, final: FinalState) -> list[str]:
    told, promises = told_transactions_of(history), promises_of(history)
    if promises.anything_may_be_lost(TRANSACTION_STATE):
        return []  # a decision that is gone leaves a transaction open that no cut can know
    spans = _spans(told, final)
    found: list[str] = []
    for _, cut in history.each(CutTaken):
        # What a loss took may have left its offsets to others.
        ends = {log: end for log, end in cut.ends if not promises.may_be_lost(log, 0)}
        for number, places in spans.items():
            problem = _torn(told.by_number[number], places, ends)
            if problem:
                found.append(f"a cut of {cut.reader} tears {problem}")
    return found


def _spans(told: ToldTransactions, final: FinalState) -> _Spans:
    """Of the transactions of which nothing may be lost."""
    kept = {each.number for each in told if not told.may_be_lost(each)}
    spans: dict[int, dict[LogId, tuple[int, int]]] = {}
    for log, state in final.committed_logs.items():
        for offset, value in sorted(state.records.items()):
            transaction = told.by_value.get(value) if value is not None else None
            if transaction is not None and transaction.number in kept:
                places = spans.setdefault(transaction.number, {})
                places[log] = (places.get(log, (offset, 0))[0], offset)
    return spans


def _torn(
    transaction: ToldTransaction,
    places: Mapping[LogId, tuple[int, int]],
    ends: Mapping[LogId, int],
) -> str:
    inside = [log for log, (first, _) in places.items() if log in ends and first < ends[log]]
    outside = [log for log, (_, last) in places.items() if log in ends and last >= ends[log]]
    if not inside or not outside:
        return ""
    one, other = inside[0], outside[0]
    return (
        f"{transaction}: offset {places[one][0]} of {one} is below {ends[one]}, offset "
        f"{places[other][1]} of {other} is not below {ends[other]}"
    )
