"""Where sparklog differs from Spark's Kafka source and sink: on purpose, or not yet as they are.

Owns: both tables, by the names of cases.  A difference that is meant has to show; one of
``NOT_YET`` is a gap, and may close.
"""

from collections.abc import Callable
from dataclasses import dataclass

from spark_outcomes import Failure, Outcome, Rows, Written


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


def written(outcome: Outcome) -> bool:
    return isinstance(outcome, Written)


MEANT: dict[str, Meant] = {
    "a partition that is not there": Meant(
        reason="who asks for a partition that is missing is told, instead of reading less",
        ours=fails("assign names numbers-7"),
    ),
    "at least seven tasks": Meant(
        reason="shares are rounded up: at least as many tasks as asked for, never fewer",
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
}

_OPTION = "the option is not there yet"

NOT_YET: dict[str, str] = {
    "a pattern": _OPTION,
    "a pattern that fits a part of a name": _OPTION,
    "a pattern of Java": _OPTION,
    "a pattern that nothing fits": _OPTION,
    "back to before the start": "nothing is read, and nobody is told",
    "from a time to an earlier one": "nothing is read, and nobody is told",
    "from times": _OPTION,
    "to times": _OPTION,
    "to times that nothing reaches": _OPTION,
    "the same, strategy error": _OPTION,
    "the same, strategy latest": _OPTION,
    "the same for one partition": _OPTION,
    "a time beats times": _OPTION,
    "times beat offsets": _OPTION,
    "an end beats ends": _OPTION,
    "ends by time beat ends": _OPTION,
    "few records for a task": _OPTION,
    "both": _OPTION,
    "the same, and told so": _OPTION,
    "the same, and no matter": _OPTION,
    "everything is lost, no matter": _OPTION,
    "what is committed": _OPTION,
    "what is not committed, too": _OPTION,
    "from the middle of what was aborted": _OPTION,
    "a group": _OPTION,
    "a prefix of groups": _OPTION,
    "settings of the client": "some settings of Java's client are not known",
    "retries": _OPTION,
    "limits of streams": "options of streams are refused in a batch, where Spark's source warns",
}
