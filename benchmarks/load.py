"""Load from plain sockets: prepared frames out, counted bytes in, nothing decoded.

The same client drives a broker and its bare counterpart, so that only the server differs.
"""

import socket
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from sparklog.types import Endpoint

LENGTH = struct.Struct(">i")
RECEIVE_BYTES = 1 << 20


class Caller:
    """One connection.  ``frames`` are sent together; their answers are awaited together."""

    def __init__(self, endpoint: Endpoint, greeting: bytes = b"") -> None:
        self._socket = socket.create_connection((endpoint.host, endpoint.port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(RECEIVE_BYTES)
        if greeting:
            self._socket.sendall(greeting)

    def call(self, request: bytes) -> bytes:
        """One framed request; the payload of its answer."""
        self._socket.sendall(request)
        (size,) = LENGTH.unpack(self._exactly(4))
        return self._exactly(size)

    def pump(self, frames: bytes, answer_bytes: int, times: int) -> None:
        """Send ``frames`` and drop ``answer_bytes`` of answers, ``times`` times."""
        for _ in range(times):
            self._socket.sendall(frames)
            self._drop(answer_bytes)

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the server closed the connection")
            data += part
        return bytes(data)

    def _drop(self, size: int) -> None:
        while size:
            count = self._socket.recv_into(self._buffer, min(size, RECEIVE_BYTES))
            if not count:
                raise ConnectionError("the server closed the connection")
            size -= count


def pump_all(callers: Sequence[Caller], frames: Sequence[bytes], answer: int, times: int) -> float:
    """Each caller pumps its own frames, all at once; seconds until the last has its answers."""
    with ThreadPoolExecutor(len(callers)) as pool:
        began = time.perf_counter()
        jobs = [
            pool.submit(caller.pump, part, answer, times)
            for caller, part in zip(callers, frames, strict=True)
        ]
        for job in jobs:
            job.result()
        return time.perf_counter() - began
