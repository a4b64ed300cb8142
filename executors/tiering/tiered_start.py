"""Where a log starts anew whose earlier records are in the bucket, from what the bucket tells.

Owns: the translation, and what a damaged producer snapshot means.  Must not know how either is
found out or used.
"""

import logging

from sparklog.errors import DecodeError
from sparklog.executors.log import EpochEntry, decode_snapshot
from sparklog.executors.partition import TieredStart
from sparklog.remote_log.service import FollowerState

logger = logging.getLogger(__name__)


def without_damage(state: FollowerState) -> FollowerState:
    """The same state; without its producer snapshot if that was damaged when it was copied."""
    if state.producer_snapshot is None:
        return state
    try:
        decode_snapshot(state.producer_snapshot)
    except DecodeError as error:
        logger.error("a producer snapshot at offset %d is damaged: %s", state.offset, error)
        return state._replace(producer_snapshot=None)
    return state


def tiered_start(log_start_offset: int, state: FollowerState) -> TieredStart:
    return TieredStart(
        offset=state.offset,
        log_start_offset=log_start_offset,
        leader_epochs=tuple(EpochEntry(*each) for each in state.leader_epochs),
        producer_snapshot=state.producer_snapshot,
    )
