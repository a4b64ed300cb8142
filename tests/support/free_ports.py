"""Ports for servers that want to be told theirs before they start.

Owns: which ports.  Must not know who listens there.

The system gives ports of its own range to whoever connects, at any moment: also one that was free
for a server a moment ago, or that a server has until it is started again.  So these are below it.
"""

import random
import socket
from pathlib import Path

PORT_MIN = 10_000
_SYSTEM_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DEFAULT_SYSTEM_MIN = 32_768


def free_ports(count: int) -> list[int]:
    """Different ports of loopback on which nobody listens."""
    sockets: list[socket.socket] = []
    try:
        for port in random.sample(range(PORT_MIN, _system_min()), 100 * count):
            if len(sockets) < count:
                one = socket.socket()
                try:
                    one.bind(("127.0.0.1", port))
                    sockets.append(one)
                except OSError:  # somebody has it
                    one.close()
        assert len(sockets) == count
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _system_min() -> int:
    try:
        found = int(_SYSTEM_RANGE.read_text().split()[0])
    except OSError:
        return _DEFAULT_SYSTEM_MIN
    return found if found > PORT_MIN + 2_000 else _DEFAULT_SYSTEM_MIN
