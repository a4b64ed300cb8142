"""Requests that wait: for the pending transition of their transactional id, or for a cut.

Owns: their order and their deadlines.  Must not know what they wait for, nor how they are decided.

A request waits for a bounded time, and a bounded number of requests waits for one transactional id.
Kafka refuses such requests at once, and its clients ask again after a pause, which costs a
transaction most of its time.
"""

from collections import deque
from typing import Final, NamedTuple

from sparklog.driver.transactions.config import TransactionConfig
from sparklog.driver.transactions.consistent_cuts import CUT_WAIT_MS_MAX
from sparklog.driver.transactions.decision import AddPartitions, EndTransaction, InitProducerId
from sparklog.driver.transactions.transaction import EPOCH_BUMP_VERSION

#: Requests that may wait for one transactional id; Kafka's clients send one at a time.
WAITING_MAX: Final = 32


class WaitingRequest(NamedTuple):
    """A request that may wait until ``deadline_ms``, in monotonic milliseconds."""

    request: InitProducerId | AddPartitions | EndTransaction
    deadline_ms: int


def waiting_request(
    request: InitProducerId | AddPartitions | EndTransaction, config: TransactionConfig, now_ms: int
) -> WaitingRequest:
    """A request that comes now, and may wait for the transition before it."""
    wait_ms = config.broker_wait_ms if _is_of_broker(request) else config.concurrent_wait_ms
    return WaitingRequest(request, now_ms + wait_ms)


def held_request(waiting: WaitingRequest, now_ms: int) -> WaitingRequest:
    """A request that waits for the end of a cut.

    A broker's request waits no longer than otherwise, because a broker asks for many transactions
    at once and repeats each question itself.
    """
    if _is_of_broker(waiting.request):
        return waiting
    return WaitingRequest(waiting.request, now_ms + CUT_WAIT_MS_MAX)


def _is_of_broker(request: InitProducerId | AddPartitions | EndTransaction) -> bool:
    """Whether a broker asks for a producer; an older producer asks for itself."""
    return isinstance(request, AddPartitions) and request.client_version >= EPOCH_BUMP_VERSION


class WaitingRequests:
    """The requests that wait, by their transactional ids."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[WaitingRequest]] = {}

    def add(self, waiting: WaitingRequest, now_ms: int, *, first: bool = False) -> bool:
        """Let a request wait, before all others when it is ``first``.

        Returns:
            Whether it waits: its deadline lies ahead, and not too many others wait.
        """
        if waiting.deadline_ms <= now_ms:
            return False
        queue = self._queues.setdefault(waiting.request.transactional_id, deque())
        if len(queue) >= WAITING_MAX:
            return False
        if first:
            queue.appendleft(waiting)
        else:
            queue.append(waiting)
        return True

    def has(self, transactional_id: str) -> bool:
        """Whether a request for this transactional id waits."""
        return transactional_id in self._queues

    def take(self, transactional_id: str) -> tuple[WaitingRequest, ...]:
        """The requests that wait for this transactional id, which wait no longer."""
        return tuple(self._queues.pop(transactional_id, ()))

    def take_all(self) -> list[WaitingRequest]:
        """All requests, which wait no longer; those of one transactional id in their order."""
        waiting = self.all()
        self._queues.clear()
        return waiting

    def take_late(self, now_ms: int) -> list[WaitingRequest]:
        """The requests whose deadline is reached, which wait no longer."""
        late = [each for each in self.all() if each.deadline_ms <= now_ms]
        for each in late:
            self.remove(each.request.request_id, each.request.transactional_id)
        return late

    def remove(self, request_id: int, transactional_id: str) -> None:
        """Let a request wait no longer, if it waits."""
        queue = self._queues.get(transactional_id, ())
        kept = deque(each for each in queue if each.request.request_id != request_id)
        if kept:
            self._queues[transactional_id] = kept
        else:
            self._queues.pop(transactional_id, None)

    def all(self) -> list[WaitingRequest]:
        """Every request that waits."""
        return [each for queue in self._queues.values() for each in queue]

    def next_deadline_ms(self) -> int | None:
        """The first deadline; None when no request waits."""
        return min((each.deadline_ms for each in self.all()), default=None)
