"""Once InitProducerId is answered, earlier instances of the transactional id write nothing more.

An instance whose request was asked for after another instance had got its answer is a successor of
that one.  What the former sends after the successor's answer is neither acknowledged nor committed.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.simulation.checkers.coordinators import transaction_coordinators_of
from tests.simulation.checkers.promises import promises_of
from tests.simulation.checkers.told_transactions import told_transactions_of
from tests.simulation.final_state import FinalState
from tests.simulation.history import NEVER, History
from tests.simulation.transaction_events import (
    ProducerInitialized,
    TransactionalRecordAcked,
    TransactionalRecordSent,
)


def check(history: History, final: FinalState) -> list[str]:
    told, fences = told_transactions_of(history), _fences(history)
    coordinators, promises = transaction_coordinators_of(history), promises_of(history)
    visible = {value for state in final.committed_logs.values() for value in state.records.values()}
    sent = {event.value: at for at, event in history.each(TransactionalRecordSent)}
    acked = {event.value: at for at, event in history.each(TransactionalRecordAcked)}
    found: list[str] = []
    for transaction in told:
        fence, successor = fences.get(transaction.instance, (NEVER, ""))
        if fence == NEVER or coordinators.may_be_lost(transaction.transactional_id, 0, NEVER):
            continue
        for value in transaction.records:
            if sent[value] > fence and value in acked:
                found.append(
                    f"{_short(value)} of {transaction} was acknowledged, and {successor} had "
                    "fenced it before it was sent"
                )
        for attempt in transaction.attempts:
            if attempt.start > fence and attempt.is_taken:
                found.append(
                    f"the end of {transaction} was taken, and {successor} had fenced it before"
                )
        is_late = not any(a.committed and a.start < fence for a in transaction.attempts)
        # A log that has lost a marker may show the records with a later transaction's.
        shown = [
            value
            for value, log in transaction.records.items()
            if value in visible and not promises.may_be_lost(log, transaction.start)
        ]
        if shown and is_late:
            found.append(
                f"{_short(shown[0])} of {transaction} is visible, and {successor} had fenced it "
                "before its commit"
            )
    return found


def _fences(history: History) -> Mapping[str, tuple[int, str]]:
    """By instance: where its first successor got its answer, and the successor."""
    by_id: dict[str, list[tuple[int, ProducerInitialized]]] = defaultdict(list)
    for at, event in history.each(ProducerInitialized):
        by_id[event.transactional_id].append((at, event))
    return {
        former.instance: fence
        for starts in by_id.values()
        for at, former in starts
        for fence in [next(_successors(at, starts), None)]
        if fence is not None
    }


def _successors(
    at: int, starts: list[tuple[int, ProducerInitialized]]
) -> Iterator[tuple[int, str]]:
    return ((answered, event.instance) for answered, event in starts if event.asked > at)


def _short(value: bytes) -> str:
    return value.rstrip(b".").decode(errors="replace")[:60]
