"""No acknowledged record is lost, and each is where its acknowledgement said.

See ``promises`` for what an acknowledgement promises, and ``compaction`` for compacted topics.
"""

from collections.abc import Iterator

from sparklog.types import NO_OFFSET
from tests.simulation.checkers.promises import promises_of
from tests.simulation.events import TopicDeleteInvoked
from tests.simulation.final_state import FinalLog, FinalState
from tests.simulation.history import History, Write


def check(history: History, final: FinalState) -> list[str]:
    promises = promises_of(history)
    deleted = {event.topic_id for _, event in history.each(TopicDeleteInvoked)}
    records = {log: state.records() for log, state in final.logs.items()}
    found: list[str] = []
    for write in history.writes():
        base_offset, log = write.acked_at, write.log
        if base_offset is None or log.topic_id in deleted or log in final.compacted_logs:
            continue
        state = final.logs.get(log)
        if state is None:
            found.append(f"{log} is gone with {_name(write)}, and nobody deleted the topic")
        elif not promises.write_may_be_lost(write):
            found += _missing(write, base_offset, state, records[log])
    return found


def _missing(
    write: Write, base_offset: int, state: FinalLog, records: dict[int, bytes | None]
) -> Iterator[str]:
    if base_offset == NO_OFFSET:
        missing = [value for value in write.sent.values if value not in records.values()]
        if missing and state.start == 0:
            yield f"{_name(write)} was acknowledged without an offset and is not in {write.log}"
        return
    for offset, value in enumerate(write.sent.values, base_offset):
        if offset >= state.start and records.get(offset) != value:
            there = records.get(offset)
            yield (
                f"{_name(write)} was acknowledged at offset {offset} of {write.log}, where "
                + ("nothing is" if there is None else f"{_short(there)} is")
                + f"; the log is [{state.start}, {state.end}) {state.damage}".rstrip()
            )
            return


def _name(write: Write) -> str:
    return f"{_short(write.sent.values[0])} of {write.sent.producer}"


def _short(value: bytes) -> str:
    return value.rstrip(b".").decode(errors="replace")[:40]
