"""The spans that the statistics of a segment leave for bounds of time hold every such record."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DecodeError
from sparklog.remote_log.remote_segment import PartName, RemoteSegment
from sparklog.remote_log.time_ranges import offsets_within
from sparklog.wire.records.builder import decode_records
from tests.unit.remote_log.remote_fixtures import RichLog, fill, indexes_path, log_path


def filled() -> tuple[list[tuple[RemoteSegment, bytes]], list[tuple[int, int]]]:
    """The segments with their statistics, and the offset and the timestamp of every record."""
    rich = RichLog()
    fill(rich)
    copies = rich.copy_all()
    stats = []
    for copied in copies:
        part = copied.parts[PartName.STATS]
        stats.append((copied, rich.bucket.read(indexes_path(copied), part.offset, part.size)))
    records = [
        (record.offset, record.timestamp)
        for copied in copies
        for record in decode_records(rich.bucket.read(log_path(copied)))
    ]
    return stats, records


SEGMENTS, RECORDS = filled()
BOUND = st.none() | st.integers(-2, 720)


@given(lowest=BOUND, highest=BOUND)
def test_no_record_within_the_bounds_is_left_out(lowest: int | None, highest: int | None) -> None:
    spans = [
        span
        for copied, stats in SEGMENTS
        for span in offsets_within(stats, copied, lowest, highest)
    ]
    assert spans == sorted(spans)
    wanted = {
        offset
        for offset, timestamp in RECORDS
        if (lowest is None or timestamp >= lowest) and (highest is None or timestamp <= highest)
    }
    assert wanted <= {offset for start, end in spans for offset in range(start, end)}
    if lowest is None and highest is None:
        assert spans == [(copied.base_offset, copied.next_offset) for copied, _ in SEGMENTS]


def test_what_is_ruled_out_is_much() -> None:
    assert len(SEGMENTS) > 3
    newest = [offsets_within(stats, copied, 590, None) for copied, stats in SEGMENTS]
    oldest = [offsets_within(stats, copied, None, 110) for copied, stats in SEGMENTS]
    nothing = [offsets_within(stats, copied, 5_000, None) for copied, stats in SEGMENTS]
    assert newest[0] == []
    assert oldest[0] != []
    assert [] in oldest
    assert nothing == [[]] * len(SEGMENTS)


def test_statistics_that_are_not_sound_rule_nothing_out() -> None:
    (copied, stats), (other, _) = SEGMENTS[:2]
    for position in range(len(stats)):
        damaged = bytearray(stats)
        damaged[position] ^= 1
        with pytest.raises(DecodeError, match="segment statistics"):
            offsets_within(bytes(damaged), copied, 0, 1)
    for size in (0, 10, 77, len(stats) - 1):
        with pytest.raises(DecodeError, match="segment statistics"):
            offsets_within(stats[:size], copied, 0, 1)
    for wrong in (other, replace(copied, log_size=copied.log_size + 1)):
        with pytest.raises(DecodeError, match="those of another segment"):
            offsets_within(stats, wrong, 0, 1)
