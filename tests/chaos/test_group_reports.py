"""What a member reports becomes history, each commit with all that may become of it."""

from uuid import UUID

import pytest
from confluent_kafka import KafkaError

from tests.chaos.chaos_clients import Load
from tests.chaos.group_member import (
    COOPERATIVE,
    LIBRDKAFKA,
    ChainAborted,
    CommitBegun,
    CommitTaken,
    Complained,
    Fenced,
    MemberPlan,
    OffsetsNotFetched,
    Polled,
    Refused,
    ends_of,
    generation_in,
    processed,
)
from tests.chaos.group_members import Reports, plans_of
from tests.chaos.group_watch import lag_of
from tests.chaos.shared_history import SharedHistory
from tests.simulation.events import (
    Event,
    LogId,
    OffsetCommitAcked,
    OffsetCommitInvoked,
    PartitionsAssigned,
    Processed,
)

ONE, TWO = (LogId("t", UUID(int=1), number) for number in (0, 1))
BATCH = Processed(group="g", log=ONE, records=((3, b"x"), (4, b"y")))


@pytest.fixture
def load() -> Load:
    return Load(bootstrap="", logs=(ONE, TWO), history=SharedHistory())


def plan(*, commits_itself: bool) -> MemberPlan:
    return MemberPlan(
        bootstrap="",
        group="g",
        name="m",
        client=LIBRDKAFKA,
        assignors=COOPERATIVE,
        commits_itself=commits_itself,
        logs=(ONE, TWO),
    )


def invoked(op: int, generation: int, offset: int) -> OffsetCommitInvoked:
    return OffsetCommitInvoked(op=op, group="g", generation=generation, offsets=((ONE, offset),))


def test_records_are_processed_partition_by_partition() -> None:
    records = [("t", 0, 3, b"x"), ("t", 1, 9, None), ("t", 0, 4, b"y")]
    batches = processed(plan(commits_itself=True), records)
    assert batches == [BATCH, Processed(group="g", log=TWO, records=((9, None),))]
    assert ends_of(batches) == ((ONE, 5), (TWO, 10))


def test_a_commit_is_invoked_before_it_is_acknowledged(load: Load) -> None:
    reports = Reports(load, plan(commits_itself=True))
    assigned = PartitionsAssigned(group="g", member_id="m", generation=2, logs=(ONE,))
    begun = CommitBegun(generation=2, offsets=((ONE, 5),))
    for report in (Polled(), assigned, BATCH, begun, CommitTaken(took_ms=9)):
        reports.note(report)
    expected: list[Event] = [assigned, BATCH, invoked(1, 2, 5), OffsetCommitAcked(op=1)]
    assert load.history.events == expected


def test_a_slow_commit_may_have_been_sent_twice(load: Load) -> None:
    reports = Reports(load, plan(commits_itself=True))
    reports.note(CommitBegun(generation=2, offsets=((ONE, 5),)))
    reports.note(CommitTaken(took_ms=3000))
    expected: list[Event] = [invoked(1, 2, 5), OffsetCommitAcked(op=1), invoked(2, 2, 5)]
    assert load.history.events == expected


def test_a_client_that_commits_for_itself_may_do_so_after_the_processing(load: Load) -> None:
    Reports(load, plan(commits_itself=False)).note(BATCH)
    assert load.history.events == [invoked(1, -1, 5), BATCH]


def test_complaints_have_the_name_of_the_member(load: Load) -> None:
    Reports(load, plan(commits_itself=True)).note(Complained(text="no"))
    assert load.complaints == ["m: no"]


def test_a_client_that_gives_up_reading_offsets_is_no_complaint(load: Load) -> None:
    Reports(load, plan(commits_itself=True)).note(OffsetsNotFetched())
    assert load.complaints == []


@pytest.mark.parametrize(("moves", "complaints"), [(0, 1), (1, 0)])
def test_a_member_may_be_fenced_by_a_coordinator_that_took_over(
    load: Load, moves: int, complaints: int
) -> None:
    epochs = iter((4, 4 + moves))
    Reports(load, plan(commits_itself=True), lambda: next(epochs)).note(Fenced())
    assert len(load.complaints) == complaints


@pytest.mark.parametrize(("timed_out", "complaints"), [(True, []), (False, ["m was refused: no"])])
def test_only_a_timeout_may_end_the_producer_of_a_chain(
    load: Load, timed_out: bool, complaints: list[str]
) -> None:
    Reports(load, plan(commits_itself=True)).note(Refused(text="no", timed_out=timed_out))
    assert load.complaints == complaints


@pytest.mark.parametrize(
    ("code", "timed_out", "complaints"),
    [
        (KafkaError.INVALID_TXN_STATE, False, ["m had to abort: no"]),
        (KafkaError.INVALID_TXN_STATE, True, []),
        (KafkaError.ILLEGAL_GENERATION, False, []),
    ],
)
def test_an_abort_for_which_a_member_has_no_reason_is_named(
    load: Load, code: int, timed_out: bool, complaints: list[str]
) -> None:
    report = ChainAborted(code=code, text="no", timed_out=timed_out)
    Reports(load, plan(commits_itself=True)).note(report)
    assert load.complaints == complaints
    assert load.counters["transactions aborted"] == 1


def test_the_generation_is_read_from_the_metadata_of_librdkafka() -> None:
    assert generation_in(b"CGMDv2:\x07\x00\x00\x00g\x00m\x00\x01") == 7
    assert generation_in(b"CGMDv2:\xff\xff\xff\xffg\x00\x00\x01") == -1
    assert generation_in(b"") == -1


def test_every_kind_of_member_is_in_a_run(load: Load) -> None:
    plans = plans_of(load)
    assert {(each.client, each.assignors, each.commits_itself) for each in plans} == {
        ("librdkafka", ("range", "roundrobin"), True),
        ("librdkafka", ("range", "roundrobin"), False),
        ("sparklog", ("range", "roundrobin"), True),
        ("librdkafka", ("cooperative-sticky",), True),
        ("librdkafka", ("cooperative-sticky",), False),
        ("sparklog", ("cooperative-sticky",), True),
        ("chain", ("range", "roundrobin"), True),
    }
    assert [each.instance_id for each in plans if each.instance_id] == ["cooperative-group-auto"]


def test_lag_is_a_partition_that_is_not_committed_to_its_end() -> None:
    ends = {ONE: 5, TWO: 0}
    assert lag_of({ONE: 5, TWO: None}, ends) == ""
    assert lag_of({ONE: 4}, ends) == f"1 partitions lag: {ONE} at 4 of 5"
    assert lag_of({}, ends) == f"1 partitions lag: {ONE} at None of 5"
