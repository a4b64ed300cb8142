"""The choice of faults."""

import random
from collections import Counter
from itertools import islice

from tests.chaos.troubles import dealt


def test_a_round_has_every_fault_as_often_as_it_counts() -> None:
    counts = {"kill": 5, "hang": 2, "away": 1}
    faults = dealt(counts, random.Random(1))
    rounds = [[*islice(faults, 8)] for _ in range(3)]
    assert [Counter(each) for each in rounds] == [Counter(counts)] * 3
    assert len({tuple(each) for each in rounds}) == 3
