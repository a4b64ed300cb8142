"""Whole lives of logs, and many crashes."""

from collections import Counter

import pytest

from tests.unit.executors.log.log_crashes import crash_a_cleaning, crash_once
from tests.unit.executors.log.log_life import Life

STEPS = 100
#: Crashes in all, and in one test; crashes of cleanings.
CASES, SHARE = 800, 50
CLEANINGS = 100


@pytest.mark.parametrize("seed", range(30))
def test_nothing_that_was_promised_is_ever_lost_or_torn(seed: int) -> None:
    life = Life(seed, damaging=seed % 2 == 1)
    for _ in range(STEPS):
        life.step()


@pytest.mark.parametrize("start", range(0, CASES, SHARE))
def test_every_crash_is_recovered_from(start: int) -> None:
    counters: Counter[str] = Counter()
    for seed in range(start, start + SHARE):
        counters += crash_once(seed)
    assert counters["crashes"] >= SHARE
    assert counters["crashes that lost records"] > 0
    assert counters["torn logs"] > 0
    assert counters["segments trusted"] > 0
    assert counters["cleanings"] > 0


def test_a_cleaning_is_finished_or_undone_wherever_it_stops() -> None:
    counters: Counter[str] = Counter()
    for seed in range(CLEANINGS):
        counters += crash_a_cleaning(seed)
    assert counters["cleanings"] > 0
    assert counters["cleanings interrupted"] > 0
    assert counters["swaps finished by a start"] > 0
    assert counters["swaps undone by a start"] > 0
    assert counters["starts interrupted"] > 0
