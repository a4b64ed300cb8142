"""Where sparklog differs from Spark's Kafka source and sink on purpose, each with its reason.

Owns: the table, by the names of cases.  A difference that does not show fails its test.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.compat.spark_outcomes import Failure, Outcome, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """``ours`` says whether it is what we do instead."""

    reason: str
    ours: Callable[[Outcome], bool]


def fails(word: str) -> Callable[[Outcome], bool]:
    return lambda outcome: isinstance(outcome, Failure) and word in outcome.message


def rows(count: int, *, tasks: int) -> Callable[[Outcome], bool]:
    return lambda found: (
        isinstance(found, Rows) and (found.count, len(found.pieces)) == (count, tasks)
    )


MEANT: dict[str, Meant] = {
    "a partition that is not there": Meant(
        reason="who asks for a partition that is missing is told, instead of reading less",
        ours=fails("assign names numbers-7"),
    ),
    "an assignment of nothing": Meant(
        reason="who assigns no partition has made a mistake, and is told",
        ours=fails("option assign='{}': no partitions"),
    ),
    "from before all time": Meant(
        reason="a time below zero is refused; Spark takes -1 for the latest offset",
        ours=fails("option startingTimestamp='-1': expected milliseconds since 1970"),
    ),
    "to where it is not yet, no matter": Meant(
        reason="offsets that were never there are no loss of data, but a mistake",
        ours=fails("endingOffsets: offset 12 of numbers-0 is out of range"),
    ),
    "at least seven tasks": Meant(
        reason="shares are rounded up: at least as many tasks as asked for, never fewer",
        ours=rows(30, tasks=9),
    ),
    "few records for a task": Meant(
        reason="Spark 4.2 heeds maxRecordsPerPartition in a batch only beside minPartitions",
        ours=rows(30, tasks=9),
    ),
    "without a word about transactions": Meant(
        reason="read_committed is the default: nobody sees what was aborted without asking for it",
        ours=rows(4, tasks=1),
    ),
    "an option that nobody knows": Meant(
        reason="a misspelt option is refused, instead of doing nothing",
        ours=fails("unknown option"),
    ),
    "a setting that no client knows": Meant(
        reason="as with options: a misspelt setting is refused",
        ours=fails("unknown option"),
    ),
    "columns that nobody knows": Meant(
        reason="a column that is not written is told of, instead of being left out",
        ours=fails("unknown column 'colour'"),
    ),
    "without a mode": Meant(
        reason="Spark writes to a source in Python only with mode('append')",
        ours=fails("UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
    ),
}
