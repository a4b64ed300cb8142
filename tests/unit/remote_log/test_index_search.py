"""Searches in the bytes of both indexes, against plain lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.remote_log.index_search import (
    entries_around,
    entry_behind,
    offset_entries,
    time_entries,
    times_around,
)
from sparklog.segment_files.index_entries import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    OffsetPosition,
    TimestampOffset,
)

BASE = 2**40
NUMBERS = st.sets(st.integers(1, 60), max_size=12).map(sorted)


@given(relative=NUMBERS, steps=st.lists(st.integers(1, 9), min_size=12, max_size=12))
def test_offset_entries_are_found(relative: list[int], steps: list[int]) -> None:
    positions = [sum(steps[: slot + 1]) for slot in range(len(relative))]
    data = b"".join(map(OFFSET_ENTRY.pack, relative, positions))
    entries = [OffsetPosition(BASE + r, p) for r, p in zip(relative, positions, strict=True)]
    assert list(offset_entries(data, BASE)) == entries
    for offset in range(BASE, BASE + 62):
        below = [entry for entry in entries if entry.offset <= offset]
        above = [entry for entry in entries if entry.offset > offset]
        before = below[-1] if below else OffsetPosition(BASE, 0)
        assert entries_around(data, BASE, offset) == (before, above[0] if above else None)
    for position in range(120):
        behind = [entry for entry in entries if entry.position > position]
        assert entry_behind(data, BASE, position) == (behind[0] if behind else None)


@given(relative=NUMBERS, times=NUMBERS)
def test_time_entries_are_found(relative: list[int], times: list[int]) -> None:
    pairs = list(zip(times, relative, strict=False))
    data = b"".join(TIME_ENTRY.pack(time, offset) for time, offset in pairs)
    entries = [TimestampOffset(time, BASE + offset) for time, offset in pairs]
    assert list(time_entries(data, BASE)) == entries
    for timestamp in range(-1, 62):
        below = [entry for entry in entries if entry.timestamp <= timestamp]
        above = [entry for entry in entries if entry.timestamp > timestamp]
        before = below[-1] if below else TimestampOffset(-1, BASE)
        assert times_around(data, BASE, timestamp) == (before, above[0] if above else None)


@pytest.mark.parametrize("empty", [b"", bytearray(), memoryview(b"")])
def test_an_empty_index_begins_at_the_start(empty: bytes) -> None:
    assert entries_around(empty, 5, 9) == (OffsetPosition(5, 0), None)
    assert entry_behind(empty, 5, 0) is None
    assert times_around(empty, 5, 9) == (TimestampOffset(-1, 5), None)
