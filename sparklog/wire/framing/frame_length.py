"""The length in front of a frame, and the error for an invalid length.

Owns: the four length bytes of Kafka's framing, and the texts of the errors.  Must not know
buffers, sockets or what a frame holds.

The decoders compare lengths themselves (``0 <= length <= max_frame_bytes``): a call per frame would
cost more than the comparison.
"""

from struct import Struct
from typing import Final

from sparklog.errors import FrameError

LENGTH_BYTES: Final = 4
_LENGTH: Final = Struct(">i")
#: ``(buffer, offset) -> (length,)``
unpack_length: Final = _LENGTH.unpack_from


def frame_length(size: int) -> bytes:
    """The length bytes in front of a frame of ``size`` bytes."""
    return _LENGTH.pack(size)


def invalid_length(length: int, max_frame_bytes: int) -> FrameError:
    """The error for a declared length that is negative or exceeds the limit, both in bytes."""
    if length < 0:
        return FrameError(f"a frame cannot have {length} bytes")
    return FrameError(f"a frame of {length} bytes exceeds the limit of {max_frame_bytes}")
