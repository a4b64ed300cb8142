"""The bound on answers that clients do not take."""

from dataclasses import dataclass

from sparklog.transport.unsent_answers import (
    PROGRESS_BYTES_MIN,
    QUIET_LOOKS_MAX,
    UnsentAnswers,
)

MAX = 1_000_000


@dataclass(eq=False)
class Taker:
    taken_bytes: int = 0


def test_clients_that_take_nothing_are_closed_only_while_the_sum_is_too_large() -> None:
    answers: UnsentAnswers[Taker] = UnsentAnswers(MAX)
    idle, busy = Taker(), Taker()
    assert answers.update(idle, MAX // 2) is None
    for _ in range(QUIET_LOOKS_MAX + 1):
        assert list(answers.look()) == []
    answers.update(busy, MAX // 2 + 1)
    assert answers.scarce
    looks = []
    for _ in range(QUIET_LOOKS_MAX + 1):
        busy.taken_bytes += PROGRESS_BYTES_MIN
        looks.append(list(answers.look()))
    assert looks == [[]] * QUIET_LOOKS_MAX + [[idle]]
    answers.update(idle, 0)
    assert (answers.total_bytes, answers.scarce) == (MAX // 2 + 1, False)
    answers.check_invariants()


def test_beyond_twice_the_sum_the_largest_goes_at_once() -> None:
    answers: UnsentAnswers[Taker] = UnsentAnswers(MAX)
    small, large = Taker(), Taker()
    answers.update(large, MAX + 1)
    assert answers.update(small, MAX - 1) is None
    assert answers.update(small, MAX) is large
    answers.update(large, 0)
    assert answers.total_bytes == MAX
    answers.check_invariants()
