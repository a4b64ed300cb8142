"""Measurements in turns: two ways to do the same, and the ratio of their medians.

Owns: repetition, medians, the table.  Must not know what is measured.
"""

import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

import psutil
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the result: medians ``ours`` and ``base`` in ``unit``, and the goal ``asked``.

    ``base`` is None for an absolute figure.  ``asked`` is None for a figure without a goal.
    ``at_most``: less is better.  ``digits`` is the precision of absolute figures.
    """

    what: str
    unit: str
    ours: float
    base: float | None
    asked: float | None
    at_most: bool = False
    digits: int = 1

    @property
    def figure(self) -> float:
        return self.ours if self.base is None else self.ours / self.base

    @property
    def met(self) -> bool:
        if self.asked is None:
            return True
        return self.figure <= self.asked if self.at_most else self.figure >= self.asked


def in_turns(
    ours: Callable[[], float], base: Callable[[], float], rounds: int
) -> tuple[float, float]:
    """Run each side ``rounds`` times in turns, after one warm-up of both; return the medians."""
    ours()
    base()
    pairs = [(ours(), base()) for _ in range(rounds)]
    return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)


def report(rows: Sequence[Row], console: Console) -> None:
    """Print a table for people and, below it, the same table as Markdown for RESULTS.md."""
    table = Table(title="sparklog, ratios in one run")
    for heading in ("what", "ours", "base", "figure", "asked", ""):
        table.add_column(heading)
    lines = [f"| {' | '.join(cells(row))} |" for row in rows]
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)
    console.print(
        "\n".join(
            ["| what | ours | base | figure | asked | met |", "|---|---|---|---|---|---|", *lines]
        ),
        soft_wrap=True,
    )
    console.print(describe_machine(), highlight=False)


def cells(row: Row) -> list[str]:
    ours = f"{row.ours:,.{row.digits}f} {row.unit}"
    base = "" if row.base is None else f"{row.base:,.{row.digits}f} {row.unit}"
    figure = ours if row.base is None else f"{row.figure:.2f}"
    if row.asked is None:
        return [row.what, ours, base, figure, "", ""]
    asked = f"{'at most' if row.at_most else 'at least'} {row.asked:g}"
    return [row.what, ours, base, figure, asked, "yes" if row.met else "no"]


def describe_machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "numpy"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = psutil.virtual_memory().total / 1e9
    return (
        f"{cores} cores{_processor()}, {memory:.0f} GB, Python {platform.python_version()},"
        f" {packages}"
    )


def _processor() -> str:
    """The processor's model, if the kernel tells it."""
    with suppress(OSError), Path("/proc/cpuinfo").open() as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return f" of {value.strip()}"
    return ""
