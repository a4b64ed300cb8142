"""A group that only commits what it has processed never sees a committed offset go back.

What a reader was told, or a member was acknowledged, is there for every reader that asks later.  A
broker that was replaced and has not heard of it still tells what it knows, and what was lost with
all its copies may be gone.
"""

from collections import defaultdict

from tests.simulation.checkers.coordinators import coordinators_of
from tests.simulation.events import (
    LogId,
    OffsetCommitAcked,
    OffsetCommitInvoked,
    OffsetsRead,
)
from tests.simulation.final_state import FinalState
from tests.simulation.history import History


def check(history: History, final: FinalState) -> list[str]:
    coordinators = coordinators_of(history)
    invoked = {event.op: (at, event) for at, event in history.each(OffsetCommitInvoked)}
    #: By group and partition: (known at, known to be there from, offset), offsets ascending.
    known: dict[tuple[str, LogId], list[tuple[int, int, int]]] = defaultdict(list)
    found: list[str] = []
    for at, event in enumerate(history.events):
        match event:
            case OffsetCommitAcked() if event.op in invoked:
                since, sent = invoked[event.op]
                for log, offset in sent.offsets:
                    _note(known[sent.group, log], (at, since, offset))
            case OffsetsRead() if coordinators.led(event.group, event.node, event.asked, at):
                for log, value in event.offsets:
                    there = known[event.group, log]
                    before = next((each for each in reversed(there) if each[0] < event.asked), None)
                    if (
                        before is not None
                        and (value is None or value < before[2])
                        and not coordinators.may_be_lost(event.group, before[1], at)
                    ):
                        found.append(
                            f"group {event.group} had committed offset {before[2]} of {log}, later "
                            f"a reader was told {value} by broker {event.node}"
                        )
                    if value is not None:
                        _note(there, (at, event.asked, value))
            case _:
                pass
    return found


def _note(known: list[tuple[int, int, int]], seen: tuple[int, int, int]) -> None:
    if not known or seen[2] > known[-1][2]:
        known.append(seen)
