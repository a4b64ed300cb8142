"""The stories that leader epochs exist for: KIP-101's two and KIP-279's.

Each is told three times over: as it goes here, and as it went when followers truncated by their
high watermark, or by an epoch's end without its epoch.  The last two have to end badly, else the
story proves nothing.
"""

from collections.abc import Callable

import pytest

from sparklog.executors.log.checkpoint import EpochEntry
from sparklog.executors.partition import EpochEnd
from sparklog.executors.partition.follower_role import FollowerRole
from tests.unit.executors.partition.replica_trio import EVERYTHING, Trio


class ByHighWatermark(Trio):
    """Followers cut what is above their high watermark, and then fetch from wherever they are."""

    def __init__(self, count: int = 3, **settings: object) -> None:
        super().__init__(count, **settings)
        self.high_watermarks: dict[int, int] = {}

    def crash(self, node_id: int, keep_unflushed: int = 0, *, lose_names: bool = False) -> None:
        # Kafka keeps it in a file.
        self.high_watermarks[node_id] = self[node_id].high_watermark
        super().crash(node_id, keep_unflushed, lose_names=lose_names)

    def tell(self, *nodes: int) -> None:
        super().tell(*nodes)
        for node_id in nodes or self.replicas:
            partition = self.hosts[node_id].partition
            if partition is not None and partition.fetch_position() is not None:
                known = self.high_watermarks.get(node_id, partition.high_watermark)
                partition.log.truncate_to(known, 0)
                partition.truncated()
                # Without epochs nothing can be told apart.
                partition.log.leader_epochs.clear()


def data_is_lost(trio: Trio) -> None:
    """A follower restarts before it has heard of the high watermark; then the leader dies."""
    trio.elect(1)
    trio.append(b"m1")
    trio.catch_up(2)
    trio.append(b"m2")
    trio.fetch(2)
    position = trio[2].fetch_position()
    assert position is not None
    trio.ask(2, position)  # the answer never arrives
    assert (trio[1].high_watermark, trio[2].high_watermark) == (2, 1)
    trio.crash(2, EVERYTHING)
    trio.restart(2)
    trio.crash(1, EVERYTHING)
    trio.elect(2)
    trio.restart(1)
    trio.catch_up(1)
    assert [trio.values(1), trio.values(2)] == [[b"m1", b"m2"]] * 2
    trio.check()


def replicas_disagree(trio: Trio) -> None:
    """Both lose power; the one that lost a record comes back first, leads, and takes another."""
    trio.elect(1)
    trio.append(b"m1")
    trio.catch_up(2)
    trio.hosts[2].flush()
    trio.append(b"m2")
    trio.catch_up(2)
    trio.hosts[1].flush()
    trio.crash(1)
    trio.crash(2)
    trio.restart(2, tell=False)
    trio.elect(2, isr=[2])
    assert trio.values(2) == [b"m1"]
    trio.append(b"m3")
    trio.restart(1)
    trio.catch_up(1)
    assert [trio.values(1), trio.values(2)] == [[b"m1", b"m3"]] * 2
    trio.check()


def leaders_change_fast(trio: Trio) -> None:
    """Each leader takes records that nobody else gets, with an epoch that the other never hears."""
    trio.elect(1)
    trio.append(b"common")
    trio.catch_up(2)
    trio.crash(1, EVERYTHING)
    trio.elect(2, isr=[2])
    for value in (b"x1", b"x2", b"x3"):
        trio.append(value)
    trio.crash(2, EVERYTHING)
    trio.restart(1, tell=False)
    trio.elect(1, isr=[1])
    for value in (b"y1", b"y2"):
        trio.append(value)
    trio.crash(1, EVERYTHING)
    trio.restart(2, tell=False)
    trio.elect(2, isr=[2])
    trio.append(b"z")
    trio.restart(1)
    trio.catch_up(1)
    assert [trio.values(1), trio.values(2)] == [[b"common", b"x1", b"x2", b"x3", b"z"]] * 2
    trio.check()


STORIES = (data_is_lost, replicas_disagree, leaders_change_fast)
Story = Callable[[Trio], None]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_with_leader_epochs_it_ends_well(story: Story) -> None:
    story(Trio(2))


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_by_high_watermark_it_does_not(story: Story) -> None:
    with pytest.raises(AssertionError, match="b'"):
        story(ByHighWatermark(2))


def test_fast_leader_changes_need_the_epoch_and_not_only_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def only_its_end(role: FollowerRole, diverging: EpochEnd) -> int:
        return min(diverging.end_offset, role._replica.log.log_end_offset)

    monkeypatch.setattr(FollowerRole, "_common_end", only_its_end)
    with pytest.raises(AssertionError, match="b'"):
        leaders_change_fast(Trio(2))


def test_an_epoch_without_a_record_that_was_written_down_claims_no_record_after_a_crash() -> None:
    trio = Trio()
    trio.elect(1)
    trio.append(b"a")
    trio.catch_up(2, 3)
    trio.append(b"b")
    trio.fetch(2)
    trio.elect(3, tell=False)
    trio.tell(3)
    trio.hosts[3].flush()
    assert trio[3].log.leader_epochs.entries == (EpochEntry(0, 0), EpochEntry(1, 1))
    trio.elect(2)
    trio.fetch(3)
    trio.crash(3, EVERYTHING)
    trio.restart(3, tell=False)
    assert trio.values(3) == [b"a", b"b"]
    assert trio[3].log.leader_epochs.entries == (EpochEntry(0, 0),)
    trio.tell(3)
    position = trio[3].fetch_position()
    assert position is not None
    read = trio.ask(3, position)
    assert read is not None
    assert read.diverging is None
    trio.check()
