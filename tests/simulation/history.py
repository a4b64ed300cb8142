"""Events in the order of observation.

Owns: their positions, and the joining of a question with its outcome.  Must not know what may be
concluded from them.  The position of an event is its index.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias, TypeVar

from sparklog.types import NO_OFFSET
from tests.simulation.compaction_events import CompactionEvent
from tests.simulation.events import (
    Consumed,
    DeleteRecordsInvoked,
    Event,
    Fetched,
    LogId,
    ProduceAcked,
    ProduceInvoked,
    ProduceRefused,
    ProduceUnknown,
    RecordsDeleted,
)
from tests.simulation.tier_events import TierEvent
from tests.simulation.transaction_events import TransactionEvent

#: Behind every position.
NEVER = sys.maxsize
E = TypeVar("E")
AnyEvent: TypeAlias = Event | CompactionEvent | TransactionEvent | TierEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One batch, from its invocation at ``start`` to its outcome at ``end`` (``NEVER``: none)."""

    sent: ProduceInvoked
    outcome: ProduceAcked | ProduceRefused | ProduceUnknown | None
    start: int
    end: int

    @property
    def log(self) -> LogId:
        return self.sent.log

    @property
    def acked_at(self) -> int | None:
        """The base offset of an acknowledged batch; -1 when it is not known, None without ack."""
        return self.outcome.base_offset if isinstance(self.outcome, ProduceAcked) else None

    @property
    def refused(self) -> bool:
        return isinstance(self.outcome, ProduceRefused)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A DeleteRecords that was asked for at ``start`` and acknowledged at ``done``."""

    log: LogId
    before: int
    start: int
    done: int
    low_watermark: int


class History:
    """Events, each with the virtual time at which it was recorded."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.events: list[AnyEvent] = []
        self.times_ms: list[int] = []
        self._now_ms = now_ms
        self._ops = count(1)

    @classmethod
    def of(cls, *events: AnyEvent) -> "History":
        history = cls()
        for event in events:
            history.record(event)
        return history

    def record(self, event: AnyEvent) -> None:
        self.events.append(event)
        self.times_ms.append(self._now_ms())

    @property
    def position(self) -> int:
        """The position of the next event."""
        return len(self.events)

    def new_op(self) -> int:
        return next(self._ops)

    def each(self, kind: type[E]) -> Iterator[tuple[int, E]]:
        """Position and event, for the events of one kind."""
        return ((at, event) for at, event in enumerate(self.events) if isinstance(event, kind))

    def reads(self) -> Iterator[tuple[int, Fetched | Consumed]]:
        """Position and event of everything that gave records."""
        for at, event in enumerate(self.events):
            if isinstance(event, Fetched | Consumed):
                yield at, event

    def ends(self, kind: type[E]) -> dict[int, tuple[int, E]]:
        """Position and event of the outcomes of one kind, by operation."""
        return {event.op: (at, event) for at, event in self.each(kind)}  # type: ignore[attr-defined]

    def writes(self) -> list[Write]:
        """Every batch, by position of its invocation."""
        outcomes: dict[int, tuple[int, ProduceAcked | ProduceRefused | ProduceUnknown]] = {
            event.op: (at, event)
            for at, event in enumerate(self.events)
            if isinstance(event, ProduceAcked | ProduceRefused | ProduceUnknown)
        }
        return [
            Write(sent=sent, outcome=outcome, start=start, end=end)
            for start, sent in self.each(ProduceInvoked)
            for end, outcome in [outcomes.get(sent.op, (NEVER, None))]
        ]

    def deletions(self) -> Iterator[Deletion]:
        """Every DeleteRecords that was acknowledged, by position of its invocation."""
        ends = self.ends(RecordsDeleted)
        for start, asked in self.each(DeleteRecordsInvoked):
            if asked.op in ends:
                done, answer = ends[asked.op]
                yield Deletion(
                    log=asked.log,
                    before=asked.before,
                    start=start,
                    done=done,
                    low_watermark=answer.low_watermark,
                )

    def base_offsets(self) -> Iterator[tuple[Write, int]]:
        """Acknowledged batches whose place is known."""
        for write in self.writes():
            base_offset = write.acked_at
            if base_offset is not None and base_offset != NO_OFFSET:
                yield write, base_offset
