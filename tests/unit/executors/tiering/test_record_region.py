"""Where records from the bucket are cut."""

import pytest

from sparklog.executors.tiering.record_region import BytesRegion, whole_batches
from tests.unit.executors.log.log_fixtures import batch

BATCHES = [batch(10, (0, 0)), batch(12, (0,)), batch(15, (0, 0, 0))]
SIZES = [len(each) for each in BATCHES]
DATA = b"".join(BATCHES)


@pytest.mark.parametrize(
    ("offset", "max_bytes", "first", "count", "next_offset"),
    [
        (10, 1, 0, 1, 12),
        (11, SIZES[0], 0, 1, 12),
        (10, SIZES[0] + SIZES[1], 0, 2, 13),
        (10, len(DATA), 0, 3, 18),
        (12, SIZES[1] + SIZES[2] - 1, 1, 1, 13),
        (13, 10_000, 2, 1, 18),  # between two batches
        (17, 0, 2, 1, 18),
    ],
)
def test_whole_batches_from_an_offset_on(
    offset: int, max_bytes: int, first: int, count: int, next_offset: int
) -> None:
    expected = b"".join(BATCHES[first : first + count])
    assert whole_batches(DATA, offset, max_bytes) == (expected, next_offset)


def test_a_region_of_bytes() -> None:
    region = BytesRegion(memoryview(DATA)[:5])
    assert (region.size, region.descriptor(), region.read()) == (5, None, DATA[:5])
    assert region.view() == DATA[:5]
    region.release()
    region.release()
