"""The bound on responses that clients do not read."""

from dataclasses import dataclass

from sparklog.transport.unsent_responses import (
    PROGRESS_BYTES_MIN,
    QUIET_CHECKS_MAX,
    UnsentResponses,
)

MAX = 1_000_000


@dataclass(eq=False)
class Connection:
    sent_bytes: int = 0


def test_clients_that_take_nothing_are_closed_only_while_the_sum_is_too_large() -> None:
    answers: UnsentResponses[Connection] = UnsentResponses(MAX)
    idle, busy = Connection(), Connection()
    assert answers.update(idle, MAX // 2) is None
    for _ in range(QUIET_CHECKS_MAX + 1):
        assert list(answers.find_overdue()) == []
    answers.update(busy, MAX // 2 + 1)
    assert answers.scarce
    checks = []
    for _ in range(QUIET_CHECKS_MAX + 1):
        busy.sent_bytes += PROGRESS_BYTES_MIN
        checks.append(list(answers.find_overdue()))
    assert checks == [[]] * QUIET_CHECKS_MAX + [[idle]]
    answers.update(idle, 0)
    assert (answers.total_bytes, answers.scarce) == (MAX // 2 + 1, False)
    answers.check_invariants()


def test_beyond_twice_the_sum_the_largest_goes_at_once() -> None:
    answers: UnsentResponses[Connection] = UnsentResponses(MAX)
    small, large = Connection(), Connection()
    answers.update(large, MAX + 1)
    assert answers.update(small, MAX - 1) is None
    assert answers.update(small, MAX) is large
    answers.update(large, 0)
    assert answers.total_bytes == MAX
    answers.check_invariants()
