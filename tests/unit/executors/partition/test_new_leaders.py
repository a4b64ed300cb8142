"""What a new leader knows, and what it does not say until it does."""

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log.steps import run_through
from sparklog.executors.partition.partition import Partition
from sparklog.types import NO_NODE, Isolation, OffsetSpec
from tests.unit.executors.partition.partition_maker import NOW, batch
from tests.unit.executors.partition.replica_trio import EVERYTHING, LAG_MS, Trio


def latest(
    partition: Partition, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> int | ErrorCode:
    try:
        found = run_through(partition.find_offset(OffsetSpec.LATEST, isolation))
    except KafkaError as error:
        return error.code
    assert found is not None
    return found.offset


def test_latest_is_not_told_before_it_cannot_go_back() -> None:
    """KIP-207: the leader before it may have told clients of a higher one."""
    trio = Trio()
    trio.elect(1)
    for value in (b"a", b"b"):
        trio.append(value)
    trio.catch_up(2, 3)
    assert latest(trio[1]) == 2
    trio.append(b"c")
    trio.fetch(2, 3)
    trio.fetch(2, 3)
    assert latest(trio[1]) == 3
    trio.crash(3, EVERYTHING)
    trio.restart(3, tell=False)
    trio.elect(3, isr=[2, 3])
    assert trio[3].high_watermark == 0
    for isolation in Isolation:
        assert latest(trio[3], isolation) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert trio[3].read(0, 100).records is None
    trio.fetch(2)
    assert latest(trio[3]) == 3
    trio.check()


def test_earliest_is_told_at_once() -> None:
    trio = Trio()
    trio.elect(1)
    trio.append(b"a")
    found = run_through(trio[1].find_offset(OffsetSpec.EARLIEST))
    assert found is not None
    assert found.offset == 0


def test_a_new_leader_keeps_what_it_knew_as_a_follower() -> None:
    trio = Trio()
    trio.elect(1)
    trio.append(b"a")
    trio.append(b"b")
    trio.catch_up(2, 3)
    trio.fetch(2, 3)
    trio.append(b"c")
    trio.fetch(2)
    trio.elect(2)
    assert (trio[2].high_watermark, trio[2].epoch_start_offset) == (2, 3)
    trio.append(b"d")
    trio.catch_up(3)
    trio.catch_up(1)
    assert trio[2].high_watermark == 4
    assert trio.values(1) == [b"a", b"b", b"c", b"d"]
    trio.check()


def test_a_leader_that_comes_back_alone_in_sync_knows_all_at_once() -> None:
    trio = Trio()
    trio.elect(1, isr=[1])
    trio.append(b"a", acks=-1)
    trio.crash(1, EVERYTHING)
    trio.restart(1, tell=False)
    assert trio[1].high_watermark == 0
    trio.elect(1, isr=[1])
    assert trio[1].high_watermark == latest(trio[1]) == 1


def test_a_leader_that_comes_back_alone_below_the_minimum_says_nothing() -> None:
    trio = Trio(min_insync_replicas=2)
    trio.elect(1)
    trio.append(b"a", acks=-1)
    trio.catch_up(2, 3)
    trio.crash(1, EVERYTHING)
    trio.restart(1, tell=False)
    trio.elect(1, isr=[1])
    assert latest(trio[1]) is ErrorCode.OFFSET_NOT_AVAILABLE
    trio.catch_up(2)
    assert latest(trio[1]) is ErrorCode.OFFSET_NOT_AVAILABLE
    trio.answer()
    assert latest(trio[1]) == 1


def test_a_clean_restart_forgets_no_record_and_asks_for_none_again() -> None:
    trio = Trio()
    trio.elect(1)
    trio.append(b"a")
    trio.catch_up(2, 3)
    trio.hosts[2].stop()
    trio.restart(2)
    position = trio[2].fetch_position()
    assert position is not None
    assert (position.offset, position.last_fetched_epoch) == (1, 0)
    trio.fetch(2)
    assert trio[2].high_watermark == 1


def test_what_was_parked_at_a_deposed_leader_is_refused_and_nothing_of_it_lost() -> None:
    trio = Trio(min_insync_replicas=2)
    trio.elect(1)
    parked = trio[1].append_as_leader(batch(b"a"), acks=-1, now_ms=NOW).required_offset
    assert parked is not None
    trio.catch_up(2)
    trio.elect(2, tell=False)
    trio.tell(2, 3)
    # It has not heard yet, and nobody of its epoch asks it any more.
    assert not trio[1].has_reached(parked)
    with pytest.raises(KafkaError) as refused:
        trio[1].read(1, 100, current_leader_epoch=1, last_fetched_epoch=0, replica_id=3)
    assert refused.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH
    trio.now_ms += 2 * LAG_MS
    trio[1].maybe_shrink_or_expand_isr(trio.now_ms)
    assert not trio[1].has_reached(parked), "it may not shrink the ISR by itself"
    trio.tell(1)
    with pytest.raises(KafkaError) as moved:
        trio[1].has_reached(parked)
    assert moved.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    trio.catch_up(1, 3)
    assert trio.values(1) == trio.values(2) == trio.values(3) == [b"a"]
    trio.check()


def test_without_a_leader_nothing_is_served_or_lost() -> None:
    trio = Trio()
    trio.elect(1)
    trio.append(b"a")
    trio.elect(NO_NODE)
    with pytest.raises(KafkaError) as refused:
        trio[1].append_as_leader(batch(b"b"), acks=1, now_ms=NOW)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert trio[1].update_follower_fetch_state(2, 1, 0, broker_epoch=12, now_ms=0) == []
    assert trio[1].maybe_shrink_or_expand_isr(10**9) == []
    trio.elect(1)
    trio.catch_up(2, 3)
    assert trio.values(3) == [b"a"]


def test_the_same_leader_in_a_new_epoch_hears_of_everybody_anew() -> None:
    trio = Trio()
    trio.elect(1)
    trio.append(b"a")
    trio.catch_up(2, 3)
    trio.append(b"b")
    trio.elect(1)
    trio.fetch(2)
    trio.fetch(2)
    assert trio[1].high_watermark == 1
    trio.catch_up(3)
    assert trio[1].high_watermark == 2
