"""Frames come out whole however the bytes come in, and a lie about a length costs nothing."""

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import FrameError
from sparklog.wire.frames import (
    BUSY_BYTES,
    INITIAL_BYTES,
    KEPT_BYTES,
    LENGTH_BYTES,
    PATIENCE,
    TRUSTED_BYTES,
    FrameDecoder,
    frame_length,
)

MAX_FRAME_BYTES = 100 * 2**20


def framed(payload: bytes) -> bytes:
    return frame_length(len(payload)) + payload


def feed(decoder: FrameDecoder, data: bytes, chunk_bytes: int) -> list[bytes]:
    """The frames, copied while they are valid."""
    found = []
    position = 0
    while position < len(data):
        buffer = decoder.get_buffer(-1)
        assert len(buffer) > 0
        chunk = data[position : position + min(chunk_bytes, len(buffer))]
        buffer[: len(chunk)] = chunk
        position += len(chunk)
        found += [bytes(frame) for frame in decoder.buffer_updated(len(chunk))]
    return found


@given(
    payloads=st.lists(st.binary(max_size=400), max_size=12),
    chunk_bytes=st.integers(1, 300),
    initial_bytes=st.integers(LENGTH_BYTES, 64),
)
@settings(max_examples=200, deadline=None)
def test_frames_come_out_whole_and_in_order(
    payloads: list[bytes], chunk_bytes: int, initial_bytes: int
) -> None:
    decoder = FrameDecoder(400, initial_bytes)
    data = b"".join(framed(payload) for payload in payloads)
    assert feed(decoder, data, chunk_bytes) == payloads
    assert decoder.pending_bytes == 0


def test_frames_come_out_byte_by_byte() -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    payloads = [b"", b"a", b"bc" * 1000, b""]
    assert feed(decoder, b"".join(map(framed, payloads)), 1) == payloads


def test_many_frames_come_out_of_one_chunk() -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    payloads = [struct.pack(">i", number) * 100 for number in range(100)]
    assert feed(decoder, b"".join(map(framed, payloads)), INITIAL_BYTES) == payloads


def test_an_unfinished_frame_waits() -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    assert feed(decoder, framed(b"whole") + framed(b"half")[:6], 100) == [b"whole"]
    assert decoder.pending_bytes == 6
    assert feed(decoder, b"lf", 100) == [b"half"]


def test_frames_of_one_receive_are_valid_until_the_next() -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    data = framed(b"one") + framed(b"two") + framed(b"three")[:5]
    buffer = decoder.get_buffer()
    buffer[: len(data)] = data
    frames = decoder.buffer_updated(len(data))
    assert frames == [b"one", b"two"]
    assert not frames[0].readonly


def patterned(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


@pytest.mark.parametrize("size", [INITIAL_BYTES, TRUSTED_BYTES, TRUSTED_BYTES + 90, 9 * 2**20])
def test_the_buffer_grows_for_a_large_frame(size: int) -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    payload = patterned(size)
    assert feed(decoder, framed(payload) + framed(b"next"), 2**16) == [payload, b"next"]


def test_the_buffer_is_kept_while_frames_are_large() -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    payload = patterned(TRUSTED_BYTES + 90)
    for _ in range(3):
        assert feed(decoder, framed(payload), 2**18) == [payload]
        decoder.get_buffer()
        assert decoder.capacity_bytes == len(payload) + LENGTH_BYTES


def test_the_buffer_shrinks_when_frames_are_small_again() -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    feed(decoder, framed(patterned(TRUSTED_BYTES)), 2**18)
    for _ in range(PATIENCE + 3):
        assert feed(decoder, framed(b"small"), 100) == [b"small"]
    assert decoder.capacity_bytes == INITIAL_BYTES


def test_a_peer_that_fills_the_buffer_gets_a_larger_one_while_it_goes_on() -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    payloads = [bytes([number]) * 1000 for number in range(250)]
    data = b"".join(map(framed, payloads))
    assert feed(decoder, data, BUSY_BYTES) == payloads
    assert decoder.capacity_bytes == BUSY_BYTES
    for _ in range(PATIENCE + 3):
        assert feed(decoder, framed(b"small"), 100) == [b"small"]
    assert decoder.capacity_bytes == INITIAL_BYTES


def test_a_huge_buffer_shrinks_at_once() -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    feed(decoder, framed(patterned(KEPT_BYTES + 1)), 2**20)
    decoder.get_buffer()
    assert decoder.capacity_bytes == INITIAL_BYTES


@pytest.mark.parametrize("length", [-1, -(2**31), MAX_FRAME_BYTES + 1, 2**31 - 1])
def test_a_length_out_of_bounds_is_refused_at_once(length: int) -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    with pytest.raises(FrameError, match=str(length)):
        feed(decoder, struct.pack(">i", length), 100)


def test_frames_before_a_bad_length_in_the_same_chunk_are_not_handed_out() -> None:
    """The connection is closed; its peer cannot tell which requests were read."""
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    with pytest.raises(FrameError):
        feed(decoder, framed(b"good") + struct.pack(">i", -5), 100)


def test_the_largest_frame_is_allowed() -> None:
    decoder = FrameDecoder(1000)
    assert feed(decoder, framed(b"x" * 1000), 64) == [b"x" * 1000]
    with pytest.raises(FrameError, match="1001 bytes exceeds the limit of 1000"):
        feed(decoder, framed(b"x" * 1001), 64)


def test_a_lying_length_allocates_little() -> None:
    tracemalloc.start()
    try:
        decoder = FrameDecoder(MAX_FRAME_BYTES)
        assert feed(decoder, struct.pack(">i", MAX_FRAME_BYTES) + b"and no more", 100) == []
        decoder.get_buffer()
        assert tracemalloc.get_traced_memory()[1] < 2 * TRUSTED_BYTES
    finally:
        tracemalloc.stop()


def test_memory_follows_the_bytes_that_arrived() -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    feed(decoder, struct.pack(">i", 64 * 2**20) + bytes(3 * 2**20), 2**18)
    decoder.get_buffer()
    assert decoder.capacity_bytes <= 2 * 2 * 3 * 2**20


@given(data=st.binary(max_size=200), chunk_bytes=st.integers(1, 50))
@settings(max_examples=200, deadline=None)
def test_random_bytes_give_frames_or_a_frame_error(data: bytes, chunk_bytes: int) -> None:
    decoder = FrameDecoder(100, 16)
    try:
        feed(decoder, data, chunk_bytes)
    except FrameError:
        return
    assert decoder.capacity_bytes <= 100 + LENGTH_BYTES
