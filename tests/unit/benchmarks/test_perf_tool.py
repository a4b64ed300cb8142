"""What Kafka's producer perf tool prints."""

import pytest

from benchmarks.perf_tool import total

TAIL = "2.05 ms avg latency, 33.00 ms max latency"
PRINTED = f"""\
249 records sent, 49.8 records/sec (0.00 MB/sec), {TAIL}.
500000 records sent, 412881.9 records/sec (39.38 MB/sec), {TAIL}, 1 ms 50th, 3 ms 95th, 5 ms 99th, 7 ms 99.9th.
"""  # noqa: E501


def test_its_last_line_tells_the_whole() -> None:
    assert total(PRINTED) == (500_000, 412_881.9)


def test_a_run_that_told_nothing_is_no_run() -> None:
    with pytest.raises(AssertionError):
        total("")
