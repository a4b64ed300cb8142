"""Where a log starts anew whose earlier records are in the bucket, from what the bucket tells.

Owns: the translation, what a damaged producer snapshot means, and whether a leader may start so.
Must not know how either is found out or used.
"""

import logging

from sparklog.errors import DecodeError, StorageError
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


def require_later(own: tuple[int, str], last: tuple[int, str]) -> None:
    """Check that a leader may begin behind a manifest.

    Args:
        own: leader epoch and nonce of the leader.
        last: those of the leader that took the manifest over last; it may be the same one.

    Raises:
        StorageError: the manifest refuses the leader.  If it began all the same, its epoch would be
            below those of the records before it, and nothing would be copied.
    """
    if last[0] >= own[0] and last != own:
        raise StorageError(
            f"leader epoch {own[0]} is not above leader epoch {last[0]} of the manifest, so the "
            "journal is older than the remote_dir; stop the cluster and start it with `sparklog "
            "restore`, which raises the leader epochs"
        )
