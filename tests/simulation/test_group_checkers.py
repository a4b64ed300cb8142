"""The checkers of groups: histories that break their invariants, and that keep them."""

from dataclasses import replace
from uuid import UUID

from sparklog.metadata import PartitionChanged, PartitionImage, TopicCreated
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from tests.simulation.checkers import (
    committed_offsets,
    group_owners,
    nothing_skipped,
    progress,
)
from tests.simulation.events import (
    BrokerDied,
    DeleteRecordsInvoked,
    Event,
    GroupDrained,
    LogId,
    OffsetCommitAcked,
    OffsetCommitInvoked,
    OffsetCommitRefused,
    OffsetsRead,
    PartitionsAssigned,
    Processed,
)
from tests.simulation.final_state import FinalBatch, FinalLog, FinalState
from tests.simulation.history import AnyEvent, History
from tests.simulation.partition_story import LOG, NAME, committed
from tests.simulation.transaction_events import ABORTED, MarkerAppended, Producer

ALONE = PartitionImage(replicas=(1, 2), isr=(1,), last_known=(1, 2), leader=1)
#: The topic of the coordinators; its one partition is led by broker 1, which alone is in sync.
OFFSETS = TopicCreated(topic=CONSUMER_OFFSETS, topic_id=UUID(int=9), partitions=(ALONE,))
EMPTY = FinalState()


def history(*events: AnyEvent) -> History:
    return History.of(committed(OFFSETS), *events)


def lost() -> tuple[Event, Event]:
    """The disk of broker 1, which alone had what was acknowledged; broker 2 leads."""
    state = replace(ALONE, leader=2, isr=(2,), leader_epoch=1, partition_epoch=1)
    moved = PartitionChanged(topic=CONSUMER_OFFSETS, partition=0, state=state)
    return BrokerDied(broker=1, disk_lost=True), committed(moved)


def sent(op: int, offset: int, generation: int = 1) -> OffsetCommitInvoked:
    return OffsetCommitInvoked(op=op, group="g", generation=generation, offsets=((LOG, offset),))


def taken(op: int, offset: int, generation: int = 1) -> tuple[Event, Event]:
    return sent(op, offset, generation), OffsetCommitAcked(op=op)


def read(offset: int | None, *, asked: int = 99, node: int = 1) -> OffsetsRead:
    return OffsetsRead(asked=asked, group="g", node=node, offsets=((LOG, offset),))


def marker(offset: int, *, commits: bool, producer_id: int = 7) -> MarkerAppended:
    return MarkerAppended(
        log=LogId(CONSUMER_OFFSETS, UUID(int=9), 0),
        offset=offset,
        producer=Producer(producer_id, 0),
        committed=commits,
    )


def assigned(member_id: str, generation: int) -> PartitionsAssigned:
    return PartitionsAssigned(group="g", member_id=member_id, generation=generation, logs=(LOG,))


def test_an_acknowledged_commit_is_read() -> None:
    def check(*events: Event) -> list[str]:
        return committed_offsets.check(history(*events), EMPTY)

    def wrong(offset: int | None, there: str) -> list[str]:
        return [
            f"group g read the committed offset {offset} of {NAME} of broker 1, {there} was "
            "committed before"
        ]

    both = (*taken(1, 5), *taken(2, 7))
    assert check(*both, read(7)) == check(read(None)) == []
    assert check(*both, read(5)) == wrong(5, "offset 7")
    assert check(*both, read(None)) == wrong(None, "offset 7")
    assert check(*both, read(6)) == wrong(6, "offset 7")
    assert check(*both, read(5, asked=3)) == []  # asked for before the second was answered
    refused = (sent(3, 9), OffsetCommitRefused(op=3, code="ILLEGAL_GENERATION"))
    assert check(*both, *refused, read(9)) == wrong(9, "offset 7")
    assert check(read(9)) == wrong(9, "nothing")


def test_a_commit_without_an_answer_may_take_effect_at_any_time() -> None:
    events = (sent(1, 3), *taken(2, 7), read(7), read(3), read(3))
    assert committed_offsets.check(history(*events), EMPTY) == []


def test_what_was_read_once_was_committed() -> None:
    events = (*taken(1, 5), sent(2, 7), read(7, asked=4), read(5, asked=5))
    assert len(committed_offsets.check(history(*events), EMPTY)) == 1


def test_a_broker_that_was_replaced_may_tell_what_it_knows() -> None:
    events = (*taken(1, 5), *taken(2, 7), read(5, node=2))
    assert committed_offsets.check(history(*events), EMPTY) == []


