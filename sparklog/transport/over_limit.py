"""Connections over a limit, which stay open while their peer may prove cluster membership.

Owns: these connections, the choice of the connection to close for a new one, and the log lines of
refused connections.  Must not know how membership is proved.
"""

import logging
from typing import Final, Generic, Protocol, TypeVar

logger = logging.getLogger(__name__)

#: Connections over a limit that stay open at a time; the oldest is closed for a new one.
OVER_LIMIT_CONNECTIONS_MAX: Final = 32


class Waiting(Protocol):
    """A connection."""

    def abort(self) -> None: ...


WaitingT = TypeVar("WaitingT", bound=Waiting)


class OverLimitConnections(Generic[WaitingT]):
    """Connections over a limit, in the order in which they came."""

    def __init__(self, connections_max: int = OVER_LIMIT_CONNECTIONS_MAX) -> None:
        self._connections_max = connections_max
        self._waiting: dict[WaitingT, None] = {}

    def add(self, connection: WaitingT) -> None:
        while len(self._waiting) >= self._connections_max:
            oldest = next(iter(self._waiting))
            self.remove(oldest)
            oldest.abort()
        self._waiting[connection] = None

    def remove(self, connection: WaitingT) -> None:
        """Forget a connection that was closed, or whose peer has proved membership."""
        self._waiting.pop(connection, None)


def log_refusal(peer: str, reason: str, count: int) -> None:
    """Log refusal number ``count`` if it is a power of two: clients try again and again."""
    if count.bit_count() == 1:
        logger.warning("connection of %s refused: %s (%d refused so far)", peer, reason, count)
