"""The bound on the memory of requests that are arriving, and the connections that wait for it.

Owns: the bound (``queued.max.request.bytes``), the claims of connections on it, and which claims
are overdue.  Must not know clocks, sockets or buffers.

A connection claims the size of a frame as soon as more than ``FREE_BYTES`` of the frame have
arrived, and is read from only while the claim is granted.  So a granted frame can always finish,
and the granted claims together stay within the bound.  Claims wait in the order in which they were
made, in three lanes by size.  Each lane has its own share, so large frames cannot starve small
frames.
A connection whose granted frame does not arrive while others wait is closed (``find_overdue``).  A
request that is worked on in slices still holds its memory: claims wait until there is room beside
it.  Small frames have a share without claims, because counting their bytes is cheaper than a claim.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

#: Bytes of a frame that may arrive without a claim.
FREE_BYTES: Final = 4096
#: Time between two calls of ``find_overdue``, in seconds.
CHECK_INTERVAL_S: Final = 1.0
#: Fewer bytes than this between two checks are no progress.  After ``QUIET_CHECKS_MAX`` checks
#: without progress a claim is overdue.
PROGRESS_BYTES_MIN: Final = 4096
QUIET_CHECKS_MAX: Final = 3
#: Checks within which a frame must arrive, plus one check per ``BYTES_PER_CHECK`` of its size.
CHECKS_MIN: Final = 15
BYTES_PER_CHECK: Final = 4 * 2**20
#: Frames up to this size are small.
SMALL_FRAME_BYTES_MAX: Final = 64 * 1024
#: The share of small frames without a claim.
_LOOSE_SHARE: Final = 1 / 16
#: The largest frame of each lane but the last, and the lane's share of the bound.
_LANES: Final = ((SMALL_FRAME_BYTES_MAX, 1 / 16), (4 * 2**20, 1 / 4))
_LARGE_SHARE: Final = 1 / 2
#: The share of requests that have arrived and wait until responses of their connection were sent.
_HELD_REQUESTS_SHARE: Final = 1 / 8


class Claimant(Protocol):
    """A connection."""

    @property
    def pending_bytes(self) -> int:
        """Bytes of the unfinished frame that have arrived."""


ClaimantT = TypeVar("ClaimantT", bound=Claimant)


class Claim(Generic[ClaimantT]):
    """The memory that one connection claims for one frame."""

    __slots__ = ("checks", "granted", "lane", "owner", "quiet_checks", "seen_bytes", "size")

    def __init__(self, owner: ClaimantT, size: int, lane: "_Lane[ClaimantT]") -> None:
        self.owner = owner
        self.size = size
        self.lane = lane
        self.granted = False
        self.checks = 0
        self.quiet_checks = 0
        self.seen_bytes = 0


class _Lane(Generic[ClaimantT]):
    """Claims of one class of sizes."""

    __slots__ = ("bytes_max", "granted", "held_bytes", "waiting")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self.granted: dict[Claim[ClaimantT], None] = {}
        self.waiting: dict[Claim[ClaimantT], None] = {}

    def fits(self, size: int) -> bool:
        return not self.granted or self.held_bytes + size <= self.bytes_max

    def grant(self, claim: Claim[ClaimantT]) -> None:
        claim.granted = True
        self.held_bytes += claim.size
        self.granted[claim] = None

    def remove(self, claim: Claim[ClaimantT]) -> None:
        if claim.granted:
            del self.granted[claim]
            self.held_bytes -= claim.size
        else:
            del self.waiting[claim]

    def grant_waiting(self, has_room: Callable[[int], bool]) -> list[Claim[ClaimantT]]:
        granted = []
        while self.waiting:
            claim = next(iter(self.waiting))
            if not self.fits(claim.size) or not has_room(claim.size):
                break
            del self.waiting[claim]
            self.grant(claim)
            granted.append(claim)
        return granted


class QueuedRequests(Generic[ClaimantT]):
    """The claims of all connections.

    A negative ``bytes_max`` sets no bound.  One frame of ``frame_bytes_max`` is always granted.
    """

    def __init__(self, bytes_max: int, frame_bytes_max: int) -> None:
        self.bounded = bytes_max >= 0
        self.held_request_bytes = 0
        self.sliced_bytes = 0
        self.loose_bytes = 0
        self._bytes_max = bytes_max
        self._loose_bytes_max = int(bytes_max * _LOOSE_SHARE)
        self._held_request_bytes_max = int(bytes_max * _HELD_REQUESTS_SHARE)
        self._lanes: list[tuple[int, _Lane[ClaimantT]]] = [
            (size, _Lane(int(bytes_max * share))) for size, share in _LANES
        ]
        self._large: _Lane[ClaimantT] = _Lane(max(int(bytes_max * _LARGE_SHARE), frame_bytes_max))
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Claims that are not granted yet."""
        return self._waiting

    @property
    def held_bytes(self) -> int:
        """Bytes of unfinished frames, of requests handled in slices, and of requests that wait."""
        arrived_bytes = self.held_request_bytes + self.sliced_bytes
        return arrived_bytes + self.loose_bytes + sum(lane.held_bytes for lane in self._all_lanes())

    @property
    def scarce(self) -> bool:
        """Whether one receive may bring only as much as a connection may hold without a claim."""
        return self.bounded and (
            self._waiting > 0
            or self.held_request_bytes + self.sliced_bytes > self._held_request_bytes_max
        )

    def add_loose(self, size: int) -> bool:
        """Count a small frame without a claim; False when a claim is needed."""
        loose_bytes = self.loose_bytes + size
        if size > SMALL_FRAME_BYTES_MAX or loose_bytes > self._loose_bytes_max:
            return False
        if self.sliced_bytes and not self._has_room(size):
            return False
        self.loose_bytes = loose_bytes
        return True

    def claim(self, owner: ClaimantT, size: int) -> Claim[ClaimantT]:
        """Claim memory for a frame of ``size`` bytes; a granted claim lets the frame arrive."""
        lane = next((lane for largest, lane in self._lanes if size <= largest), self._large)
        claim = Claim(owner, size, lane)
        if not self.bounded or (not lane.waiting and lane.fits(size) and self._has_room(size)):
            lane.grant(claim)
        else:
            lane.waiting[claim] = None
            self._waiting += 1
        return claim

    def release(self, claim: Claim[ClaimantT]) -> Sequence[Claim[ClaimantT]]:
        """End a claim: its frame has arrived or its connection is closed.

        Returns: the claims that are granted now.
        """
        if not claim.granted:
            self._waiting -= 1
        claim.lane.remove(claim)
        return self._grant_waiting()

    def begin_slices(self, size: int) -> None:
        """Count a request of ``size`` bytes that has arrived and is handled in slices."""
        self.sliced_bytes += size

    def end_slices(self, size: int) -> Sequence[Claim[ClaimantT]]:
        """End the count of a request in slices.  Returns: the claims that are granted now."""
        self.sliced_bytes -= size
        return self._grant_waiting()

    def _has_room(self, size: int) -> bool:
        """Whether a frame fits beside the requests handled in slices; they end sooner or later."""
        return not self.sliced_bytes or self.held_bytes + size <= self._bytes_max

    def _grant_waiting(self) -> Sequence[Claim[ClaimantT]]:
        if not self._waiting:
            return ()
        granted = [
            claim for lane in self._all_lanes() for claim in lane.grant_waiting(self._has_room)
        ]
        self._waiting -= len(granted)
        return granted

    def hold_requests(self, size: int) -> None:
        """Count requests of ``size`` bytes that have arrived and cannot be handled yet."""
        self.held_request_bytes += size

    def release_requests(self, size: int) -> None:
        """End the count of requests of ``size`` bytes, which were handled."""
        self.held_request_bytes -= size

    def find_overdue(self) -> Sequence[ClaimantT]:
        """The connections to close, because others wait for the memory that they hold.

        A frame cannot be overdue while no other frame of its lane waits.
        """
        overdue: list[ClaimantT] = []
        for lane in self._all_lanes():
            if lane.waiting:
                overdue += [claim.owner for claim in lane.granted if _is_overdue(claim)]
        return overdue

    def check_invariants(self) -> None:
        lanes = self._all_lanes()
        assert self._waiting == sum(len(lane.waiting) for lane in lanes)
        assert self.held_request_bytes >= 0
        assert self.sliced_bytes >= 0
        assert 0 <= self.loose_bytes <= max(self._loose_bytes_max, 0)
        for lane in lanes:
            assert lane.held_bytes == sum(claim.size for claim in lane.granted)
            assert not lane.waiting or lane.granted or self.sliced_bytes
            if self.bounded and len(lane.granted) > 1:
                assert lane.held_bytes <= lane.bytes_max

    def _all_lanes(self) -> Sequence[_Lane[ClaimantT]]:
        return [*(lane for _, lane in self._lanes), self._large]


def _is_overdue(claim: Claim[ClaimantT]) -> bool:
    """Count one more check of a granted claim.  Returns whether the claim is overdue."""
    arrived = claim.owner.pending_bytes
    claim.checks += 1
    if arrived - claim.seen_bytes < PROGRESS_BYTES_MIN:
        claim.quiet_checks += 1
    else:
        claim.quiet_checks = 0
    claim.seen_bytes = arrived
    return (
        claim.quiet_checks >= QUIET_CHECKS_MAX
        or claim.checks > CHECKS_MIN + claim.size // BYTES_PER_CHECK
    )
