"""A chain drains after the healing, and then has each input record in its output, exactly once.

So the offsets that a chain commits are committed if and only if its outputs are visible.  Where a
decision or a marker is lost legally, a transaction may stay open, and nothing is claimed.
"""

from collections import Counter

from sparklog.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.simulation.chain_records import Input, input_of
from tests.simulation.checkers.promises import promises_of
from tests.simulation.final_state import FinalState
from tests.simulation.history import History
from tests.simulation.transaction_events import ChainDrained


def check(history: History, final: FinalState) -> list[str]:
    promises = promises_of(history)
    if any(map(promises.anything_may_be_lost, (CONSUMER_OFFSETS, TRANSACTION_STATE))):
        return []
    if any(promises.may_be_lost(log, 0) for log in final.committed_logs):
        return []
    undrained = [
        f"group {drained.group} has not drained {drained.took_ms} ms after healing: {drained.error}"
        for _, drained in history.each(ChainDrained)
        if drained.error
    ]
    if undrained or not all(state.is_whole for state in final.committed_logs.values()):
        return undrained  # see ``stable_offsets``
    outputs: Counter[Input] = Counter(
        place
        for state in final.committed_logs.values()
        for value in state.records.values()
        if (place := input_of(value)) is not None
    )
    found: list[str] = []
    for _, drained in history.each(ChainDrained):
        for log, end in drained.ends:
            if promises.may_be_lost(log, 0):
                continue
            wrong = {
                offset: outputs[Input(log.topic, log.partition, offset)]
                for offset in range(end)
                if outputs[Input(log.topic, log.partition, offset)] != 1
            }
            if wrong:
                offset, count = next(iter(wrong.items()))
                found.append(
                    f"group {drained.group} has {count} outputs of offset {offset} of {log}, and "
                    f"a wrong number for {len(wrong) - 1} others below {end}"
                )
    return found
