"""Frames of a client, each in memory of its own."""

import mmap
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import FrameError
from sparklog.wire.framing.owned_frames import SHARED_BYTES, SPARE_BYTES_MAX, OwnedFrameDecoder

SIZES = st.integers(0, 50) | st.integers(SHARED_BYTES - 10, SHARED_BYTES + 10) | st.just(200_000)


def feed(decoder: OwnedFrameDecoder, data: bytes, step: int) -> list[memoryview]:
    """Receive ``step`` bytes at most at a time."""
    frames: list[memoryview] = []
    while data:
        buffer = decoder.get_buffer()
        count = min(len(buffer), step, len(data))
        buffer[:count] = data[:count]
        frames += decoder.buffer_updated(count)
        data = data[count:]
    return frames


@given(st.lists(SIZES, max_size=8), st.sampled_from([997, 8192, SHARED_BYTES, 10**6]))
def test_frames_come_whole_however_they_arrive_and_stay_as_they_are(
    sizes: list[int], step: int
) -> None:
    expected = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in expected)
    decoder = OwnedFrameDecoder(1_000_000)
    frames = feed(decoder, stream, step)
    feed(decoder, struct.pack(">i", 60_000) + bytes(60_000), step)  # overwrites the shared buffer
    assert [bytes(frame) for frame in frames] == expected


def test_frames_come_whole_byte_by_byte() -> None:
    stream = struct.pack(">i", 3) + b"abc" + struct.pack(">i", 0) + struct.pack(">i", 1) + b"d"
    frames = feed(OwnedFrameDecoder(10), stream, 1)
    assert [bytes(frame) for frame in frames] == [b"abc", b"", b"d"]


@pytest.mark.parametrize("length", [-1, 101, 2**31 - 1])
def test_lengths_that_cannot_be_are_refused_before_anything_is_allocated(length: int) -> None:
    with pytest.raises(FrameError):
        feed(OwnedFrameDecoder(100), struct.pack(">i", length), 4)


def test_memory_that_was_given_back_is_used_again() -> None:
    decoder = OwnedFrameDecoder(10_000_000)
    small, large, larger = 100_000, 200_000, 300_000

    def receive(size: int, content: bytes) -> memoryview:
        (frame,) = feed(decoder, struct.pack(">i", size) + content * size, 70_000)
        assert frame == content * size
        return frame

    first, second = receive(large, b"a"), receive(large, b"b")
    assert first == b"a" * large
    decoder.give_back(first)
    decoder.give_back(second)
    third = receive(small, b"c")
    assert third.obj is first.obj
    assert receive(small, b"d").obj is not first.obj
    decoder.give_back(third)
    assert receive(larger, b"e").obj is not first.obj
    assert second == b"b" * large


def test_not_much_memory_is_kept() -> None:
    decoder = OwnedFrameDecoder(10_000_000)
    for size in (10, SPARE_BYTES_MAX + 1):
        (frame,) = feed(decoder, struct.pack(">i", size) + bytes(size), 1_000_000)
        decoder.give_back(frame)
    (frame,) = feed(decoder, struct.pack(">i", 100_000) + bytes(100_000), 1_000_000)
    assert len(frame.obj) == 100_000


def test_a_length_that_was_not_proved_costs_what_has_arrived() -> None:
    tracemalloc.start()
    try:
        decoder = OwnedFrameDecoder(100_000_000)
        feed(decoder, struct.pack(">i", 100_000_000) + bytes(100_000), 70_000)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    decoder.close()
    assert decoder._large is None


def test_frames_of_a_size_that_has_arrived_before_use_memory_that_can_be_used_again() -> None:
    decoder = OwnedFrameDecoder(100_000_000)
    size = SPARE_BYTES_MAX + 1
    kinds = []
    for _ in range(2):
        (frame,) = feed(decoder, struct.pack(">i", size) + bytes(size), 1_000_000)
        kinds.append(type(frame.obj))
    assert kinds == [mmap.mmap, bytearray]
