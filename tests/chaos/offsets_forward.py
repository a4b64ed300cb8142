"""A group that only commits what it has processed never sees a committed offset go back.

What a reader was told, or a member was acknowledged, is there for every reader that asks later.  A
broker that was replaced and has not heard of it still tells what it knows, and what was lost with
all its copies may be gone.

A commit that was never acknowledged may be taken late.  librdkafka does not wait for one automatic
commit before it sends the next, and sends one that failed again after a pause, so the older one may
arrive last (``rd_kafka_buf_retry``).  The group then goes on from there.  So for ``LATE_MS`` after
such an attempt the offset may be back at it, or on the way from it.
"""

from bisect import bisect_left
from collections import defaultdict
from typing import Final

from tests.simulation.checkers.coordinators import coordinators_of
from tests.simulation.events import (
    LogId,
    OffsetCommitAcked,
    OffsetCommitInvoked,
    OffsetsRead,
)
from tests.simulation.final_state import FinalState
from tests.simulation.history import History

#: A client's attempts, and the time without a coordinator before them, take no longer.
LATE_MS: Final = 60_000


def check(history: History, final: FinalState) -> list[str]:
    coordinators = coordinators_of(history)
    invoked = {event.op: (at, event) for at, event in history.each(OffsetCommitInvoked)}
    late = _Unanswered(history)
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
                        and not late.may_explain(event.group, log, value, at)
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


class _Unanswered:
    """The attempts of a history that nobody has acknowledged."""

    def __init__(self, history: History) -> None:
        self._times_ms = history.times_ms
        acked = history.ends(OffsetCommitAcked)
        #: By group and partition: (milliseconds, position, offset), in the order of time.
        self._attempts: dict[tuple[str, LogId], list[tuple[int, int, int]]] = defaultdict(list)
        for at, sent in history.each(OffsetCommitInvoked):
            if sent.op not in acked:
                for log, offset in sent.offsets:
                    self._attempts[sent.group, log].append((self._times_ms[at], at, offset))

    def may_explain(self, group: str, log: LogId, value: int | None, at: int) -> bool:
        """Whether a late attempt, and commits after it, may have left ``value`` at a position."""
        attempts = self._attempts[group, log]
        recent = attempts[bisect_left(attempts, (self._times_ms[at] - LATE_MS, -1, -1)) :]
        return value is not None and any(
            sent < at and offset <= value for _, sent, offset in recent
        )
