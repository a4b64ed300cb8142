"""Encoded batches -> produce requests: as few as there can be, in the order of each partition.

Owns: which batches wait, which are under way, and what goes into one request.  Must not know rows,
codecs or connections; lives on the client's loop.

Of each partition one batch at a time is under way, so that a retry cannot change their order.  A
request takes what waits for its leader, one batch of each partition.  A leader has a second request
while it works on the first; slow leaders do not keep others from theirs.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from sparklog.types import TopicPartition
from sparklog.wire.records.columns import EncodedBatch

#: Of one task, to one leader.
REQUESTS_MAX: Final = 2
#: Batches of one request, unless a single one is larger.
REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024

Group = Mapping[TopicPartition, EncodedBatch]
#: Sends a group and raises for the first of its batches that was refused.
Produce = Callable[[Group], Awaitable[None]]
#: Who leads a partition, as far as is known: any number where it is not.
LeaderOf = Callable[[TopicPartition], int]


@dataclass(slots=True, eq=False)
class _Delivery:
    """Batches that are waited for together, in another thread."""

    left: int
    done: Future[None]


class RequestBatcher:
    """The batches of one task.  After a failure nothing more is sent."""

    def __init__(self, produce: Produce, leader_of: LeaderOf) -> None:
        self._produce = produce
        self._leader_of = leader_of
        #: What waits, by partition; oldest first, partitions too.
        self._waiting: dict[TopicPartition, deque[tuple[EncodedBatch, _Delivery]]] = {}
        self._under_way: set[TopicPartition] = set()
        self._requests: set[asyncio.Task[None]] = set()
        #: How many requests each leader has.
        self._busy: Counter[int] = Counter()
        self._failed = False

    def deliver(
        self,
        batches: Iterable[tuple[TopicPartition, Sequence[EncodedBatch]]],
        done: Future[None],
    ) -> None:
        """Send batches; ``done`` ends when all were acknowledged, or another delivery has failed.

        Each partition's follow what was delivered to it before.  What ``produce`` raises is the
        error of ``done``.  Whoever waits for it cannot cancel it: see ``cancel``.
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
        """Give up what was not acknowledged: nobody waits for it any more."""
        self._stop()
        for request in self._requests:
            request.cancel()

    def _send_waiting(self) -> None:
        """As many requests as may be under way."""
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
        """The first batch of as many of these partitions as one request holds."""
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
                self._waiting[tp] = queue  # behind the others
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
        # Not at once: what is delivered in this turn of the loop goes into the same request.
        asyncio.get_running_loop().call_soon(self._send_waiting)
        for _, delivery in group.values():
            delivery.left -= 1
            if not delivery.left and not delivery.done.done():
                delivery.done.set_result(None)

    def _stop(self) -> None:
        """Let go of those that wait: the failure is what their task hears of."""
        self._failed = True
        for queue in self._waiting.values():
            for _, delivery in queue:
                if not delivery.done.done():
                    delivery.done.set_result(None)
        self._waiting.clear()
