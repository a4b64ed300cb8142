"""No duplicates: what was sent once, or with a producer id, is in its log at most once.

A client that sends again under a raised epoch has no protection from any broker: its records may
be there once for each epoch of one producer id, in the order of the epochs.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from tests.simulation.checkers.promises import promises_of
from tests.simulation.events import LogId
from tests.simulation.final_state import FinalLog, FinalState
from tests.simulation.history import History

Records: TypeAlias = Iterable[tuple[int, bytes | None]]
#: Producer id and epoch by offset.
Epochs: TypeAlias = Mapping[int, tuple[int, int]]


def check(history: History, final: FinalState) -> list[str]:
    promises = promises_of(history)
    once = {
        value
        for write in history.writes()
        if write.sent.idempotent or not write.sent.resent
        for value in write.sent.values
    }
    renewed = {
        value
        for write in history.writes()
        if write.sent.raises_epoch
        for value in write.sent.values
    }
    found: list[str] = []
    for log, state in final.logs.items():
        epochs = _epochs(state, renewed)
        found += _repeated(log, once, state.records().items(), epochs)
        found += _repeated_sequences(log, state)
    seen: dict[LogId, dict[int, bytes | None]] = defaultdict(dict)
    for _, read in history.reads():
        # What a loss took may have been written again elsewhere.
        if read.log not in final.logs and not promises.may_be_lost(read.log, 0, history.position):
            seen[read.log].update(read.records)
    for log, records in seen.items():
        found += _repeated(log, once, records.items())
    return found


def _epochs(state: FinalLog, values: set[bytes]) -> Epochs:
    return {
        offset: (batch.producer_id, batch.producer_epoch)
        for batch in state.batches
        if batch.producer_id >= 0
        for offset, value in enumerate(batch.values, batch.base_offset)
        if value in values
    }


def _repeated(
    log: LogId, once: set[bytes], records: Records, epochs: Epochs = MappingProxyType({})
) -> Iterator[str]:
    """``epochs``: of the records that may be there once for each epoch of their producer."""
    places: dict[bytes, int] = {}
    for offset, value in records:
        if value is None or value not in once:
            continue
        if value in places and not _is_renewed(epochs, places[value], offset):
            name = value.rstrip(b".").decode(errors="replace")[:40]
            yield f"{log}: {name} is at offsets {places[value]} and {offset}"
        places[value] = offset


def _is_renewed(epochs: Epochs, earlier: int, later: int) -> bool:
    if earlier not in epochs or later not in epochs:
        return False
    (earlier_id, earlier_epoch), (later_id, later_epoch) = epochs[earlier], epochs[later]
    return earlier_id == later_id and earlier_epoch < later_epoch


def _repeated_sequences(log: LogId, state: FinalLog) -> Iterator[str]:
    places: dict[tuple[int, int, int], int] = {}
    for batch in state.batches:
        if batch.producer_id < 0:
            continue
        key = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
        if key in places:
            yield (
                f"{log}: sequence {batch.base_sequence} of producer {batch.producer_id} is at "
                f"offsets {places[key]} and {batch.base_offset}"
            )
        places[key] = batch.base_offset
