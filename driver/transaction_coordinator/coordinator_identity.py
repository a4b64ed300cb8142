"""The producer as which a controller appends to ``__transaction_state``.

Owns: the reserved producer ids, and the record that fences earlier controllers.  Must not know
partitions or transactions.

The producer epoch of a controller grows with its controller epoch, so the first append of a
controller makes the leader, and by replication every later leader, refuse the appends of earlier
controllers (INVALID_PRODUCER_EPOCH).  A producer epoch has 15 bits.  When the epochs of a reserved
producer id have run out, the controllers after that use the next id, and fence the id before it
with its last epoch, which no controller uses.
"""

import struct
from typing import Final, NamedTuple

from sparklog.driver.transactions import TransactionRecord
from sparklog.types import COORDINATOR_PRODUCER_ID_BASE, MAX_INT16

#: The key version of a fence.  Kafka's tools and coordinators ignore unknown versions.
FENCE_KEY_VERSION: Final = MAX_INT16
_FENCE_KEY: Final = struct.pack(">h", FENCE_KEY_VERSION)
_FENCE_VALUE: Final = struct.Struct(">hi")
#: Controller epochs for each reserved producer id; one more epoch fences the id for good.
_EPOCHS: Final = MAX_INT16


class CoordinatorIdentity(NamedTuple):
    """A reserved producer id with its epoch."""

    producer_id: int
    epoch: int


def coordinator_identity(controller_epoch: int) -> CoordinatorIdentity:
    """The identity of the controller with this epoch."""
    term, epoch = divmod(controller_epoch, _EPOCHS)
    return CoordinatorIdentity(COORDINATOR_PRODUCER_ID_BASE + term, epoch)


def exhausted_identity(controller_epoch: int) -> CoordinatorIdentity | None:
    """The last identity of the reserved id before this controller's; None for the first id."""
    term = controller_epoch // _EPOCHS
    if term == 0:
        return None
    return CoordinatorIdentity(COORDINATOR_PRODUCER_ID_BASE + term - 1, MAX_INT16)


def fence_record(controller_epoch: int) -> TransactionRecord:
    """The record of a fence.  Compaction keeps the last one."""
    return TransactionRecord(_FENCE_KEY, _FENCE_VALUE.pack(0, controller_epoch))
