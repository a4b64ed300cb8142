"""A run that was too quiet fails, in proportion to its length."""

from collections import Counter

from tests.chaos.chaos_run import BUCKET_MINIMUMS, MINIMUMS, ONLY_IN_LONG_RUNS, Verdict


def seen(**others: int) -> Verdict:
    """A run that just did what is asked for, except for some numbers."""
    return Verdict(counters=Counter({**MINIMUMS, **others}))


def test_what_was_exercised_too_little_is_named() -> None:
    verdict = seen(leader_changes=19)
    assert verdict.neglected(10) == ["leader_changes: 19, at least 20 are asked for"]
    assert verdict.neglected(60) == verdict.neglected(10)
    assert verdict.neglected(9) == []
    assert seen(truncations=0).neglected(10) == ["truncations: 0, at least 10 are asked for"]
    assert seen(truncations=0).neglected(9) == []


def test_a_short_run_needs_its_share_of_everything() -> None:
    assert Verdict().neglected(2) == [
        f"{name}: 0, at least {int(least / 5)} are asked for"
        for name, least in MINIMUMS.items()
        if least >= 5 and name not in ONLY_IN_LONG_RUNS
    ]


def test_a_run_of_any_length_with_a_bucket_takes_it_away() -> None:
    assert Verdict(minimums=BUCKET_MINIMUMS).neglected(0.5) == [
        "segments copied: 0, at least 10 are asked for",
        "buckets away: 0, at least 1 are asked for",
    ]
