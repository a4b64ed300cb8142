"""Comparison of a run's ratios with the recorded ratios.

Owns: the comparison and its tolerance.  Must not know how a ratio is measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.measurement import Run, all_measured

#: A ratio may be smaller than the recorded ratio by this part: runs of the same code differ as much
#: on a machine that is otherwise idle.
TOLERANCE = 0.3
#: The same for figures whose rounds differ more: tails of latency, and stalls, which depend on the
#: time when a client looks for new leaders.
TOLERANCES = {"p99": 0.6, "p99.9": 0.8, "stall": 0.6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """``found`` is less than ``least``, which is ``recorded`` reduced by the tolerance."""

    key: str
    recorded: float
    least: float
    found: float


def regressions(recorded: Mapping[str, float], found: Mapping[str, float]) -> list[Regression]:
    """Compare the figures that both have, by key.  Ratios are in our favour."""
    return [
        Regression(key=key, recorded=recorded[key], least=least, found=found[key])
        for key in recorded
        if key in found and found[key] < (least := recorded[key] * (1 - tolerance(key)))
    ]


def tolerance(key: str) -> float:
    """Return the tolerance of a figure by the last word of its key."""
    return TOLERANCES.get(key.rpartition("/")[2], TOLERANCE)


def ratios(run: Run) -> dict[str, float]:
    """Return the ratios of all figures with a goal."""
    return {
        each.figure.key: each.ratio for each in all_measured(run) if each.figure.reach is not None
    }


def verdict(recorded: Mapping[str, float], found: Mapping[str, float]) -> tuple[bool, str]:
    """Return whether no ratio is worse, and the message.  A check that compared nothing fails."""
    compared = recorded.keys() & found.keys()
    if not compared:
        return False, "no ratio of this run was recorded before"
    worse = regressions(recorded, found)
    lines = [
        f"worse: {each.key} {each.found:.2f}, recorded {each.recorded:.2f},"
        f" at least {each.least:.2f} is asked"
        for each in worse
    ]
    lines.append(f"{len(compared)} ratios compared with the recorded ones, {len(worse)} are worse")
    return not worse, "\n".join(lines)
