"""Work with a quota goes at its rate, not faster and not much slower."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog.byte_quota import BURST_MS, ByteQuota
from sparklog.types import MAX_INT64


def test_what_is_overdrawn_is_waited_for() -> None:
    quota = ByteQuota(1000, now_ms=0)
    assert not quota.is_exceeded(0)
    quota.record(5000, 0)
    assert (quota.is_exceeded(3999), quota.wait_ms(3999)) == (True, 2)
    assert (quota.is_exceeded(4001), quota.wait_ms(4001)) == (False, 0)


def test_only_a_second_is_saved_up() -> None:
    quota = ByteQuota(1000, now_ms=0)
    quota.record(1000, 60_000)
    assert quota.is_exceeded(60_000)


def test_a_rate_of_nothing_stops_until_it_is_changed() -> None:
    quota = ByteQuota(0, now_ms=0)
    assert (quota.is_exceeded(10**9), quota.wait_ms(10**9)) == (True, None)
    quota.set_rate(10, 10**9)
    assert quota.wait_ms(10**9) == 1
    assert not quota.is_exceeded(10**9 + 1)


def test_a_lower_rate_takes_what_was_saved_and_a_higher_one_pays_sooner() -> None:
    quota = ByteQuota(10_000, now_ms=0)
    quota.set_rate(10, 0)
    quota.record(1010, 0)
    assert quota.wait_ms(0) == 100_001
    quota.set_rate(1000, 0)
    assert quota.wait_ms(0) == 1001


def test_without_a_limit_nothing_is_ever_spent() -> None:
    quota = ByteQuota(MAX_INT64, now_ms=0)
    quota.record(2**50, 0)
    assert not quota.is_exceeded(0)


def test_a_clock_that_jumps_back_neither_fills_nor_empties() -> None:
    quota = ByteQuota(1000, now_ms=10_000)
    quota.record(2000, 10_000)
    assert quota.wait_ms(0) == quota.wait_ms(10_000) == 1001


def test_a_longer_burst_is_saved_up_and_not_there_from_the_beginning() -> None:
    quota = ByteQuota(1000, now_ms=0, burst_ms=10_000)
    quota.record(1000, 0)
    assert quota.is_exceeded(0)
    quota.record(9_999, 60_000)
    assert not quota.is_exceeded(60_000)
    quota.record(1, 60_000)
    assert quota.is_exceeded(60_000)


def test_what_was_begun_counts_as_if_it_were_done() -> None:
    quota = ByteQuota(1000, now_ms=0)
    assert quota.wait_ms(0, pending=999) == 0
    assert quota.wait_ms(0, pending=3000) == 2001
    assert not quota.is_exceeded(0)


@given(
    st.integers(1, 10**6),
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 10**6)), min_size=1, max_size=200),
)
def test_over_time_no_more_than_the_rate_is_copied(rate: int, steps: list[tuple[int, int]]) -> None:
    """But for the burst, and the last piece."""
    quota = ByteQuota(rate, now_ms=0)
    now_ms, copied, last = 0, 0, 0
    for passed_ms, size in steps:
        now_ms += passed_ms
        if not quota.is_exceeded(now_ms):
            quota.record(size, now_ms)
            copied, last = copied + size, size
        wait_ms = quota.wait_ms(now_ms)
        assert wait_ms is not None
        assert quota.is_exceeded(now_ms) == (wait_ms > 0)
    assert copied * 1000 <= rate * (now_ms + BURST_MS) + max(size for _, size in steps) * 1000
    assert last <= copied
