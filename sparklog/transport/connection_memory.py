"""The memory that one connection of a server holds, and the memory that it waits for.

Owns: the claim for an unfinished request, requests that wait to be handled, and the count of unsent
responses.  Must not know the limits of memory (``memory_pool.py``) or what a frame means.
"""

from collections import deque
from collections.abc import Callable
from itertools import accumulate, pairwise

from sparklog.transport.memory_pool import Holder, MemoryPool
from sparklog.transport.queued_requests import FREE_BYTES, Claim
from sparklog.transport.unsent_responses import UNCOUNTED_BYTES
from sparklog.wire.framing.frames import FrameDecoder


class ConnectionMemory:
    """The memory of one connection.

    Connections of cluster members are ``exempt``: they are neither counted nor made to wait.  While
    ``waits`` is true, nothing more may be received.  ``on_granted`` is called when that ends, and
    ``on_overdue`` when the connection must be closed because others need its memory.
    """

    __slots__ = (
        "_claim",
        "_decoder",
        "_pool",
        "claimed_bytes",
        "counted_bytes",
        "exempt",
        "held_request_bytes",
        "on_granted",
        "on_overdue",
        "peer",
        "sent_bytes",
        "sliced_bytes",
    )

    def __init__(
        self,
        pool: MemoryPool,
        decoder: FrameDecoder,
        on_granted: Callable[[], None],
        on_overdue: Callable[[], None],
    ) -> None:
        self.peer = "?"
        self.exempt = False
        self.on_granted = on_granted
        self.on_overdue = on_overdue
        #: Bytes of responses that were sent since the connection began.
        self.sent_bytes = 0
        #: Bytes of unsent responses in memory that the server counts for this connection.
        self.counted_bytes = 0
        self._pool = pool
        self._decoder = decoder
        self._claim: Claim[Holder] | None = None
        #: Size of the unfinished frame, if it is counted; else 0.
        self.claimed_bytes = 0
        #: Size of the requests that wait until responses were sent, and of the unfinished frame
        #: behind these requests.
        self.held_request_bytes = 0
        #: Size of the request that is handled in slices.
        self.sliced_bytes = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of an unfinished request that have arrived."""
        return self._decoder.pending_bytes

    @property
    def waits(self) -> bool:
        return self._claim is not None and not self._claim.granted

    def frame_arrived(self) -> None:
        """Release the memory of the unfinished frame, which has arrived as a whole."""
        if self._claim is not None:
            claim, self._claim = self._claim, None
            self._pool.release(claim)
        else:
            self._pool.requests.loose_bytes -= self.claimed_bytes
        self.claimed_bytes = 0

    def claim(self) -> None:
        """Claim memory for the rest of an unfinished frame, if enough of it has arrived."""
        if self.claimed_bytes or self.exempt:
            return
        size = self._decoder.unfinished_bytes
        if self._pool.requests.add_loose(size):
            self.claimed_bytes = size
        elif self._decoder.pending_bytes > FREE_BYTES:
            self.claimed_bytes = size
            self._claim = self._pool.claim(self, size)

    def begin_slices(self, size: int) -> None:
        """Count ``size`` bytes of a request that stay in memory while it is handled in slices."""
        if not self.exempt and size:
            self.sliced_bytes = size
            self._pool.begin_slices(size)

    def end_slices(self) -> None:
        """Release the memory of the request that was handled in slices."""
        if self.sliced_bytes:
            size, self.sliced_bytes = self.sliced_bytes, 0
            self._pool.end_slices(size)

    def hold_requests(self, frames: deque[memoryview]) -> deque[memoryview]:
        """Copy requests that must wait out of the memory that all connections receive into."""
        if not self.held_request_bytes:
            kept = memoryview(bytearray().join(frames))
            ends = accumulate([len(frame) for frame in frames], initial=0)
            frames = deque([kept[start:end] for start, end in pairwise(ends)])
            self._decoder.frames_done()
            if not self.exempt:
                self.held_request_bytes = len(kept) + self._decoder.pending_bytes
                self._pool.hold_requests(self.held_request_bytes)
        return frames

    def release_requests(self) -> None:
        """Release the memory of the requests that waited, because all of them were handled."""
        self._decoder.frames_done()
        if self.held_request_bytes:
            self._pool.release_requests(self.held_request_bytes)
            self.held_request_bytes = 0

    def count_unsent(self, size: int) -> None:
        """Count ``size`` bytes of memory for the unsent responses of the connection."""
        if size <= UNCOUNTED_BYTES or self.exempt:
            size = 0
        if size != self.counted_bytes:
            self.counted_bytes = size
            self._pool.count_unsent(self, size)

    def close(self) -> None:
        """The connection has ended."""
        self.on_granted = self.on_overdue = _nothing
        self.release_requests()
        self.end_slices()
        if self.claimed_bytes:
            self.frame_arrived()
        self.count_unsent(0)
        self._decoder.close()


def _nothing() -> None:
    """The connection has ended."""
