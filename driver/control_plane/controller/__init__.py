"""The controller: every decision about the cluster's metadata, as a pure state machine.

Owns: ``Controller.handle(event, now_ms) -> Decision``.  Must not know asyncio, sockets, clocks,
randomness, or where records are stored; time comes in as an argument and new ids from a function
that is passed in.
"""

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
from sparklog.driver.control_plane.controller.tiered_topics import (
    NAMED_MAX,
    POLICY_DEFAULT,
    compacts_by_default,
    inherited_policy_topics,
    is_tiered,
)

__all__ = [
    "NAMED_MAX",
    "POLICY_DEFAULT",
    "BrokenImageError",
    "Controller",
    "CountUncleanRecoveries",
    "Decision",
    "Effect",
    "Event",
    "RemoteDeletesFinished",
    "TimePassed",
    "WarnOperator",
    "compacts_by_default",
    "inherited_policy_topics",
    "is_tiered",
]
