"""A transaction is committed as a whole or not at all, and as its producer was told.

At the end the records of a transaction that committed are visible in all of its partitions, and
none of the records of any other.  One whose end was not answered is the one or the other.
"""

from tests.simulation.checkers.told_transactions import ToldTransaction, told_transactions_of
from tests.simulation.events import LogId
from tests.simulation.final_state import CommittedLog, FinalState
from tests.simulation.history import NEVER, History


def check(history: History, final: FinalState) -> list[str]:
    told = told_transactions_of(history)
    places: dict[bytes, list[tuple[LogId, int]]] = {}
    for log, state in final.committed_logs.items():
        for offset, value in state.records.items():
            if value is not None:
                places.setdefault(value, []).append((log, offset))
    found: list[str] = []
    for transaction in told:
        if told.may_be_lost(transaction):
            continue
        if all(_is_whole(final.committed_logs.get(log)) for log in transaction.logs):
            found += _check_one(transaction, places)
    return found


def _is_whole(state: CommittedLog | None) -> bool:
    """See ``stable_offsets`` for one that is not."""
    return state is not None and state.is_whole


def _check_one(
    transaction: ToldTransaction, places: dict[bytes, list[tuple[LogId, int]]]
) -> list[str]:
    there = {value: places.get(value, []) for value in transaction.records}
    visible = [value for value, found in there.items() if found]
    hidden = [value for value in there if value not in visible]
    problems = [
        f"{_short(value)} of {transaction} is at {found}"
        for value, found in there.items()
        if len(found) > 1
    ]
    if visible and not transaction.may_be_committed_at(NEVER):
        problems.append(f"{_short(visible[0])} of {transaction} is visible, which never committed")
    elif hidden and transaction.is_committed:
        problems.append(
            f"{_short(hidden[0])} of {transaction} is not visible in "
            f"{transaction.records[hidden[0]]}, although the commit was answered"
        )
    elif visible and hidden:
        problems.append(
            f"{transaction} is torn: {_short(visible[0])} is visible in "
            f"{transaction.records[visible[0]]}, {_short(hidden[0])} is not in "
            f"{transaction.records[hidden[0]]}"
        )
    return problems


def _short(value: bytes) -> str:
    return value.rstrip(b".").decode(errors="replace")[:60]
