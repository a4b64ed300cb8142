"""Order: what was acknowledged before something else was sent stands before it.

And per producer: batches of one stream stand in the order in which they were sent, and the
sequence numbers of an idempotent producer ascend without a gap.
"""

from collections import defaultdict
from collections.abc import Iterator

from sparklog.types import MAX_INT32
from tests.simulation.checkers.promises import promises_of
from tests.simulation.events import LogId
from tests.simulation.final_state import FinalLog, FinalState
from tests.simulation.history import History, Write


def check(history: History, final: FinalState) -> list[str]:
    promises = promises_of(history)
    by_log: dict[LogId, list[tuple[Write, int]]] = defaultdict(list)
    for write, base_offset in history.base_offsets():
        # What was lost legally left its offset to others.
        if not promises.write_may_be_lost(write):
            by_log[write.log].append((write, base_offset))
    found: list[str] = []
    for log, placed in by_log.items():
        found += _in_time(log, placed)
        found += _in_streams(log, placed)
    for log, state in final.logs.items():
        found += _in_sequence(log, state)
    return found


def _in_time(log: LogId, placed: list[tuple[Write, int]]) -> Iterator[str]:
    ended = sorted(placed, key=lambda pair: pair[0].end)
    taken, highest = 0, -1
    for write, base_offset in sorted(placed, key=lambda pair: pair[0].start):
        while taken < len(ended) and ended[taken][0].end < write.start:
            before, offset = ended[taken]
            highest = max(highest, offset + len(before.sent.values) - 1)
            taken += 1
        if base_offset <= highest:
            yield (
                f"{log}: a batch of {write.sent.producer} went to offset {base_offset} although "
                f"offset {highest} had been acknowledged before it was sent"
            )


def _in_streams(log: LogId, placed: list[tuple[Write, int]]) -> Iterator[str]:
    last: dict[str, int] = {}
    for write, base_offset in sorted(placed, key=lambda pair: pair[0].start):
        stream = write.sent.stream
        if not stream:
            continue
        if base_offset <= last.get(stream, -1):
            yield (
                f"{log}: a batch of stream {stream} went to offset {base_offset}, an earlier one "
                f"to {last[stream]}"
            )
        last[stream] = base_offset


def _in_sequence(log: LogId, state: FinalLog) -> Iterator[str]:
    expected: dict[tuple[int, int], int] = {}
    for batch in state.batches:
        if batch.producer_id < 0:
            continue
        key = (batch.producer_id, batch.producer_epoch)
        if expected.get(key, batch.base_sequence) != batch.base_sequence:
            yield (
                f"{log}: producer {key[0]} has sequence {batch.base_sequence} at offset "
                f"{batch.base_offset} where {expected[key]} follows"
            )
        expected[key] = (batch.base_sequence + len(batch.values)) % (MAX_INT32 + 1)
