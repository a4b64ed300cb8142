"""Frames are whole however their bytes arrive, and a wrong length costs no memory."""

import mmap
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import FrameError
from sparklog.wire.framing.frame_length import LENGTH_BYTES, frame_length
from sparklog.wire.framing.frames import CARRIED_BYTES_MAX, SMALL_BYTES_MAX, FrameDecoder
from sparklog.wire.framing.receive_memory import (
    SCARCE_BYTES,
    SHARED_BYTES,
    SPARE_BYTES_MAX,
    SPARES_BYTES_MAX,
    ReceiveMemory,
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


SIZES = st.integers(0, 60) | st.sampled_from([
    *(SMALL_BYTES_MAX + extra for extra in range(-5, 3)),
    *(CARRIED_BYTES_MAX + extra for extra in range(-5, 3)),
    SHARED_BYTES - 4, SHARED_BYTES, SHARED_BYTES + 1, 2 * SHARED_BYTES,
])  # fmt: skip


@given(
    streams=st.lists(st.lists(SIZES, max_size=6), min_size=1, max_size=3),
    chunks=st.lists(st.sampled_from([1, 3, 50, 1000, 70_000, SHARED_BYTES]), min_size=1),
    scarce=st.lists(st.booleans(), min_size=1),
)
@settings(max_examples=150, deadline=None)
def test_connections_that_share_memory_get_their_own_frames_whole_and_in_order(
    streams: list[list[int]], chunks: list[int], scarce: list[bool]
) -> None:
    """Each receive overwrites the bytes of other connections in the shared memory."""
    memory = ReceiveMemory()
    expected = [[bytes([16 * c + n + 1]) * size for n, size in enumerate(sizes)]
                for c, sizes in enumerate(streams)]  # fmt: skip
    left = [memoryview(b"".join(map(framed, payloads))) for payloads in expected]
    decoders = [FrameDecoder(MAX_FRAME_BYTES, memory) for _ in streams]
    found: list[list[bytes]] = [[] for _ in streams]
    turn = 0
    while any(left):
        index = turn % len(streams)
        memory.scarce = scarce[turn % len(scarce)]
        chunk_bytes = max(chunks[turn % len(chunks)], len(left[index]) // 2000)
        turn += 1
        if not left[index]:
            continue
        decoders[index].get_buffer(-1)  # a receive without bytes
        buffer = decoders[index].get_buffer(-1)
        assert len(buffer) > 0
        chunk = left[index][: min(chunk_bytes, len(buffer))]
        buffer[: len(chunk)] = chunk
        left[index] = left[index][len(chunk) :]
        found[index] += [bytes(frame) for frame in decoders[index].buffer_updated(len(chunk))]
    assert found == expected
    assert [decoder.pending_bytes for decoder in decoders] == [0] * len(streams)
    assert [decoder.unfinished_bytes for decoder in decoders] == [0] * len(streams)
    for decoder in decoders:
        decoder.frames_done()
    assert [decoder.capacity_bytes for decoder in decoders] == [0] * len(streams)


def test_frames_come_out_byte_by_byte() -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    payloads = [b"", b"a", b"bc" * 1000, b""]
    assert feed(decoder, b"".join(map(framed, payloads)), 1) == payloads


def test_many_frames_come_out_of_one_chunk() -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    payloads = [struct.pack(">i", number) * 100 for number in range(100)]
    assert feed(decoder, b"".join(map(framed, payloads)), SHARED_BYTES) == payloads


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


@pytest.mark.parametrize(
    "size", [SMALL_BYTES_MAX, CARRIED_BYTES_MAX, SHARED_BYTES, SHARED_BYTES + 90, 9 * 2**20]
)
def test_a_frame_of_any_size_is_received(size: int) -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    payload = patterned(size)
    assert feed(decoder, framed(payload) + framed(b"next"), 2**16) == [payload, b"next"]


def test_a_connection_between_frames_holds_no_memory() -> None:
    memory = ReceiveMemory()
    decoder = FrameDecoder(MAX_FRAME_BYTES, memory)
    for size in (10, SMALL_BYTES_MAX + 1, CARRIED_BYTES_MAX + 1, SPARE_BYTES_MAX + 1):
        feed(decoder, framed(patterned(size)), 2**16)
        decoder.frames_done()
        assert (decoder.capacity_bytes, decoder.unfinished_bytes) == (0, 0)
    assert memory.spares_bytes <= SPARES_BYTES_MAX


def test_an_unfinished_frame_holds_what_has_arrived() -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    feed(decoder, framed(patterned(CARRIED_BYTES_MAX - 4))[:1000], 1000)
    assert (decoder.capacity_bytes, decoder.unfinished_bytes) == (1000, CARRIED_BYTES_MAX)
    decoder.close()
    assert (decoder.capacity_bytes, decoder.unfinished_bytes) == (0, 0)


def test_the_buffer_of_a_large_frame_serves_the_next_one_of_any_connection() -> None:
    memory = ReceiveMemory()
    payload = framed(patterned(SHARED_BYTES + 90))
    kept = []
    for _ in range(3):
        feed(FrameDecoder(MAX_FRAME_BYTES, memory), payload, 2**18)
        decoder = FrameDecoder(MAX_FRAME_BYTES, memory)
        feed(decoder, payload, 2**18)
        decoder.close()
        kept.append(memory.spares_bytes)
    assert kept[1:] == kept[:-1]


def test_a_connection_of_large_frames_receives_the_next_one_in_its_place() -> None:
    memory = ReceiveMemory()
    decoder = FrameDecoder(MAX_FRAME_BYTES, memory)
    payload = patterned(SHARED_BYTES + 90)
    feed(decoder, framed(payload), 2**18)
    decoder.frames_done()
    assert len(decoder.get_buffer()) == len(payload) + LENGTH_BYTES
    assert feed(decoder, framed(payload), 2**18) == [payload]
    decoder.frames_done()
    memory.scarce = True
    assert len(decoder.get_buffer()) == SCARCE_BYTES


def test_not_much_memory_is_kept_for_later_frames() -> None:
    memory = ReceiveMemory()
    buffers = [memory.take(SPARE_BYTES_MAX - 1) for _ in range(4)]
    for buffer in [*buffers, memory.take(SPARE_BYTES_MAX + 1)]:
        memory.give_back(buffer)
    assert memory.spares_bytes == SPARES_BYTES_MAX
    memory.drop_spares()
    assert memory.spares_bytes == 0
    assert memory.take_spare(1) is None


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


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc of Linux")
def test_memory_follows_the_bytes_that_arrived() -> None:
    """200 connections declare 100 MB each and send 20 KiB of them."""
    memory = ReceiveMemory()
    decoders = [FrameDecoder(MAX_FRAME_BYTES, memory) for _ in range(200)]
    before = resident_bytes()
    start = struct.pack(">i", MAX_FRAME_BYTES) + bytes(20 * 1024 - 4)
    for decoder in decoders:
        assert feed(decoder, start, 4096) == []
    assert sum(decoder.capacity_bytes for decoder in decoders) >= 200 * MAX_FRAME_BYTES
    assert resident_bytes() - before < 200 * 2 * 20 * 1024
    for decoder in decoders:
        decoder.close()
    assert sum(decoder.capacity_bytes for decoder in decoders) == 0


@given(data=st.binary(max_size=200), chunk_bytes=st.integers(1, 50))
@settings(max_examples=200, deadline=None)
def test_random_bytes_give_frames_or_a_frame_error(data: bytes, chunk_bytes: int) -> None:
    decoder = FrameDecoder(100)
    try:
        feed(decoder, data, chunk_bytes)
    except FrameError:
        return
    assert decoder.capacity_bytes <= 100 + LENGTH_BYTES
