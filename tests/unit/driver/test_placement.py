"""Partitions spread evenly, over topics too."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sparklog.driver.placement import place


def test_one_topic_goes_round_all_brokers() -> None:
    assert place(6, {1: 0, 2: 0, 3: 0}) == ((1,), (2,), (3,), (1,), (2,), (3,))


def test_who_leads_least_comes_first() -> None:
    assert place(4, {1: 5, 2: 1, 3: 3}) == ((2,), (3,), (1,), (2,))


@given(
    st.integers(0, 60),
    st.dictionaries(st.integers(1, 9), st.integers(0, 9), min_size=1),
)
def test_no_broker_gets_two_more_than_another(partitions: int, load: dict[int, int]) -> None:
    given_to = Counter(dict.fromkeys(load, 0))
    given_to.update(replicas[0] for replicas in place(partitions, load))
    assert given_to.total() == partitions
    assert max(given_to.values()) - min(given_to.values()) <= 1
