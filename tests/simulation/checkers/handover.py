"""Who is told that it may stop leads nothing that others could (controlled shutdown).

Whoever answers knows what has been so since the question: the leadership, and that another replica
was in sync, lived, and was not about to stop.  A controller that was replaced a short while ago may
answer still; it knows what has been so since before that.
"""

from collections.abc import Container, Iterator

from sparklog.metadata import BrokerRegistered, ControllerChanged
from tests.simulation.checkers.copies import Copies
from tests.simulation.checkers.promises import Promises, promises_of
from tests.simulation.events import Committed, MayStop, StopAsked
from tests.simulation.final_state import FinalState
from tests.simulation.history import History

#: Virtual time for which a replaced controller may go on, at most.
REPLACED_MS = 10_000


def check(history: History, final: FinalState) -> list[str]:
    promises = promises_of(history)
    found: list[str] = []
    replaced = 0
    stopping: dict[int, int] = {}
    for at, event in enumerate(history.events):
        match event:
            case Committed():
                for record in event.records:
                    if isinstance(record, ControllerChanged):
                        replaced = at
                    elif isinstance(record, BrokerRegistered):
                        stopping.pop(record.broker.broker_id, None)
            case StopAsked():
                stopping[event.broker] = at
            case MayStop():
                passed_ms = history.times_ms[at] - history.times_ms[replaced]
                since = (
                    stopping.get(event.broker, replaced) if passed_ms > REPLACED_MS else replaced
                )
                found += _kept(promises, event.broker, stopping, since, at)
    return found


def _kept(
    promises: Promises, broker: int, stopping: Container[int], since: int, at: int
) -> Iterator[str]:
    for story in promises.copies.values():
        for other in _others(story, promises, broker, since, at):
            if other not in stopping:
                yield f"{story.log}: broker {broker} may stop and leads it, broker {other} could"


def _others(story: Copies, promises: Promises, broker: int, since: int, at: int) -> Iterator[int]:
    """Who could have led instead of a broker all the time between two positions."""
    first = story.state_at(since)
    if first is None or first.leader != broker or at >= story.deleted_at:
        return
    states = [first, *(state for where, state in story.changes if since < where <= at)]
    if any((s.leader, s.leader_epoch) != (broker, first.leader_epoch) for s in states):
        return
    for other in first.isr:
        in_sync = all(other in state.isr for state in states)
        if other != broker and in_sync and not promises.was_away(other, since, at):
            yield other
