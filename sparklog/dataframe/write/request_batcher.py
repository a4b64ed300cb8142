"""The batcher of produce requests: few requests, and the order of batches in each partition.

Owns: the batches that wait and that are in flight, and the content of each request.  Must not know
rows, codecs or connections; runs on the client's loop.

Each partition has one batch in flight, so that a retry cannot change the order.  A request takes
the batches that wait for its leader, one per partition.  Each leader gets a second request while it
handles the first; slow leaders do not delay requests to other leaders.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from sparklog.types import TopicPartition
from sparklog.wire.records.columns import EncodedBatch

#: Requests in flight of one task to one leader.
REQUESTS_MAX: Final = 2
#: Bytes of the batches of one request, unless a single batch is larger.
REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024

Group = Mapping[TopicPartition, EncodedBatch]
#: Sends a group and raises the error of the first refused batch.
Produce = Callable[[Group], Awaitable[None]]
#: The leader of a partition, or any number if it is not known.
LeaderOf = Callable[[TopicPartition], int]


@dataclass(slots=True, eq=False)
class _Delivery:
    """Batches that another thread waits for together."""

    left: int
    done: Future[None]


class RequestBatcher:
    """Sends the batches of one task.  After a failure nothing more is sent."""

    def __init__(self, produce: Produce, leader_of: LeaderOf) -> None:
        self._produce = produce
        self._leader_of = leader_of
        #: Waiting batches by partition, oldest first; partitions are in order of waiting time.
        self._waiting: dict[TopicPartition, deque[tuple[EncodedBatch, _Delivery]]] = {}
        self._under_way: set[TopicPartition] = set()
        self._requests: set[asyncio.Task[None]] = set()
        #: Number of requests in flight by leader.
        self._busy: Counter[int] = Counter()
        self._failed = False

    def deliver(
        self,
        batches: Iterable[tuple[TopicPartition, Sequence[EncodedBatch]]],
        done: Future[None],
    ) -> None:
        """Send batches; ``done`` ends when all were acknowledged, or another delivery has failed.

        Batches of a partition follow its earlier batches.  An error of ``produce`` becomes the
        error of ``done``.  Waiters cannot cancel ``done``; see ``cancel``.
        """
        if not done.set_running_or_notify_cancel():
            return
        listed = [(tp, batch) for tp, each in batches for batch in each]
        if self._failed or not listed:
            done.set_result(None)
            return
        delivery = _Delivery(len(listed), done)
        for tp, batch in listed:
            self._waiting.setdefault(tp, deque()).append((batch, delivery))
        self._send_waiting()

    def cancel(self) -> None:
        """Give up unacknowledged batches, which no thread waits for any more."""
        self._stop()
        for request in self._requests:
            request.cancel()

    def _send_waiting(self) -> None:
        """Send as many requests as may be in flight."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in self._waiting:
            if tp not in self._under_way:
                by_leader.setdefault(self._leader_of(tp), []).append(tp)
        for leader, partitions in by_leader.items():
            waiting = deque(partitions)
            while waiting and self._busy[leader] < REQUESTS_MAX:
                self._busy[leader] += 1
                request = asyncio.create_task(self._request(leader, self._take(waiting)))
                self._requests.add(request)
                request.add_done_callback(self._requests.discard)

    def _take(
        self, partitions: deque[TopicPartition]
    ) -> dict[TopicPartition, tuple[EncodedBatch, _Delivery]]:
        """Take the first batch of each partition, up to the size of one request."""
        group: dict[TopicPartition, tuple[EncodedBatch, _Delivery]] = {}
        size = 0
        while partitions:
            tp = partitions[0]
            size += self._waiting[tp][0][0].size
            if group and size > REQUEST_BYTES_MAX:
                break
            partitions.popleft()
            queue = self._waiting.pop(tp)
            group[tp] = queue.popleft()
            if queue:
                self._waiting[tp] = queue  # behind the other partitions
            self._under_way.add(tp)
        return group

    async def _request(
        self, leader: int, group: Mapping[TopicPartition, tuple[EncodedBatch, _Delivery]]
    ) -> None:
        try:
            await self._produce({tp: batch for tp, (batch, _) in group.items()})
        except Exception as error:
            for _, delivery in group.values():
                if not delivery.done.done():
                    delivery.done.set_exception(error)
            self._stop()
            return
        self._busy[leader] -= 1
        self._under_way -= group.keys()
        # Not at once: batches delivered in this turn of the loop go into the same request.
        asyncio.get_running_loop().call_soon(self._send_waiting)
        for _, delivery in group.values():
            delivery.left -= 1
            if not delivery.left and not delivery.done.done():
                delivery.done.set_result(None)

    def _stop(self) -> None:
        """End the waiting deliveries: the task gets the failure of another delivery."""
        self._failed = True
        for queue in self._waiting.values():
            for _, delivery in queue:
                if not delivery.done.done():
                    delivery.done.set_result(None)
        self._waiting.clear()
