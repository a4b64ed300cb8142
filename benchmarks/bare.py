"""Bare servers: the least work of a broker, against which produce and fetch are measured.

``python -m benchmarks.bare produce FILE``: a BufferedProtocol server that checks each batch's CRC
and writes it.  ``python -m benchmarks.bare fetch FILE SIZE``: answers each request of 4 bytes with
the next SIZE bytes of FILE by sendfile, and begins again at the end of the file.  Both print the
port they listen on, and end with their parent.

Owns: the two loops.  Must not know how they are measured.
"""

import asyncio
import os
import struct
import sys

import crc32c

from sparklog.process import die_with_parent

#: The position of a batch's CRC, and of the bytes that the CRC covers.
CRC_AT = 17
CRC_START = 21
#: The first message of a connection; see ``BareProduce``.
GREETING = struct.Struct(">iii")

_BUFFER_BYTES = 1 << 20
_ROOM_BYTES = 1 << 18


class BareProduce(asyncio.BufferedProtocol):
    """Length prefix, CRC over the batch, one write per batch, one response per request.

    The first message of a connection gives three numbers of bytes: those of a frame before its
    batch, those behind the batch, and those of a response.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._start = 0
        self._before = -1
        self._behind = 0
        self._answer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._start == self._filled:
            self._start = self._filled = 0
        elif _BUFFER_BYTES - self._filled < _ROOM_BYTES:
            rest = self._filled - self._start
            self._view[:rest] = self._view[self._start : self._filled]
            self._start, self._filled = 0, rest
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._before < 0:
            if self._filled < GREETING.size:
                return
            self._before, self._behind, answer = GREETING.unpack_from(self._view)
            self._answer = bytes(answer)
            self._start = GREETING.size
        answers = 0
        while self._filled - self._start >= 4:
            size = int.from_bytes(self._view[self._start : self._start + 4], "big")
            end = self._start + 4 + size
            if end > self._filled:
                break
            self._take(self._view[self._start + 4 + self._before : end - self._behind])
            answers += 1
            self._start = end
        if answers:
            assert self._transport is not None
            self._transport.write(self._answer * answers)

    def _take(self, batch: memoryview) -> None:
        expected = int.from_bytes(batch[CRC_AT : CRC_AT + 4], "big")
        if crc32c.crc32c(batch[CRC_START:]) != expected:
            raise ValueError("the CRC of a batch is wrong")
        os.write(self._descriptor, batch)


class BareFetch(asyncio.Protocol):
    """Any 4 bytes are answered with the next ``size`` bytes of the file."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._file_bytes = os.fstat(descriptor).st_size // size * size
        self._position = 0
        self._left = 0
        self._socket = -1
        self._watched = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio refuses to watch the descriptor of a transport.
        self._socket = os.dup(transport.get_extra_info("socket").fileno())

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch(False)
        os.close(self._socket)
        self._left = 0

    def data_received(self, data: bytes) -> None:
        self._left += len(data) // 4 * self._size
        self._send()

    def _send(self) -> None:
        try:
            while self._left:
                in_answer = self._size - self._position % self._size
                sent = os.sendfile(self._socket, self._descriptor, self._position, in_answer)
                self._left -= sent
                self._position = (self._position + sent) % self._file_bytes
        except BlockingIOError:
            self._watch(True)
        except (BrokenPipeError, ConnectionResetError):
            self._left = 0
            self._watch(False)
        else:
            self._watch(False)

    def _watch(self, wanted: bool) -> None:
        loop = asyncio.get_running_loop()
        if wanted and not self._watched:
            loop.add_writer(self._socket, self._send)
        elif self._watched and not wanted:
            loop.remove_writer(self._socket)
        self._watched = wanted


async def main(kind: str, path: str, size: int) -> None:
    flags = os.O_RDWR | os.O_CREAT | (os.O_APPEND if kind == "produce" else 0)
    descriptor = os.open(path, flags, 0o600)
    loop = asyncio.get_running_loop()

    def protocol() -> asyncio.BaseProtocol:
        return BareProduce(descriptor) if kind == "produce" else BareFetch(descriptor, size)

    server = await loop.create_server(protocol, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0))
