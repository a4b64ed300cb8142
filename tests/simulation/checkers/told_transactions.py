"""Each transaction as its producer saw it: what was sent, and what its end is known to be.

Owns: joining the events of a transaction, and whether its parts may legally be lost.  Must not know
what a log holds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tests.simulation.checkers.coordinators import Coordinators, transaction_coordinators_of
from tests.simulation.checkers.promises import Promises, promises_of
from tests.simulation.events import LogId
from tests.simulation.history import NEVER, History
from tests.simulation.transaction_events import (
    EndTxnAnswered,
    EndTxnInvoked,
    ProducerInitialized,
    TransactionalRecordSent,
    TransactionBegun,
)


@dataclass(slots=True, kw_only=True)
class Attempt:
    """An EndTxn from its invocation to its answer; without an answer ``end`` is NEVER."""

    committed: bool
    start: int
    end: int = NEVER
    code: str | None = None

    @property
    def is_refused(self) -> bool:
        """Whether it is known that it decided nothing."""
        return bool(self.code)

    @property
    def is_taken(self) -> bool:
        """Whether it is known that the transaction ends as it says."""
        return self.code == ""


@dataclass(slots=True, kw_only=True)
class ToldTransaction:
    """A transaction; ``start`` is the position of its beginning."""

    number: int
    transactional_id: str
    instance: str
    start: int
    #: Values that were sent, with their logs.
    records: dict[bytes, LogId] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.instance}"

    @property
    def is_committed(self) -> bool:
        """Whether it is known to be committed."""
        return any(each.committed and each.is_taken for each in self.attempts)

    @property
    def last_step(self) -> int:
        """The position of the last attempt to end it."""
        return max((each.start for each in self.attempts), default=self.start)

    @property
    def logs(self) -> set[LogId]:
        return set(self.records.values())

    def may_be_committed_at(self, position: int) -> bool:
        """Whether some attempt before the position may have committed it."""
        return any(
            each.committed and each.start < position and not each.is_refused
            for each in self.attempts
        )


@lru_cache(maxsize=1)
def told_transactions_of(history: History) -> "ToldTransactions":
    """Of a history that is over; all checkers ask the same ones."""
    return ToldTransactions(history)


class ToldTransactions:
    """The transactions of one history, by number and by value."""

    def __init__(self, history: History) -> None:
        self._promises: Promises = promises_of(history)
        self._coordinators: Coordinators = transaction_coordinators_of(history)
        self.by_number: Mapping[int, ToldTransaction] = _told(history)
        self.by_value: Mapping[bytes, ToldTransaction] = {
            value: each for each in self.by_number.values() for value in each.records
        }
        self._unfenced = _unfenced(history, self._coordinators)

    def __iter__(self) -> Iterator[ToldTransaction]:
        return iter(self.by_number.values())

    def may_be_lost(self, transaction: ToldTransaction, end: int = NEVER) -> bool:
        """Whether the decision, or anything of the transaction, may legally be gone at ``end``.

        With two instances that did not fence each other, either may end what the other wrote.
        """
        start, key = transaction.start, transaction.transactional_id
        if self._unfenced.get(transaction.instance, NEVER) <= transaction.last_step:
            return True
        return self._coordinators.may_be_lost(key, start, end) or any(
            self._promises.may_be_lost(log, start, end) for log in transaction.logs
        )


def _unfenced(history: History, coordinators: Coordinators) -> dict[str, int]:
    """Instances beside which another one of the same epoch may live, and since when.

    The coordinator may have lost the epoch of the earlier one before it answered the later one.
    """
    starts = list(history.each(ProducerInitialized))
    found: dict[str, int] = {}
    for answered, former in starts:
        for _, later in starts:
            if later.transactional_id != former.transactional_id or later.asked < answered:
                continue
            if coordinators.may_be_lost(former.transactional_id, answered, later.asked):
                for instance in (former.instance, later.instance):
                    found[instance] = min(found.get(instance, NEVER), later.asked)
    return found


def _told(history: History) -> dict[int, ToldTransaction]:
    found: dict[int, ToldTransaction] = {}
    attempts: dict[int, Attempt] = {}
    for at, event in enumerate(history.events):
        match event:
            case TransactionBegun():
                found[event.transaction] = ToldTransaction(
                    number=event.transaction,
                    transactional_id=event.transactional_id,
                    instance=event.instance,
                    start=at,
                )
            case TransactionalRecordSent():
                found[event.transaction].records[event.value] = event.log
            case EndTxnInvoked():
                attempt = attempts[event.op] = Attempt(committed=event.committed, start=at)
                found[event.transaction].attempts.append(attempt)
            case EndTxnAnswered():
                attempts[event.op].end = at
                attempts[event.op].code = event.code
            case _:
                pass
    return found
