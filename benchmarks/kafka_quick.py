"""A small piece of ``make bench``, for ``make bench-quick``: clients with one broker of each.

Owns: its scale, and the form of the other rows of ``bench-quick``.  Must not know the workloads.
"""

from rich.console import Console

from benchmarks.harness import Row
from benchmarks.kafka_clients import short
from benchmarks.kafka_nodes import peers_missing
from benchmarks.measurement import Measured
from benchmarks.scale import Scale

SCALE = Scale(messages=200_000, latency_seconds=1.0)


def rows(console: Console) -> list[Row]:
    """Return the rows beside Kafka; without Kafka, no rows, and a message on the console."""
    missing = peers_missing()
    if missing is not None:
        console.print(f"not measured beside Kafka: {missing}")
        return []
    return [_row(each) for each in short(console, SCALE)]


def _row(measured: Measured) -> Row:
    """A row without a goal, because so small a load proves little."""
    figure, (ours, kafka) = measured.figure, measured.medians
    return Row(
        what=figure.what,
        unit=figure.unit,
        ours=ours,
        base=kafka,
        asked=None,
        at_most=figure.less_is_better,
        digits=figure.digits,
    )
