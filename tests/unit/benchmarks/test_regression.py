"""When a ratio counts as worse than the recorded one."""

import pytest

from benchmarks.measurement import Figure, Measured, Part
from benchmarks.regression import TOLERANCE, Regression, ratios, regressions, verdict


@pytest.mark.parametrize(
    ("found", "worse"),
    [
        ({"produce": 2.0}, []),
        ({"produce": 1.41}, []),
        ({"produce": 9.0}, []),
        ({"produce": 1.39}, [("produce", 1.39)]),
        ({"failover/stall": 40.5}, []),
        ({"failover/stall": 39.5}, [("failover/stall", 39.5)]),
        ({"one/latency/p99": 0.41, "new": 0.1}, []),
        ({"produce": 1.0, "one/latency/p99": 0.3}, [("produce", 1.0), ("one/latency/p99", 0.3)]),
    ],
)
def test_a_ratio_may_be_smaller_by_its_tolerance(
    found: dict[str, float], worse: list[tuple[str, float]]
) -> None:
    recorded = {"produce": 2.0, "failover/stall": 100.0, "one/latency/p99": 1.0, "unmeasured": 3.0}
    assert [(each.key, each.found) for each in regressions(recorded, found)] == worse


def test_a_regression_says_what_would_have_done() -> None:
    [found] = regressions({"produce": 2.0}, {"produce": 1.0})
    least = 2.0 * (1 - TOLERANCE)
    assert found == Regression(key="produce", recorded=2.0, least=least, found=1.0)


def test_the_verdict_names_what_is_worse() -> None:
    recorded = {"produce": 2.0, "consume": 1.0}
    assert verdict(recorded, {"produce": 2.0, "consume": 0.9}) == (
        True,
        "2 ratios compared with the recorded ones, 0 are worse",
    )
    assert verdict(recorded, {"produce": 1.0}) == (
        False,
        "worse: produce 1.00, recorded 2.00, at least 1.40 is asked\n"
        "1 ratios compared with the recorded ones, 1 are worse",
    )


def test_a_check_that_compares_nothing_fails() -> None:
    assert verdict({}, {"produce": 2.0}) == (False, "no ratio of this run was recorded before")


def test_only_figures_of_which_something_is_asked_are_compared() -> None:
    asked = Figure(key="consume", what="consume", unit="MB/s", reach=1.0)
    beside = Figure(key="consume/cpu", what="CPU", unit="s/GB", less_is_better=True)
    run = {
        "one-broker": Part(
            machine="",
            command="",
            scale="",
            seconds=0,
            measured=tuple(
                Measured(figure=each, ours=(3.0, 2.0, 1.0), kafka=(1.0,))
                for each in (asked, beside)
            ),
        )
    }
    assert ratios(run) == {"consume": 2.0}
