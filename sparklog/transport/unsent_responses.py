"""The bound on the memory of unsent responses, over all connections.

Owns: the sum, and which connections are closed when the sum is too large.  Must not know clocks or
sockets.  File regions are not counted: the page cache holds them.

Beyond ``bytes_max`` a connection with unsent responses handles fewer requests, and a connection
whose client reads nothing between several checks is closed.  Beyond twice ``bytes_max``, the
connection that holds most is closed at once.
"""

from collections.abc import Sequence
from typing import Final, Generic, Protocol, TypeVar

#: Bytes of unsent responses that all connections together may hold.
ALL_UNSENT_BYTES_MAX: Final = 128 * 2**20
#: Unsent bytes up to which a connection is not counted.
UNCOUNTED_BYTES: Final = 16 * 1024
#: Unsent bytes of one connection at which it handles no more requests while the sum is too large.
SCARCE_UNSENT_BYTES_MAX: Final = 64 * 1024
#: Fewer bytes than this between two checks are no progress.  After ``QUIET_CHECKS_MAX`` checks
#: without progress a connection is overdue.
PROGRESS_BYTES_MIN: Final = 4096
QUIET_CHECKS_MAX: Final = 3


class Connection(Protocol):
    """A connection; ``sent_bytes`` counts the bytes of responses sent since it began."""

    sent_bytes: int


ConnectionT = TypeVar("ConnectionT", bound=Connection)


class _Held:
    __slots__ = ("quiet_checks", "seen_bytes", "size")

    def __init__(self) -> None:
        self.size = 0
        self.quiet_checks = 0
        self.seen_bytes = -PROGRESS_BYTES_MIN


class UnsentResponses(Generic[ConnectionT]):
    """Unsent bytes by connection."""

    def __init__(self, bytes_max: int = ALL_UNSENT_BYTES_MAX) -> None:
        self.total_bytes = 0
        self._bytes_max = bytes_max
        self._held: dict[ConnectionT, _Held] = {}

    @property
    def scarce(self) -> bool:
        return self.total_bytes > self._bytes_max

    def update(self, connection: ConnectionT, size: int) -> ConnectionT | None:
        """Set the unsent bytes of a connection.  Returns: a connection to close for it, or None."""
        held = self._held.get(connection)
        if held is None:
            held = self._held[connection] = _Held()
        self.total_bytes += size - held.size
        held.size = size
        if not size:
            del self._held[connection]
        if self.total_bytes <= 2 * self._bytes_max:
            return None
        return max(self._held, key=lambda other: self._held[other].size)

    def find_overdue(self) -> Sequence[ConnectionT]:
        """The connections to close, because the sum is too large and their clients read nothing."""
        if not self.scarce:
            return ()
        overdue = []
        for connection, held in self._held.items():
            taken = connection.sent_bytes
            quiet = taken - held.seen_bytes < PROGRESS_BYTES_MIN
            held.quiet_checks = held.quiet_checks + 1 if quiet else 0
            held.seen_bytes = taken
            if held.quiet_checks >= QUIET_CHECKS_MAX:
                overdue.append(connection)
        return overdue

    def check_invariants(self) -> None:
        assert self.total_bytes == sum(held.size for held in self._held.values())
        assert all(held.size > 0 for held in self._held.values())
