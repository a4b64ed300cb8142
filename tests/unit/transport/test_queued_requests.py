"""The bound on arriving requests: order, lanes, and the connections that are closed."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.transport.queued_requests import (
    BYTES_PER_CHECK,
    CHECKS_MIN,
    PROGRESS_BYTES_MIN,
    QUIET_CHECKS_MAX,
    SMALL_FRAME_BYTES_MAX,
    Claim,
    QueuedRequests,
)

MIB = 2**20
BYTES_MAX = 256 * MIB
FRAME_BYTES_MAX = 100 * MIB
SMALL, MEDIUM, LARGE = 64 * 1024, 4 * MIB, FRAME_BYTES_MAX


@dataclass(eq=False)
class Sender:
    """A connection of which ``pending_bytes`` of a frame have arrived."""

    pending_bytes: int = 0


Queued = QueuedRequests[Sender]


def queued(bytes_max: int = BYTES_MAX) -> Queued:
    return QueuedRequests(bytes_max, FRAME_BYTES_MAX)


def claims(requests: Queued, size: int, count: int) -> list[Claim[Sender]]:
    return [requests.claim(Sender(), size) for _ in range(count)]


def granted(requests: list[Claim[Sender]]) -> list[bool]:
    return [claim.granted for claim in requests]


def test_claims_are_granted_within_the_share_of_their_lane_and_in_order() -> None:
    requests = queued()
    medium = claims(requests, MEDIUM, 18)
    assert granted(medium) == [True] * 16 + [False] * 2
    assert (requests.waiting, requests.scarce) == (2, True)
    assert list(requests.release(medium[3])) == [medium[16]]
    assert list(requests.release(medium[17])) == []
    assert (requests.waiting, requests.scarce) == (0, False)
    assert requests.held_bytes == 16 * MEDIUM
    requests.check_invariants()


def test_large_frames_do_not_hold_up_smaller_ones() -> None:
    requests = queued()
    assert granted(claims(requests, LARGE, 10)) == [True] + [False] * 9
    assert granted(claims(requests, MEDIUM, 2)) == [True] * 2
    assert granted(claims(requests, SMALL, 2)) == [True] * 2


def test_a_claim_that_would_fit_does_not_overtake_another_of_its_lane() -> None:
    requests = queued()
    assert granted(claims(requests, LARGE, 2)) == [True, False]
    assert granted(claims(requests, MEDIUM + 1, 1)) == [False]


@pytest.mark.parametrize("bytes_max", [0, 1, FRAME_BYTES_MAX])
def test_one_frame_of_any_size_is_always_possible(bytes_max: int) -> None:
    requests = queued(bytes_max)
    for size in (SMALL, MEDIUM, LARGE):
        assert granted(claims(requests, size, 1)) == [True]
    requests.check_invariants()


def test_without_a_bound_everything_is_granted() -> None:
    requests = queued(-1)
    assert granted(claims(requests, LARGE, 100)) == [True] * 100
    requests.hold_requests(BYTES_MAX)
    assert not requests.scarce


def test_small_frames_are_counted_without_a_claim_until_their_share_is_used_up() -> None:
    requests = queued()
    count = BYTES_MAX // 16 // SMALL
    assert all(requests.add_loose(SMALL) for _ in range(count))
    assert not requests.add_loose(SMALL)
    assert not queued().add_loose(SMALL_FRAME_BYTES_MAX + 1)
    assert requests.held_bytes == BYTES_MAX // 16
    requests.check_invariants()


def test_requests_that_wait_for_answers_make_memory_scarce() -> None:
    requests = queued()
    requests.hold_requests(BYTES_MAX // 8)
    assert not requests.scarce
    requests.hold_requests(1)
    assert requests.scarce
    requests.release_requests(1)
    assert not requests.scarce


def checks_until_overdue(requests: Queued, claim: Claim[Sender], bytes_per_check: int) -> int:
    for check in range(1, 1000):
        claim.owner.pending_bytes += bytes_per_check
        if claim.owner in requests.find_overdue():
            return check
    raise AssertionError("never")


def test_nothing_is_expected_of_a_frame_while_nobody_waits() -> None:
    requests = queued()
    claims(requests, LARGE, 1)
    assert [list(requests.find_overdue()) for _ in range(100)] == [[]] * 100


@pytest.mark.parametrize(
    ("bytes_per_check", "checks"),
    [
        (0, QUIET_CHECKS_MAX),
        (PROGRESS_BYTES_MIN - 1, QUIET_CHECKS_MAX),
        (PROGRESS_BYTES_MIN, CHECKS_MIN + LARGE // BYTES_PER_CHECK + 1),
    ],
)
def test_a_frame_that_others_wait_for_must_arrive(bytes_per_check: int, checks: int) -> None:
    requests = queued()
    first, _ = claims(requests, LARGE, 2)
    assert checks_until_overdue(requests, first, bytes_per_check) == checks


def test_a_frame_that_arrives_in_time_is_left_alone() -> None:
    requests = queued()
    first, _ = claims(requests, LARGE, 2)
    for _ in range(CHECKS_MIN + LARGE // BYTES_PER_CHECK):
        first.owner.pending_bytes += BYTES_PER_CHECK
        assert list(requests.find_overdue()) == []


def test_slow_clients_of_large_frames_leave_one_after_the_other_and_all_others_get_their_turn() -> (
    None
):
    """100 clients stop in the middle of a frame; the last one that waits would send its frame."""
    requests = queued()
    waiting = claims(requests, LARGE, 101)
    honest = waiting[-1]
    checks = 0
    while not honest.granted:
        checks += 1
        for owner in requests.find_overdue():
            (claim,) = [claim for claim in waiting if claim.owner is owner]
            waiting.remove(claim)
            requests.release(claim)
        requests.check_invariants()
    assert checks == 100 * QUIET_CHECKS_MAX


@given(
    bytes_max=st.sampled_from([-1, 0, 300_000, BYTES_MAX]),
    steps=st.lists(
        st.tuples(st.sampled_from([5000, SMALL, 70_000, MEDIUM, LARGE]), st.integers(0, 20)),
        max_size=60,
    ),
)
def test_claims_that_end_in_any_order_leave_nothing_behind(
    bytes_max: int, steps: list[tuple[int, int]]
) -> None:
    requests = queued(bytes_max)
    held: list[Claim[Sender]] = []
    for size, end in steps:
        held.append(requests.claim(Sender(), size))
        if end < len(held):
            before = granted(held)
            ended = held.pop(end)
            del before[end]
            new = list(requests.release(ended))
            changed = [c for c, was in zip(held, before, strict=True) if c.granted and not was]
            assert set(map(id, new)) == set(map(id, changed))
        requests.check_invariants()
    while held:
        assert any(claim.granted for claim in held)  # at least one connection can always go on
        requests.release(next(claim for claim in held if claim.granted))
        held = [claim for claim in held if claim in _open(requests)]
        requests.check_invariants()
    assert (requests.held_bytes, requests.waiting) == (0, 0)


def _open(requests: Queued) -> set[Claim[Sender]]:
    lanes = requests._all_lanes()
    return {claim for lane in lanes for claim in (*lane.granted, *lane.waiting)}
