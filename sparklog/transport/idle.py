"""Closing idle connections of a server, with one timer for all of them.

Owns: the times of the checks.  Must not know what makes a connection idle.

A connection notes activity without reading a clock.  Therefore it is closed between one and
``1 + 1 / IDLE_CHECKS`` times the limit after its last byte.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

#: The number of checks in a row without activity after which a connection is closed.
IDLE_CHECKS: Final = 4
_INTERVAL_S_MIN: Final = 0.001


class Idler(Protocol):
    """A connection that may be idle."""

    peer: str

    def check_idle(self, checks_max: int) -> None:
        """Close after ``checks_max`` checks in a row without activity."""


class IdleWatch:
    """Checks all connections in intervals; ``set_limit`` starts the checks."""

    def __init__(self, connections: Iterable[Idler]) -> None:
        self._connections = connections
        self._interval_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def set_limit(self, idle_ms_max: int) -> None:
        """Close connections that are idle for ``idle_ms_max`` milliseconds; negative: never."""
        self.stop()
        if idle_ms_max >= 0:
            self._interval_s = max(idle_ms_max / 1000 / IDLE_CHECKS, _INTERVAL_S_MIN)
            self._plan()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _plan(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._check)

    def _check(self) -> None:
        self._plan()
        for connection in sorted(self._connections, key=_peer):
            connection.check_idle(IDLE_CHECKS)


def _peer(connection: Idler) -> str:
    return connection.peer
