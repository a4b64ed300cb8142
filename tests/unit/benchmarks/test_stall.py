"""The gap between acknowledgements that is called a stall."""

import pytest

from benchmarks.stall import longest_gap


@pytest.mark.parametrize(
    ("acks", "gap"),
    [
        ([], 10.0),
        ([9.0], 11.0),
        ([9.5, 12.0, 12.5, 19.0], 6.5),
        ([1.0, 9.9, 13.9, 14.0, 15.0, 16.0, 17.0, 18.0, 19.0, 20.0, 30.0], 4.0),
        ([11.0, 14.0, 17.0, 19.5], 3.0),
    ],
)
def test_the_longest_gap_begins_with_the_last_ack_before_the_failure(
    acks: list[float], gap: float
) -> None:
    assert longest_gap(acks, since=10.0, until=20.0) == pytest.approx(gap)
