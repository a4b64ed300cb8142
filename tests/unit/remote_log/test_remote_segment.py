"""Segments in the bucket: their description in a manifest, and the names of their objects."""

import json
from dataclasses import replace
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from sparklog.errors import DecodeError
from sparklog.remote_log import names
from sparklog.remote_log.remote_segment import (
    EpochStart,
    Part,
    PartName,
    RemoteSegment,
    TimeBounds,
)
from sparklog.types import MAX_INT64, MIN_INT64, NO_TIMESTAMP

SEGMENT = RemoteSegment(
    segment_id="a",
    base_offset=10,
    next_offset=20,
    log_size=1000,
    max_timestamp=5,
    leader_epochs=(EpochStart(3, 10), EpochStart(4, 15)),
    parts={PartName.OFFSET_INDEX: Part(0, 80, 1), PartName.STATS: Part(80, 20, 2)},
)


@pytest.mark.parametrize(
    "segment",
    [
        SEGMENT,
        replace(SEGMENT, max_timestamp=-1, gaps=True, parts={}),
        replace(SEGMENT, min_timestamp=0),
        replace(SEGMENT, min_timestamp=5),
    ],
)
def test_a_segment_survives_its_json(segment: RemoteSegment) -> None:
    assert RemoteSegment.from_json(json.loads(json.dumps(segment.to_json()))) == segment


def test_a_segment_of_an_earlier_version_has_no_lowest_timestamp() -> None:
    values = replace(SEGMENT, min_timestamp=4).to_json()
    assert values.pop("min_time") == 4
    assert values == SEGMENT.to_json()
    assert RemoteSegment.from_json(values).min_timestamp == NO_TIMESTAMP


def test_bounds_of_time_rule_a_segment_out() -> None:
    """A segment with timestamps from 3 to 5, against all bounds around them."""
    known, bounds = replace(SEGMENT, min_timestamp=3), range(-9, 9)
    for lowest, highest in product([MIN_INT64, *bounds], [MAX_INT64, *bounds]):
        is_old, is_new = lowest > 5, highest < 3
        times = TimeBounds(lowest, highest)
        assert known.may_hold(times) is not (is_old or is_new)
        assert SEGMENT.may_hold(times) is not is_old


def test_sizes_and_the_last_epoch() -> None:
    assert SEGMENT.size == 1100
    assert SEGMENT.last_epoch == 4


def test_parts_of_later_versions_are_left_out() -> None:
    values = SEGMENT.to_json()
    values["parts"]["bloom"] = [100, 5, 3]
    assert RemoteSegment.from_json(values) == SEGMENT


@pytest.mark.parametrize(
    "change",
    [
        {"id": ""},
        {"id": None},
        {"base": 20},
        {"base": -1},
        {"next": "20"},
        {"size": 1.5},
        {"time": -2},
        {"min_time": -2},
        {"min_time": None},
        {"epochs": []},
        {"gaps": 0},
        {"epochs": [[3, 11]]},
        {"epochs": [[3]]},
        {"parts": {"index": [0, 1]}},
        {"parts": []},
    ],
)
def test_whatever_is_no_segment_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DecodeError, match="describes no segment"):
        RemoteSegment.from_json(SEGMENT.to_json() | change)


def test_names_of_objects() -> None:
    topic = UUID(int=1)
    folder = names.segments_folder(topic, 3)
    assert folder == "00000000-0000-0000-0000-000000000001/3/segments"
    segment = names.segment_id(7, 2, 0x123, bytes(8))
    assert segment == "00000000000000000007-0000000002-000000000123-0000000000000000"
    for path in (names.log_object(folder, segment), names.indexes_object(folder, segment)):
        assert names.copied_at_ms(path.rpartition("/")[2]) == 0x123
    assert names.copied_at_ms("somebody's.log") is None
