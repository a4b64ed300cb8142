"""A reader of committed records sees a record only after its commit was asked for.

It sees nothing at or above the last stable offset that it was told, and no record of a transaction
that did not commit, unless the coordinator may have lost it.  A record that it saw is there at the
end.
"""

from collections.abc import Iterator

from tests.simulation.checkers.promises import promises_of
from tests.simulation.checkers.told_transactions import ToldTransactions, told_transactions_of
from tests.simulation.final_state import FinalState
from tests.simulation.history import History
from tests.simulation.transaction_events import CommittedRead


def check(history: History, final: FinalState) -> list[str]:
    told, promises = told_transactions_of(history), promises_of(history)
    found: list[str] = []
    for at, read in history.each(CommittedRead):
        where = f"{read.log}: {read.reader} read committed records from offset {read.offset}"
        if read.last_stable_offset > read.high_watermark:
            found.append(
                f"{where}: last stable offset {read.last_stable_offset} above high watermark "
                f"{read.high_watermark}"
            )
        found += (f"{where} and got {text}" for text in _too_early(told, at, read))
        state = final.committed_logs.get(read.log)
        if state is None or state.damage or promises.may_be_lost(read.log, 0):
            continue
        for offset, value in read.records:
            if state.records.get(offset, ...) != value:
                found.append(f"{where} and got {_short(value)} at {offset}, which is not there now")
                break
    return found


def _too_early(told: ToldTransactions, at: int, read: CommittedRead) -> Iterator[str]:
    for offset, value in read.records:
        if offset >= read.last_stable_offset:
            yield f"offset {offset}, the last stable offset is {read.last_stable_offset}"
            return
        transaction = told.by_value.get(value) if value is not None else None
        if transaction is None or told.may_be_lost(transaction, at):
            continue
        if not transaction.may_be_committed_at(at):
            yield f"{_short(value)} of {transaction}, which had not been committed"
            return


def _short(value: bytes | None) -> str:
    return "null" if value is None else value.rstrip(b".").decode(errors="replace")[:60]
