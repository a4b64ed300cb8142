"""Bit rot on simulated disks: what is damaged comes back, and every deliberate bug is caught."""

from collections import Counter

import pytest

from tests.simulation.bit_rot import run_rot
from tests.simulation.rot_bugs import ROT_BUGS

SEEDS = range(1, 13)
BUG_SEEDS = range(1, 9)


@pytest.mark.timeout(600)
def test_damage_on_fewer_than_all_replicas_is_repaired_and_nothing_is_lost() -> None:
    counters: Counter[str] = Counter()
    found = {}
    for seed in SEEDS:
        verdict = run_rot(seed)
        counters.update(verdict.counters)
        if verdict.found:
            found[seed] = verdict.found
    assert found == {}
    exercised = ("acked_writes", "reads", "crashes", "batches_rotted", "rotted_twice")
    exercised = (*exercised, "ranges_found", "ranges_repaired", "damaged_reads")
    assert [name for name in exercised if not counters[name]] == [], counters


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", ROT_BUGS)
def test_every_deliberate_bug_of_repairs_is_caught(bug: str) -> None:
    for seed in BUG_SEEDS:
        found = [text for text in run_rot(seed, bug=bug).found if not text.startswith("the run")]
        if found:
            return
    pytest.fail(f"{bug} is not caught by {len(BUG_SEEDS)} seeds")


def test_a_run_of_rot_depends_on_its_seed_alone() -> None:
    first, second = (run_rot(2) for _ in range(2))
    assert first == second
