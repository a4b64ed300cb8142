"""A broker's counters end with its process; the sum over its lives goes on."""

from sparklog.types import Endpoint
from tests.chaos.status_watch import StatusWatch, totals


def test_every_life_counts_with_the_last_that_was_heard_of_it() -> None:
    watch = StatusWatch(Endpoint("127.0.0.1", 1), b"")
    for incarnation, cuts in (("a", 1), ("b", 5), ("a", 2), ("c", 0)):
        watch.note({"incarnation": incarnation, "cuts": cuts, "clean_start": True, "role": "x"})
    assert totals(watch, {"truncations": "cuts", "others": "nothing"}) == {
        "truncations": 7,
        "others": 0,
    }
