"""The measurements of both sides, round by round, and the file that keeps them.

Owns: the values, the ratio in our favour, and their form in JSON.  Must not know how a value is
measured or shown.  Needs only the standard library, because plots may be made in an environment
with nothing but matplotlib.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

#: Significant digits of a figure that the file keeps.
_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A quantity that is measured on both sides.

    ``key`` is its permanent name, by which ratios of two runs are compared and plots find their
    figures.  ``reach`` and ``aim`` are ratios in our favour; None for a figure without a goal.
    ``digits`` is the precision of shown values.
    """

    key: str
    what: str
    unit: str
    less_is_better: bool = False
    reach: float | None = None
    aim: float | None = None
    digits: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A figure with the value of each round of each side."""

    figure: Figure
    ours: tuple[float, ...]
    kafka: tuple[float, ...]

    @property
    def medians(self) -> tuple[float, float]:
        return median(self.ours), median(self.kafka)

    @property
    def ratio(self) -> float:
        """The ratio in our favour: above 1, ours is better."""
        ours, kafka = self.medians
        if self.figure.less_is_better:
            ours, kafka = kafka, ours
        return ours / kafka if kafka else float("inf")

    @property
    def met(self) -> bool | None:
        """Whether the ratio reaches its goal; None without a goal."""
        return None if self.figure.reach is None else self.ratio >= self.figure.reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Figures that were measured together, with the scale, the command and the duration."""

    machine: str
    command: str
    scale: str
    seconds: float
    measured: tuple[Measured, ...]


#: The parts of a run by name.
Run = dict[str, Part]


def take_turns(
    figures: Sequence[Figure],
    ours: Callable[[], Sequence[float]],
    kafka: Callable[[], Sequence[float]],
    rounds: int,
    *,
    warm: bool = True,
) -> list[Measured]:
    """Run both sides in turns.  A run of a side returns a value for each figure.

    ``warm``: an additional run of each side comes first.  Dirty pages that a run leaves are written
    before the next run begins, so that no side waits for the other side's work.
    """

    def run_after_sync(run: Callable[[], Sequence[float]]) -> Sequence[float]:
        os.sync()
        return run()

    if warm:
        run_after_sync(ours)
        run_after_sync(kafka)
    pairs = [(run_after_sync(ours), run_after_sync(kafka)) for _ in range(rounds)]
    return [
        Measured(
            figure=figure,
            ours=tuple(pair[0][place] for pair in pairs),
            kafka=tuple(pair[1][place] for pair in pairs),
        )
        for place, figure in enumerate(figures)
    ]


def all_measured(run: Run) -> list[Measured]:
    return [each for part in run.values() for each in part.measured]


def save(run: Run, path: Path) -> None:
    """Save a run as JSON that a person can read and a diff can show."""
    path.write_text(json.dumps({name: _plain(part) for name, part in run.items()}, indent=1) + "\n")


def load(path: Path) -> Run:
    """Load a run; without the file, an empty run."""
    if not path.exists():
        return {}
    return {name: _part(plain) for name, plain in json.loads(path.read_text()).items()}


def _plain(part: Part) -> dict[str, Any]:
    measured = [
        {
            **asdict(each.figure),
            "ours": [_short(value) for value in each.ours],
            "kafka": [_short(value) for value in each.kafka],
            "ratio": _short(each.ratio) if isfinite(each.ratio) else None,
        }
        for each in part.measured
    ]
    return {
        "machine": part.machine,
        "command": part.command,
        "scale": part.scale,
        "seconds": round(part.seconds),
        "measured": measured,
    }


def _part(plain: dict[str, Any]) -> Part:
    return Part(**{**plain, "measured": tuple(map(_measured, plain["measured"]))})


def _measured(plain: dict[str, Any]) -> Measured:
    fields = dict(plain)
    del fields["ratio"]  # for readers; it follows from the other fields
    ours, kafka = tuple(fields.pop("ours")), tuple(fields.pop("kafka"))
    return Measured(figure=Figure(**fields), ours=ours, kafka=kafka)


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
