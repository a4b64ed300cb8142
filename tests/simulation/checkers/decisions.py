"""Each transaction is decided once, in the log of its coordinator, before any marker says so.

The records of a transactional id follow the transitions of a transaction, producer epochs never go
back, and a marker repeats the latest decision about its producer, in a partition of it.  A recovery
may have lost a marker behind records that the bucket has.  The leader appends it once more, in the
epoch of the records, and it has to end the transaction as the lost marker did.
"""

from collections.abc import Iterator

from sparklog.driver.transactions.transaction_state import TRANSITIONS
from tests.simulation.checkers.promises import promises_of
from tests.simulation.checkers.tiers import tiers_of
from tests.simulation.events import LogId
from tests.simulation.final_state import FinalState
from tests.simulation.history import History
from tests.simulation.tier_events import TierBatch, TierSegment
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
    seen: set[MarkerAppended] = set()
    lost = _LostMarkers(history)
    for at, event in enumerate(history.events):
        match event:
            case TransactionStateCommitted() if event.state in _DECIDED:
                decided[event.producer] = event
            case MarkerAppended() if event not in seen:
                seen.add(event)
                copied = lost.copied_records(at, event)
                if copied is not None:
                    yield from _repeated(event, lost.marker_of(event, *copied))
                else:
                    yield from _marker(event, decided.get(event.producer))
            case _:
                pass


def _where(marker: MarkerAppended) -> str:
    kind = "commits" if marker.committed else "aborts"
    return f"{marker.log}: the marker at offset {marker.offset} {kind} {marker.producer}"


def _marker(marker: MarkerAppended, decision: TransactionStateCommitted | None) -> Iterator[str]:
    where = _where(marker)
    if decision is None:
        yield f"{where}, which nobody had decided"
    elif _DECIDED[decision.state] is not marker.committed:
        yield f"{where}, and the decision is {decision.state}"
    elif (marker.log.topic, marker.log.partition) not in decision.partitions:
        yield f"{where}, and the transaction does not have the partition"


def _repeated(marker: MarkerAppended, lost: MarkerAppended | None) -> Iterator[str]:
    """What is wrong with a marker in place of a lost one, whose epoch may be a bump higher."""
    where = _where(marker)
    if lost is None:
        yield f"{where}, of which records were copied before it had ended"
    elif lost.committed is not marker.committed:
        yield f"{where}, and the lost one at offset {lost.offset} had the other outcome"
    elif lost.producer.epoch - marker.producer.epoch not in (0, 1):
        yield f"{where}, and the lost one at offset {lost.offset} is of {lost.producer}"


class _LostMarkers:
    """Markers that were in a log and are not in the bucket, which has records of them."""

    def __init__(self, history: History) -> None:
        self._tiers = tiers_of(history)
        self._copies = promises_of(history).copies
        self._seen: dict[tuple[LogId, int], list[tuple[int, MarkerAppended]]] = {}
        for at, marker in history.each(MarkerAppended):
            key = (marker.log, marker.producer.producer_id)
            self._seen.setdefault(key, []).append((at, marker))

    def copied_records(
        self, at: int, marker: MarkerAppended
    ) -> tuple[TierSegment, TierBatch] | None:
        """The last records of the transaction of a marker, if it is the first one after a recovery.

        None if the bucket has none of them.
        """
        recovered = self._recovered(marker.log, at)
        manifest = self._tiers.state_at(marker.log, at)
        if manifest is None or recovered < 0:
            return None
        last = None
        for segment in manifest.segments:
            for batch in segment.batches:
                is_of_it = batch.producer_id == marker.producer.producer_id
                if is_of_it and batch.is_transactional and batch.next_offset <= marker.offset:
                    last = segment, batch
        if last is None or last[1].ends_transaction:
            return None
        is_first = not any(
            recovered < when < at and last[1].next_offset <= other.offset < marker.offset
            for when, other in self._seen_of(marker)
        )
        return last if is_first else None

    def marker_of(
        self, marker: MarkerAppended, segment: TierSegment, batch: TierBatch
    ) -> MarkerAppended | None:
        """The marker that had ended the transaction of these records when they were copied."""
        copied = self._tiers.added_at(marker.log, segment)
        began = self._recovered(marker.log, copied)
        behind = [
            other
            for when, other in self._seen_of(marker)
            if began < when < copied and other.offset >= batch.next_offset
        ]
        return min(behind, key=lambda other: other.offset, default=None)

    def _seen_of(self, marker: MarkerAppended) -> list[tuple[int, MarkerAppended]]:
        return self._seen.get((marker.log, marker.producer.producer_id), [])

    def _recovered(self, log: LogId, before: int) -> int:
        """The position of the last recovery that may have lost records; -1 without one."""
        copies = self._copies.get(log)
        recoveries = copies.recoveries if copies is not None else []
        return max(
            (each.at for each in recoveries if each.excused and each.at < before), default=-1
        )
