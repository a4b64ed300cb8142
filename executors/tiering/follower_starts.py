"""Where a follower starts whose leader has the records before its files in the bucket only.

Owns: which segment's end it is, and what is done when the state of producers is not known there.
Must not know how a follower is started.

A follower takes leader epochs and producer state from the end of a segment (KIP-405).  A later
segment is taken if the state of producers is missing at that end, because a follower that forgets
it may lead later, and write a batch twice that is sent again.

If there is no such segment, the follower starts without in two cases.  A partition that cannot copy
anything before its followers are in sync would stand still.  And where the leader's files begin at
that end, all records above it would have one replica less until the next segment is copied, which
an idle partition never does; what is forgotten are producers that have been silent since then.
"""

import logging

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import Partition, TieredStart
from sparklog.executors.tiering.leadership import remote_partition
from sparklog.executors.tiering.remote_process import RemoteLogs
from sparklog.executors.tiering.tiered_start import tiered_start, without_damage
from sparklog.remote_log.damaged_object import DamagedObjectError
from sparklog.remote_log.service import FollowerState

logger = logging.getLogger(__name__)


class FollowerStarts:
    """The starts of the followers of one broker."""

    def __init__(self, remote: RemoteLogs) -> None:
        self._remote = remote

    async def find(
        self, partition: Partition, log_start_offset: int, local_log_start_offset: int
    ) -> TieredStart:
        """Where a follower starts whose leader's files begin at ``local_log_start_offset``.

        Raises SparklogError.
        """
        first: FollowerState | None = None
        wanted = local_log_start_offset
        while True:
            try:
                found, wanted = await self._state_behind(partition, wanted)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or first is None:
                    raise
                if not _is_all_there_is(partition, first, local_log_start_offset):
                    raise
                logger.error(
                    "%s starts at offset %d without the state of producers, which the remote_dir "
                    "does not have there: if this replica leads, a batch that is sent again may be "
                    "written twice",
                    partition.topic_partition,
                    first.offset,
                )
                return tiered_start(log_start_offset, first)
            if found.producer_snapshot is not None:
                return tiered_start(log_start_offset, found)
            first = first or found

    async def _state_behind(self, partition: Partition, offset: int) -> tuple[FollowerState, int]:
        """The state at the end of the segment with the last record below ``offset``, and the offset
        for the segment behind that one.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) without such a segment.
        """
        key, leader_epoch = remote_partition(partition), partition.leader_epoch
        try:
            state: FollowerState = await self._remote.call(
                "follower_state", key, offset, leader_epoch=leader_epoch
            )
        except DamagedObjectError as error:
            logger.error("%s: %s", partition.topic_partition, error)
            lineage = await self._remote.call("lineage", key)
            epochs = tuple(each for each in lineage if each.start_offset < offset)
            return FollowerState(offset, epochs, None), max(offset, error.end_offset) + 1
        return without_damage(state), state.offset + 1


def _is_all_there_is(partition: Partition, found: FollowerState, local_start: int) -> bool:
    """Whether the follower must not wait for the next segment."""
    state = partition.state
    if found.offset == local_start or state is None:
        return True
    return len(state.isr) < state.required_isr(partition.config.min_insync_replicas)
