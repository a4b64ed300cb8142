"""Where a log goes on that every replica has lost, as the bucket tells.

Owns: the calls, and what their answers mean.  Must not know which replica asks, or what it does
then.
"""

import logging
from collections.abc import Callable, Container, Sequence

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import Partition, TieredStart
from sparklog.executors.tiering.leadership import remote_partition
from sparklog.executors.tiering.remote_process import RemoteLogs
from sparklog.executors.tiering.tiered_start import require_later, tiered_start, without_damage
from sparklog.remote_log.aborted_txns import RemoteAbortedTxn
from sparklog.remote_log.damaged_object import DamagedObjectError
from sparklog.remote_log.service import FollowerState, RemoteLogState, RemotePartition
from sparklog.types import NO_OFFSET

logger = logging.getLogger(__name__)


class BucketEnds:
    """The ends of the remote logs of one cluster."""

    def __init__(self, remote: RemoteLogs, nonce: Callable[[], str]) -> None:
        """``nonce`` returns the name of this broker in manifests."""
        self._remote = remote
        self._nonce = nonce

    async def find_end(self, partition: Partition, leader_epoch: int) -> TieredStart | None:
        """Where the records in the bucket end; None if there never were any.

        Raises SparklogError, also when the bucket has had another leader since ``leader_epoch``.
        """
        key = remote_partition(partition)
        last: tuple[int, str]
        remote: RemoteLogState
        last, remote = await self._remote.call("leader_and_state", key)
        require_later((leader_epoch, self._nonce()), last)
        if remote.segments:
            state = await self._state_at(key, remote.end_offset)
            return tiered_start(remote.log_start_offset, without_damage(state))
        start = remote.log_start_offset
        return None if start == NO_OFFSET else TieredStart(start, start, (), None)

    async def _state_at(self, key: RemotePartition, end_offset: int) -> FollowerState:
        """The state at the end of the last segment, as far as its objects can be read."""
        try:
            found: FollowerState = await self._remote.call("follower_state", key, end_offset)
        except DamagedObjectError as error:
            logger.error("the log begins without the state at the end of the bucket: %s", error)
            return FollowerState(end_offset, await self._remote.call("lineage", key), None)
        return found

    async def find_aborted(self, partition: Partition) -> Container[tuple[int, int]]:
        """Which hanging transactions were aborted: their producer ids and first offsets.

        All others were committed.  Transactions of which the bucket does not know any more how they
        ended count as aborted.  Raises SparklogError.
        """
        start = partition.log.local_log_start_offset
        try:
            aborted: Sequence[RemoteAbortedTxn] = await self._remote.call(
                "aborted_at", remote_partition(partition), start
            )
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
        except DamagedObjectError as error:
            tp = partition.topic_partition
            logger.error("transactions of %s whose ends are not known are aborted: %s", tp, error)
        else:
            return {(each.producer_id, each.first_offset) for each in aborted}
        hanging = partition.hanging_transactions.items()
        return {(producer_id, first_offset) for first_offset, producer_id in hanging}
