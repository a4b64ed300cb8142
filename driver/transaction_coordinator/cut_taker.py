"""Takes consistent cuts: holds requests back, asks leaders for offsets, and lets the requests go.

Owns: the way of a cut from its request to its offsets, and its timers.  Must not know which
requests are held back, nor when a partition is settled (``driver.transactions`` decides that).
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from sparklog.client.data_client import DataClient
from sparklog.client.deadline import Deadline
from sparklog.driver.transaction_coordinator.partition_coordinator import PartitionCoordinator
from sparklog.driver.transactions import ConsistentCuts, Now, TransactionShard
from sparklog.errors import ClosedError, ErrorCode, KafkaError
from sparklog.types import TopicPartition

#: Partitions whose offsets are asked for at once, so that the answer does not hold the event loop.
_AT_ONCE: Final = 500


class CutTaker:
    """The cuts of one coordinator.

    Args:
        partitions: returns the partitions of ``__transaction_state``; none before it exists.
        leaders: asks the leaders for offsets, with metadata of the committed image.
        confirm_leadership: returns when no other controller had taken over at the time of the call;
            raises KafkaError otherwise.
    """

    def __init__(
        self,
        cuts: ConsistentCuts,
        partitions: Callable[[], Sequence[PartitionCoordinator]],
        leaders: DataClient,
        now: Callable[[], Now],
        confirm_leadership: Callable[[], Awaitable[None]],
    ) -> None:
        self._cuts = cuts
        self._partitions = partitions
        self._leaders = leaders
        self._now = now
        self._confirm_leadership = confirm_leadership
        self._ids = itertools.count()
        self._ready: dict[int, asyncio.Future[None]] = {}
        self._next_turn: asyncio.TimerHandle | None = None
        #: Cuts that were taken, and those that were refused or late.
        self.taken = 0
        self.failed = 0

    async def take(
        self, partitions: frozenset[TopicPartition], max_wait_ms: int
    ) -> dict[TopicPartition, int]:
        """The last stable offsets of a consistent cut.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS; CONCURRENT_TRANSACTIONS or REQUEST_TIMED_OUT
                when a transaction is in the way; THROTTLING_QUOTA_EXCEEDED; NOT_CONTROLLER.
        """
        try:
            shards = self._shards()
            offsets = await self._hold_and_collect(partitions, max_wait_ms)
            if self._shards() != shards:
                raise KafkaError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    "transactions were loaded while the cut was taken",
                )
            # Another controller would have decided commits without regard to this cut.
            await self._confirm_leadership()
        except BaseException:
            self.failed += 1
            raise
        self.taken += 1
        return offsets

    def advance(self) -> None:
        """Look at the cuts again, after an event or at the time of a turn."""
        if not self._ready:
            return
        progress = self._cuts.advance(self._now())
        for cut_id in progress.ready:
            self._complete(cut_id, None)
        for cut_id, error in progress.refused.items():
            self._complete(cut_id, error)
        self._plan_next_turn()

    def close(self) -> None:
        """Refuse the cuts that are not ready; no turn begins any more."""
        self._cancel_next_turn()
        for cut_id in self._ready:
            self._complete(cut_id, _stopping())

    def _shards(self) -> list[TransactionShard]:
        """The state machines, which are the same as long as none of them is loaded again."""
        return [partition.require_shard() for partition in self._partitions()]

    async def _hold_and_collect(
        self, partitions: frozenset[TopicPartition], max_wait_ms: int
    ) -> dict[TopicPartition, int]:
        cut_id, deadline = next(self._ids), Deadline(max_wait_ms / 1000)
        self._cuts.begin(cut_id, partitions, max_wait_ms)
        ready = self._ready[cut_id] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(max_wait_ms / 1000):
                self.advance()
                await ready
                return await self._collect(partitions, deadline)
        except TimeoutError:
            error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, self._cuts.reason(cut_id))
            raise error from None
        finally:
            del self._ready[cut_id]
            self._cuts.end(cut_id, self._now())
            for partition in self._partitions():
                partition.release_held()
            self.advance()

    async def _collect(
        self, partitions: frozenset[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, int]:
        """The last stable offsets.

        Leaders are asked with the leader epochs of the image.  A leader that has been replaced
        refuses them, so it cannot answer with an offset from before the last markers.
        """
        topics = sorted({tp.topic for tp in partitions})
        try:
            await self._leaders.cluster.refresh(topics, deadline)
            wanted, offsets = sorted(partitions), dict[TopicPartition, int]()
            for start in range(0, len(wanted), _AT_ONCE):
                some = wanted[start : start + _AT_ONCE]
                timeout_s = max(deadline.left_s, 0.001)
                offsets |= await self._leaders.end_offsets(some, timeout_s=timeout_s)
            return offsets
        except ClosedError:
            raise _stopping() from None

    def _complete(self, cut_id: int, error: KafkaError | None) -> None:
        ready = self._ready[cut_id]
        if ready.done():
            return
        if error is None:
            ready.set_result(None)
        else:
            ready.set_exception(error)

    def _cancel_next_turn(self) -> None:
        if self._next_turn is not None:
            self._next_turn.cancel()

    def _plan_next_turn(self) -> None:
        self._cancel_next_turn()
        turn_ms = self._cuts.next_turn_ms()
        if turn_ms is not None:
            pause_s = max(turn_ms - self._now().monotonic_ms, 0) / 1000
            loop = asyncio.get_running_loop()
            self._next_turn = loop.call_later(pause_s, self.advance)


def _stopping() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "this control plane is stopping")
