"""The messages between a broker and its process for the remote_dir.

Owns: their shapes, and their bytes on the pipe.  Must not know who sends them, or what a call does.

Both ends are this package in the same version, and nobody else has the pipes, so messages are
pickled.  A message is four bytes of length, big endian, and the pickle.
"""

import pickle
import struct
from typing import Any, Final, NamedTuple

LENGTH: Final = struct.Struct(">I")


class Call(NamedTuple):
    """A call of a method of ``RemoteLogService``."""

    number: int
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Answer(NamedTuple):
    """The result of a call, or the exception in place of it."""

    number: int
    result: Any
    error: BaseException | None = None


def encode_message(message: Call | Answer) -> bytes:
    payload = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(payload)) + payload


class MessageDecoder:
    """Bytes of a pipe in, messages out."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Any]:
        """The messages that are complete with these bytes.

        Raises whatever ``pickle`` raises for bytes that are no message.
        """
        self._parts.append(data)
        self._size += len(data)
        messages: list[Any] = []
        while self._size >= LENGTH.size:
            if len(self._parts[0]) < LENGTH.size:
                self._parts = [b"".join(self._parts)]
            end = LENGTH.size + LENGTH.unpack_from(self._parts[0])[0]
            if self._size < end:
                break
            whole = b"".join(self._parts)
            messages.append(pickle.loads(memoryview(whole)[LENGTH.size : end]))
            self._parts = [whole[end:]]
            self._size -= end
        return messages
