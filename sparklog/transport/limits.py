"""Limits of a server: frame sizes, memory, and connections (in total, by address, and idle).

Owns: the limits as values, and the count of connections by address.  Must not know sockets or what
a frame means.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sparklog.types import MAX_INT32

DEFAULT_FRAME_BYTES_MAX: Final = 104_857_600
DEFAULT_IDLE_MS: Final = 600_000
DEFAULT_QUEUED_BYTES_MAX: Final = 268_435_456


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The limits of one server.

    A negative ``idle_ms_max`` never closes an idle connection.  A negative ``queued_bytes_max``
    does not bound the memory of requests that arrive.  Sizes of the kernel's buffers that are not
    positive leave the choice to the system.  These sizes, ``backlog`` and ``queued_bytes_max`` are
    read when a server begins to listen.  ``connections_max_by_address`` overrides
    ``connections_per_address_max``.
    """

    frame_bytes_max: int = DEFAULT_FRAME_BYTES_MAX
    queued_bytes_max: int = DEFAULT_QUEUED_BYTES_MAX
    backlog: int = 1024
    receive_buffer_bytes: int = -1
    send_buffer_bytes: int = -1
    connections_max: int = MAX_INT32
    connections_per_address_max: int = MAX_INT32
    connections_max_by_address: Mapping[str, int] = field(default_factory=dict)
    idle_ms_max: int = DEFAULT_IDLE_MS


class ConnectionCount:
    """Open connections, by the address of their peer."""

    def __init__(self) -> None:
        self._by_address: Counter[str] = Counter()
        self._total = 0

    def add(self, address: str) -> None:
        self._total += 1
        self._by_address[address] += 1

    def remove(self, address: str) -> None:
        self._total -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def objection(self, address: str, limits: ServerLimits) -> str:
        """The limit that one more connection from an address would exceed, as text, or empty."""
        if self._total >= limits.connections_max:
            return f"{self._total} are open, max.connections is {limits.connections_max}"
        allowed = limits.connections_max_by_address.get(address, limits.connections_per_address_max)
        if self._by_address[address] >= allowed:
            return (
                f"{self._by_address[address]} are open from {address}, max.connections.per.ip "
                f"or its override is {allowed}"
            )
        return ""
