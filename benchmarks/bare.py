"""The least a broker could do: the loops that the produce and fetch paths are measured against.

``python -m benchmarks.bare produce FILE``: a BufferedProtocol server that checks each batch's CRC
and writes it.  ``python -m benchmarks.bare fetch FILE SIZE``: answers each request with SIZE bytes
of FILE by sendfile.  Both print the port they listen on.
"""

import asyncio
import os
import struct
import sys

import crc32c

#: Where, from the end of a Produce request frame, its only batch starts (see ``load``).
CRC_OFFSET = 17
CRC_START = 21


class BareProduce(asyncio.BufferedProtocol):
    """Length prefix, CRC over the batch, one write per batch, an answer of ``answer_size`` bytes.

    Each connection says first how long the bytes around its batches are, and how long an answer.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray(4 << 20)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._start = 0
        self._lead = -1
        self._tail = 0
        self._answer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._start == self._filled:
            self._start = self._filled = 0
        elif len(self._buffer) - self._filled < (1 << 20):
            rest = self._filled - self._start
            self._buffer[:rest] = self._buffer[self._start : self._filled]
            self._start, self._filled = 0, rest
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._lead < 0:
            if self._filled - self._start < 12:
                return
            lead, tail, answer = struct.unpack_from(">iii", self._buffer, self._start)
            self._lead, self._tail, self._answer = lead, tail, bytes(answer)
            self._start += 12
        answers = 0
        while self._filled - self._start >= 4:
            (size,) = struct.unpack_from(">i", self._buffer, self._start)
            if self._filled - self._start - 4 < size:
                break
            self._take(self._start + 4, size)
            answers += 1
            self._start += 4 + size
        if answers:
            assert self._transport is not None
            self._transport.write(self._answer * answers)

    def _take(self, start: int, size: int) -> None:
        batch = self._view[start + self._lead : start + size - self._tail]
        (crc,) = struct.unpack_from(">I", batch, CRC_OFFSET)
        if crc32c.crc32c(batch[CRC_START:]) != crc:
            raise ValueError("CRC")
        os.write(self._descriptor, batch)


class BareFetch(asyncio.Protocol):
    """Any request of 4 bytes is answered with ``size`` bytes of the file, by own sendfile."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._pending = 0
        self._sent = 0
        self._socket = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = os.dup(transport.get_extra_info("socket").fileno())

    def connection_lost(self, exc: Exception | None) -> None:
        asyncio.get_running_loop().remove_writer(self._socket)
        os.close(self._socket)

    def data_received(self, data: bytes) -> None:
        self._pending += len(data) // 4
        self._send()

    def _send(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._pending:
                left = self._size - self._sent
                self._sent += os.sendfile(self._socket, self._descriptor, self._sent, left)
                if self._sent == self._size:
                    self._sent = 0
                    self._pending -= 1
            loop.remove_writer(self._socket)
        except BlockingIOError:
            loop.add_writer(self._socket, self._send)
        except (BrokenPipeError, ConnectionResetError):
            loop.remove_writer(self._socket)


async def main(kind: str, path: str, size: int) -> None:
    flags = os.O_RDWR | os.O_CREAT | (os.O_APPEND if kind == "produce" else 0)
    descriptor = os.open(path, flags, 0o600)
    loop = asyncio.get_running_loop()

    def protocol() -> asyncio.BaseProtocol:
        return BareProduce(descriptor) if kind == "produce" else BareFetch(descriptor, size)

    server = await loop.create_server(protocol, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0))
