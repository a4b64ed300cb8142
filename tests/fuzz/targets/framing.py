"""Targets: cutting a stream of bytes into frames."""

import struct
from collections.abc import Callable, Iterator

from sparklog.errors import FrameError
from sparklog.wire.framing.frame_length import LENGTH_BYTES
from sparklog.wire.framing.frames import FrameDecoder
from sparklog.wire.framing.owned_frames import OwnedFrameDecoder
from sparklog.wire.framing.receive_memory import ReceiveMemory
from tests.fuzz.target import Target

FRAME_BYTES_MAX = 64
MEMORY = ReceiveMemory()


def _cut_plainly(stream: bytes) -> tuple[list[bytes], bool]:
    """The frames, and whether an impossible length ends the connection."""
    frames: list[bytes] = []
    position = 0
    while len(stream) - position >= 4:
        (length,) = struct.unpack_from(">i", stream, position)
        if not 0 <= length <= FRAME_BYTES_MAX:
            return frames, True
        if len(stream) - position - 4 < length:
            break
        frames.append(stream[position + 4 : position + 4 + length])
        position += 4 + length
    return frames, False


def _received(make: Callable[[], FrameDecoder | OwnedFrameDecoder]) -> Callable[[bytes], None]:
    """The stream behind the first byte, in pieces of as many bytes as that byte says."""

    def decode(data: bytes) -> None:
        step, stream = max(1, data[0]) if data else 1, data[1:]
        expected, ends = _cut_plainly(stream)
        decoder = make()
        found: list[bytes] = []
        position = 0
        while position < len(stream):
            room = decoder.get_buffer()
            assert len(room) > 0
            size = min(step, len(room), len(stream) - position)
            room[:size] = stream[position : position + size]
            position += size
            try:
                found += map(bytes, decoder.buffer_updated(size))
            except FrameError:
                assert ends
                assert found == expected[: len(found)]
                raise
            if isinstance(decoder, FrameDecoder):
                assert decoder.capacity_bytes < FRAME_BYTES_MAX + LENGTH_BYTES
        assert found == expected
        assert not ends

    return decode


def _seeds() -> Iterator[bytes]:
    frames = [b"", b"a", b"x" * 40, b"y" * FRAME_BYTES_MAX]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    for step in (1, 7, 255):
        yield bytes([step]) + stream
        yield bytes([step]) + stream + struct.pack(">i", FRAME_BYTES_MAX + 1) + b"z"
        yield bytes([step]) + stream + struct.pack(">i", -1)


TARGETS = [
    Target(
        name=name,
        decode=_received(make),
        seeds=_seeds,
        errors=(FrameError,),
        input_bytes_max=256,
    )
    for name, make in (
        ("frames", lambda: FrameDecoder(FRAME_BYTES_MAX, MEMORY)),
        ("owned-frames", lambda: OwnedFrameDecoder(FRAME_BYTES_MAX)),
    )
]