def test_commits_go_with_all_disks_that_had_them() -> None:
    events = (*taken(1, 5), *taken(2, 7), *lost(), read(None, asked=7, node=2))
    assert committed_offsets.check(history(*events), EMPTY) == []
    again = (*taken(3, 8), read(None, asked=10, node=2))
    assert len(committed_offsets.check(history(*events, *again), EMPTY)) == 1


def test_an_aborted_commit_comes_back_when_its_marker_is_lost_and_the_next_one_commits() -> None:
    aborted = (replace(sent(1, 5), producer_id=7), OffsetCommitRefused(op=1, code=ABORTED))
    abort, commit = marker(3, commits=False), marker(3, commits=True)

    def check(*events: AnyEvent) -> list[str]:
        return committed_offsets.check(history(*aborted, *events), EMPTY)

    def wrong(there: str = "nothing") -> list[str]:
        return [
            f"group g read the committed offset 5 of {NAME} of broker 2, {there} was committed "
            "before"
        ]

    asked = read(5, asked=98, node=2)
    assert check(abort, *lost(), commit, asked) == []
    assert check(abort, commit, *lost(), asked) == wrong()  # the marker is not lost
    assert check(abort, *lost(), abort, marker(4, commits=False), asked) == wrong()
    assert check(abort, *lost(), marker(3, commits=True, producer_id=8), asked) == wrong()
    assert check(abort, *lost(), asked) == wrong()
    assert check(abort, *lost(), commit, *taken(2, 7), asked) == wrong("offset 7")
    other = (replace(sent(1, 5), producer_id=7), OffsetCommitRefused(op=1, code="FENCED"))
    refused = history(*other, abort, *lost(), commit, asked)
    assert committed_offsets.check(refused, EMPTY) == wrong()


def test_a_member_of_the_past_commits_nothing() -> None:
    next_one = (assigned("a", 1), assigned("b", 2))
    assert committed_offsets.check(history(*next_one, *taken(1, 5, 2)), EMPTY) == []
    assert committed_offsets.check(history(*next_one, *taken(1, 5, 1)), EMPTY) == [
        "group g took a commit of generation 1, and was in generation 2 before it was sent"
    ]
    late = (assigned("a", 1), sent(1, 5, 1), assigned("b", 2), OffsetCommitAcked(op=1))
    assert committed_offsets.check(history(*late), EMPTY) == []
    assert committed_offsets.check(history(*next_one, *lost(), *taken(1, 5, 1)), EMPTY) == []


def test_a_partition_has_one_owner_in_a_generation() -> None:
    def check(*events: Event) -> list[str]:
        return group_owners.check(history(*events), EMPTY)

    assert check(assigned("a", 1), assigned("a", 1), assigned("b", 2)) == []
    assert check(assigned("a", 1), assigned("b", 1)) == [
        f"{NAME} belongs to a and b in generation 1 of group g"
    ]
    assert check(assigned("a", 1), *lost(), assigned("b", 1)) == []
    static = [replace(assigned(each, 1), instance_id="i") for each in "ab"]
    assert check(*static) == []
    assert len(check(*static, assigned("c", 1))) == 1


def test_a_drained_group_has_processed_everything() -> None:
    def check(
        *offsets: int, start: int = 0, end: int = 3, error: str = "", before: int = 0
    ) -> list[str]:
        records = tuple((offset, b"v%d" % offset) for offset in offsets)
        events = (
            DeleteRecordsInvoked(op=1, log=LOG, before=before),
            Processed(group="g", log=LOG, records=records),
            GroupDrained(group="g", ends=((LOG, end),), took_ms=5, error=error),
        )
        batch = FinalBatch(base_offset=0, values=(b"v0", b"v1", b"v2"))
        final = FinalState(logs={LOG: FinalLog(start=start, end=3, batches=(batch,))})
        found = nothing_skipped.check(history(*events), final)
        return found + [line for line in progress.check(history(*events), final) if "g" in line]

    assert check(0, 1, 2) == check(0, 1, end=2) == check(1, 2, start=1) == []
    assert check(2, before=2) == check(before=-1) == []  # and a crash brought them back
    assert len(check(2, before=1)) == 1
    assert check(0, 2) == [f"group g has not processed offset 1 of {NAME}, nor 0 others below 3"]
    assert check(0, error="late") == ["group g has not drained 5 ms after healing: late"]
