"""Consumer groups: the group coordinator's state machine.

Owns: groups of the classic protocol, their members and committed offsets, and the records of
``__consumer_offsets``.  Must not know partitions, logs, sockets, clocks or asyncio.
"""

from sparklog.executors.groups.config import (
    PENDING_MEMBERS_MAX,
    RECORD_MARGIN_BYTES,
    REMOVED_AT_ONCE,
    GroupConfig,
)
from sparklog.executors.groups.group_state_machine import GroupStateMachine

__all__ = [
    "PENDING_MEMBERS_MAX",
    "RECORD_MARGIN_BYTES",
    "REMOVED_AT_ONCE",
    "GroupConfig",
    "GroupStateMachine",
]
