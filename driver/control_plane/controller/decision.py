"""Decisions: the controller's result for an event, as records, a response and effects.

Owns: these values.  Must not know how they are carried out.
"""

from dataclasses import dataclass

from sparklog.metadata import Record
from sparklog.wire.protocol.schema import Response


@dataclass(frozen=True, slots=True, kw_only=True)
class WarnOperator:
    """Write a warning to the log once the records are durable."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CountUncleanRecoveries:
    """Count partitions whose leader was elected from a log that may lack unflushed records."""

    partitions: int


Effect = WarnOperator | CountUncleanRecoveries


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The result of one event.

    ``response`` is sent once ``records``, and those of all earlier decisions, are durable.
    """

    records: tuple[Record, ...] = ()
    response: Response | None = None
    effects: tuple[Effect, ...] = ()
