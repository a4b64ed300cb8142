"""Loads from plain sockets: prepared frames out, counted bytes in, nothing decoded.

Owns: the connections.  Must not know the server: the same client drives a broker and its bare
counterpart, so that only the server differs.
"""

import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from sparklog.types import Endpoint

_TIMEOUT_S = 30
_RECEIVE_BYTES = 1 << 20


class Caller:
    """One connection to a server."""

    def __init__(self, endpoint: Endpoint, greeting: bytes = b"") -> None:
        address = (endpoint.host, endpoint.port)
        self._socket = socket.create_connection(address, timeout=_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(_RECEIVE_BYTES)
        if greeting:
            self._socket.sendall(greeting)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, frame: bytes) -> bytes:
        """Send a request with its length in front; return the response without its length."""
        self._socket.sendall(frame)
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def pump(self, loads: Sequence[bytes], answer_bytes: int) -> None:
        """Send each load, and receive ``answer_bytes`` of responses to it.

        Two loads are in flight at any time, so that the server never waits for this side.
        """
        self._socket.sendall(loads[0])
        for load in loads[1:]:
            self._socket.sendall(load)
            self._drop(answer_bytes)
        self._drop(answer_bytes)

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
            # MSG_TRUNC: the kernel discards the bytes; their copying is not the server's work.
            count = self._socket.recv_into(
                self._buffer, min(size, _RECEIVE_BYTES), socket.MSG_TRUNC
            )
            if not count:
                raise ConnectionError("the server closed the connection")
            size -= count


def pump_all(callers: Sequence[Caller], loads: Sequence[Sequence[bytes]], answer: int) -> float:
    """Let all callers pump their loads at once; return the seconds until the last response."""
    with ThreadPoolExecutor(len(callers)) as pool:
        began = time.perf_counter()
        jobs = [
            pool.submit(caller.pump, own, answer)
            for caller, own in zip(callers, loads, strict=True)
        ]
        for job in jobs:
            job.result()
        return time.perf_counter() - began


def warm_page_cache(scratch: Path, size: int) -> None:
    """Make the kernel hold free memory for a run that writes ``size`` bytes.

    A virtual machine gives free memory back to its host after a while, and a new page costs more
    than all that is measured here.  Without this step, a side that runs soon after files were
    deleted looks faster.
    """
    block = bytes(1 << 20)
    with scratch.open("wb") as file:
        for _ in range(size * 5 // 4 // len(block)):
            file.write(block)
    scratch.unlink()
