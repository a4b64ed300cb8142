"""A run that was too quiet fails, in proportion to its length."""

from collections import Counter

from tests.chaos.chaos_run import Verdict


def test_what_was_exercised_too_little_is_named() -> None:
    verdict = Verdict(counters=Counter(leader_changes=19, truncations=10, isr_shrinks=5))
    assert verdict.neglected(10) == ["leader_changes: 19, at least 20 are asked for"]
    assert verdict.neglected(60) == verdict.neglected(10)
    assert verdict.neglected(9) == []
    verdict = Verdict(counters=Counter(leader_changes=20, isr_shrinks=5))
    assert verdict.neglected(10) == ["truncations: 0, at least 10 are asked for"]
    assert Verdict().neglected(2) == [
        "leader_changes: 0, at least 4 are asked for",
        "isr_shrinks: 0, at least 1 are asked for",
    ]
