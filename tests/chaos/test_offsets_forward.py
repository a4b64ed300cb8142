"""Committed offsets that go back are found, and what may go back is not."""

import pytest

from tests.chaos import offsets_forward
from tests.chaos.offsets_forward import LATE_MS
from tests.simulation.events import Event
from tests.simulation.final_state import FinalState
from tests.simulation.partition_story import NAME
from tests.simulation.test_group_checkers import history, lost, read, sent, taken


def check(*events: Event, waited_ms: int = 0) -> list[str]:
    """What is found if so many milliseconds go by before the last event."""
    story = history(*events)
    story.times_ms[-1] = waited_ms
    return offsets_forward.check(story, FinalState())


def back(before: int, told: int | None) -> list[str]:
    return [
        f"group g had committed offset {before} of {NAME}, later a reader was told {told} by "
        "broker 1"
    ]


def test_a_reader_is_never_told_less_than_a_reader_before() -> None:
    assert check(read(5, asked=1), read(5, asked=2), read(7, asked=3)) == []
    assert check(read(7, asked=1), read(5, asked=2)) == back(7, 5)
    assert check(read(7, asked=1), read(None, asked=2)) == back(7, None)
    assert check(read(None, asked=1), read(7, asked=2), read(5, asked=3)) == back(7, 5)


def test_a_reader_is_never_told_less_than_was_acknowledged() -> None:
    assert check(*taken(1, 7), read(7, asked=5)) == []
    assert check(*taken(1, 7), read(5, asked=5)) == back(7, 5)
    assert check(*taken(1, 5), *taken(2, 7), *taken(3, 6), read(6, asked=9)) == back(7, 6)


def test_an_attempt_without_an_answer_may_be_taken_after_the_next_one() -> None:
    both = (sent(1, 5), *taken(2, 7))
    assert check(*both, read(5, asked=5), waited_ms=LATE_MS) == []
    assert check(*both, read(5, asked=5), waited_ms=LATE_MS + 1) == back(7, 5)
    assert check(*both, read(4, asked=5)) == back(7, 4)
    assert check(*both, read(None, asked=5)) == back(7, None)
    assert check(*both, *taken(3, 6), read(6, asked=7)) == []  # the group has gone on from 5
    assert check(*taken(2, 7), read(5, asked=5), sent(1, 5)) == back(7, 5)


@pytest.mark.parametrize("asked", [0, 1, 2])
def test_an_answer_may_be_older_than_what_came_after_its_question(asked: int) -> None:
    assert check(*taken(1, 7), read(5, asked=asked)) == []


def test_a_broker_that_was_replaced_may_tell_what_it_knows() -> None:
    assert check(read(7, asked=1), read(5, asked=2, node=2)) == []


def test_commits_go_with_all_disks_that_had_them() -> None:
    assert check(*taken(1, 7), *lost(), read(None, asked=6, node=2)) == []
