"""No ghosts: whatever is read was sent, to this very topic, and was not refused."""

from collections.abc import Iterable, Iterator

from tests.simulation.events import LogId
from tests.simulation.final_state import FinalState
from tests.simulation.history import History, Write


def check(history: History, final: FinalState) -> list[str]:
    sent = {(write.log, value): write for write in history.writes() for value in write.sent.values}
    found: list[str] = []
    for at, read in history.reads():
        found += _ghosts(sent, read.log, read.records, at)
    for log, state in final.logs.items():
        found += _ghosts(sent, log, state.records().items(), history.position)
    return list(dict.fromkeys(found))


def _ghosts(
    sent: dict[tuple[LogId, bytes], Write],
    log: LogId,
    records: Iterable[tuple[int, bytes | None]],
    at: int,
) -> Iterator[str]:
    for offset, value in records:
        write = sent.get((log, value)) if value is not None else None
        name = "null" if value is None else value.rstrip(b".").decode(errors="replace")[:40]
        if write is None:
            yield f"{log}: {name} at offset {offset} was never sent there"
        elif write.start > at:
            yield f"{log}: {name} at offset {offset} was read before it was sent"
        elif write.refused:
            yield f"{log}: {name} at offset {offset} had been refused"
