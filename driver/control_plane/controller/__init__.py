"""The controller: every decision about the cluster's metadata, as a pure state machine.

Owns: ``Controller.handle(event, now_ms) -> Decision``.  Must not know asyncio, sockets, clocks,
randomness, or where records are stored; time comes in as an argument and new ids from a function
that is passed in.
"""

from sparklog.driver.control_plane.controller.configs import is_tiered
from sparklog.driver.control_plane.controller.controller import (
    BrokenImageError,
    Controller,
    Event,
    RemoteDeletesFinished,
    TimePassed,
)
from sparklog.driver.control_plane.controller.decision import (
    CountUncleanRecoveries,
    Decision,
    Effect,
    WarnOperator,
)

__all__ = [
    "BrokenImageError",
    "Controller",
    "CountUncleanRecoveries",
    "Decision",
    "Effect",
    "Event",
    "RemoteDeletesFinished",
    "TimePassed",
    "WarnOperator",
    "is_tiered",
]
