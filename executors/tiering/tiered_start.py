"""Where a log starts anew whose earlier records are in the bucket, from what the bucket tells.

Owns: the translation.  Must not know how either is found out or used.
"""

from sparklog.executors.log import EpochEntry
from sparklog.executors.partition import TieredStart
from sparklog.remote_log.service import FollowerState


def tiered_start(log_start_offset: int, state: FollowerState) -> TieredStart:
    return TieredStart(
        offset=state.offset,
        log_start_offset=log_start_offset,
        leader_epochs=tuple(EpochEntry(*each) for each in state.leader_epochs),
        producer_snapshot=state.producer_snapshot,
    )
