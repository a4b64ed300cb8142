"""Which replicas of a topic are throttled."""

import pytest

from sparklog.executors.replica_manager.replication_quota import is_throttled


@pytest.mark.parametrize(
    ("listed", "answer"),
    [
        ((), False),
        (("*",), True),
        (("3:1", "3:2"), True),
        (("3:1", "2:2", "13:2", "3:22"), False),
    ],
)
def test_a_topic_lists_its_throttled_replicas(listed: tuple[str, ...], answer: bool) -> None:
    assert is_throttled(listed, 3, 2) is answer
