"""The messages between a broker and its process for the remote_dir.

Owns: their shapes, and their bytes on the pipe.  Must not know who sends them, or what a call does.

Both ends are this package in the same version, and nobody else has the pipes, so messages are
pickled.  A message is four bytes of length, big endian, and the pickle.
"""

import pickle
import struct
from typing import Any, Final, NamedTuple

from sparklog.remote_log.chunk_cache import ChunkCacheCounters

LENGTH: Final = struct.Struct(">I")


class Call(NamedTuple):
    """A call of a method of ``RemoteLogService``."""

    number: int
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Answer(NamedTuple):
    """The result of a call, or the exception in place of it; and what the process's cache did."""

    number: int
    result: Any
    error: BaseException | None = None
    cache: ChunkCacheCounters = ChunkCacheCounters()


def encode_message(message: Call | Answer) -> bytes:
    payload = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(payload)) + payload


class MessageDecoder:
    """Bytes of a pipe in, messages out.  Large messages are received where they stay."""

    def __init__(self) -> None:
        self._buffer = bytearray(LENGTH.size)
        self._filled = 0
        self._in_payload = False

    def room(self) -> memoryview:
        """Where the next bytes go: some of the present message, never of the next one."""
        return memoryview(self._buffer)[self._filled :]

    def received(self, size: int) -> Any | None:
        """``size`` bytes were written to the start of ``room``.  Returns a message if it is whole.

        Raises whatever ``pickle`` raises for bytes that are no message.
        """
        self._filled += size
        if self._filled < len(self._buffer):
            return None
        whole, self._filled = self._buffer, 0
        self._in_payload = not self._in_payload
        if self._in_payload:
            self._buffer = bytearray(LENGTH.unpack(whole)[0])
            return None
        self._buffer = bytearray(LENGTH.size)
        return pickle.loads(whole)
