"""The memory pool of a server (KIP-72): which connections get memory, wait, or are closed.

Owns: one timer, which runs only while memory is short, and the resuming and closing of connections.
Must not know the limits (``queued_requests.py``, ``unsent_responses.py``) or what a frame means.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from sparklog.transport.channel import UNSENT_BYTES_MAX
from sparklog.transport.limits import ServerLimits
from sparklog.transport.queued_requests import CHECK_INTERVAL_S, Claim, QueuedRequests
from sparklog.transport.unsent_responses import SCARCE_UNSENT_BYTES_MAX, UnsentResponses
from sparklog.wire.framing.receive_memory import ReceiveMemory

logger = logging.getLogger(__name__)


class Holder(Protocol):
    """A connection that holds memory of the pool."""

    peer: str
    sent_bytes: int
    on_granted: Callable[[], None]
    on_overdue: Callable[[], None]

    @property
    def pending_bytes(self) -> int: ...


class MemoryPool:
    """The memory of all connections of one server.

    ``connections_slow`` counts the connections that were closed because others needed their memory.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self.connections_slow = 0
        #: Unsent bytes of one connection (file regions included) at which it handles no more
        #: requests.
        self.unsent_bytes_max = UNSENT_BYTES_MAX
        self.receive = ReceiveMemory()
        self.requests: QueuedRequests[Holder] = QueuedRequests(
            limits.queued_bytes_max, limits.frame_bytes_max
        )
        self.answers: UnsentResponses[Holder] = UnsentResponses()
        self._timer: asyncio.TimerHandle | None = None

    def claim(self, holder: Holder, size: int) -> Claim[Holder]:
        claim = self.requests.claim(holder, size)
        if not claim.granted:
            self.receive.drop_spares()
            self._changed()
        return claim

    def release(self, claim: Claim[Holder]) -> None:
        granted = self.requests.release(claim)
        if granted or self.receive.scarce:
            self._changed()
            for other in granted:
                other.owner.on_granted()

    def begin_slices(self, size: int) -> None:
        self.requests.begin_slices(size)
        self._changed()

    def end_slices(self, size: int) -> None:
        granted = self.requests.end_slices(size)
        self._changed()
        for other in granted:
            other.owner.on_granted()

    def hold_requests(self, size: int) -> None:
        self.requests.hold_requests(size)
        self._changed()

    def release_requests(self, size: int) -> None:
        self.requests.release_requests(size)
        self._changed()

    def count_unsent(self, holder: Holder, size: int) -> None:
        """Count ``size`` bytes for the unsent responses of a connection."""
        victim = self.answers.update(holder, size)
        if victim is not None:
            self._cut([victim], "answers that its client does not take")
        scarce = self.answers.scarce
        self.unsent_bytes_max = SCARCE_UNSENT_BYTES_MAX if scarce else UNSENT_BYTES_MAX
        self._watch()

    def as_json(self) -> dict[str, int]:
        """The counts that NodeStatus shows."""
        return {
            "connections_slow": self.connections_slow,
            "queued_request_bytes": self.requests.held_bytes,
            "unsent_answer_bytes": self.answers.total_bytes,
        }

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _changed(self) -> None:
        self.receive.scarce = self.requests.scarce
        self._watch()

    def _watch(self) -> None:
        if self._timer is None and (self.requests.waiting or self.answers.scarce):
            self._timer = asyncio.get_running_loop().call_later(CHECK_INTERVAL_S, self._check)

    def _check(self) -> None:
        self._timer = None
        self._cut(self.requests.find_overdue(), "a request that does not arrive")
        self._cut(self.answers.find_overdue(), "answers that its client does not take")
        self._watch()

    def _cut(self, holders: Sequence[Holder], why: str) -> None:
        for holder in holders:
            self.connections_slow += 1
            if self.connections_slow.bit_count() == 1:
                logger.warning(
                    "connection of %s closed: memory is short and it holds %s (%d closed so far)",
                    holder.peer,
                    why,
                    self.connections_slow,
                )
            holder.on_overdue()
