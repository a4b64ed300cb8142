"""Connections over a limit, which may still prove that they are a member's.

Owns: the connections that wait for that, which of them gives way, and what the log says of
connections that were refused.  Must not know what a proof is.
"""

import logging
from typing import Final, Generic, Protocol, TypeVar

logger = logging.getLogger(__name__)

#: Connections over a limit that may still prove that they are a member's; the oldest gives way.
OVER_LIMIT_CONNECTIONS_MAX: Final = 32


class Waiting(Protocol):
    """A connection."""

    def abort(self) -> None: ...


WaitingT = TypeVar("WaitingT", bound=Waiting)


class OverLimitConnections(Generic[WaitingT]):
    """Connections in the order in which they came."""

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
        """The connection has proved itself, or is gone."""
        self._waiting.pop(connection, None)


def log_refusal(peer: str, reason: str, count: int) -> None:
    """Log the refusal with this number, but not every one of a client that tries again."""
    if count.bit_count() == 1:
        logger.warning("connection of %s refused: %s (%d refused so far)", peer, reason, count)
