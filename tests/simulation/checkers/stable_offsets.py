"""After the healing no transaction stays open, and readers of committed records reach every end.

A partition that has lost a marker legally keeps its transaction open, as in Kafka: an operator ends
it; but a log that all replicas have lost begins where the bucket ends, and no transaction is open
there.  A coordinator that has lost its log may know nothing of a transaction in a partition.
"""

from sparklog.metadata.topic_names import TRANSACTION_STATE
from tests.simulation.checkers.promises import promises_of
from tests.simulation.events import LogId
from tests.simulation.final_state import FinalState
from tests.simulation.history import NEVER, History
from tests.simulation.transaction_events import TransactionsSettled


def check(history: History, final: FinalState) -> list[str]:
    promises = promises_of(history)
    decisions_lost = promises.anything_may_be_lost(TRANSACTION_STATE)

    def is_excused(log: LogId, at: int = NEVER) -> bool:
        return decisions_lost or promises.markers_may_be_lost(log, at)

    found: list[str] = []
    for at, settled in history.each(TransactionsSettled):
        when = f"{settled.took_ms} ms after healing"
        found += [f"{when}: {text}" for text in settled.open]
        found += [
            f"{when} {log} has an open transaction"
            for log in settled.unstable
            if not is_excused(log, at)
        ]
    for log, state in final.committed_logs.items():
        if state.damage:
            found.append(f"{log} cannot be read to its end: {state.damage}")
        elif state.last_stable_offset != state.end and not is_excused(log):
            found.append(
                f"{log} has its last stable offset at {state.last_stable_offset}, and its end at "
                f"{state.end}"
            )
    return found
