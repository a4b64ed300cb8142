"""A follower truncates its log to the offset that its leader names, whatever happens meanwhile."""

from collections.abc import Callable

import pytest

from sparklog.errors import CorruptLogError, ErrorCode, KafkaError, StorageError
from sparklog.executors.log.steps import run_through
from sparklog.executors.partition import (
    CompleteDelayedProduces,
    EpochEnd,
    FlushLog,
    IsrProposal,
    Partition,
    ResumeFetching,
)
from sparklog.storage_backends.memory_faults import Operation
from sparklog.types import NO_NODE
from sparklog.wire.records.batch import read_header
from tests.unit.executors.partition.partition_maker import NOW, TP, batch
from tests.unit.executors.partition.replica_trio import EVERYTHING, Trio


def diverged(own: int = 5, **settings: object) -> Trio:
    """Replica 1 has three records in common with leader 2, and ``own`` that nobody else has."""
    trio = Trio(2, **settings)
    trio.elect(1)
    for number in range(3):
        trio.append(b"c%d" % number)
    trio.catch_up(2)
    for number in range(own):
        trio.append(b"own%d" % number)
    trio.elect(2, isr=[2])
    trio.append(b"new")
    return trio


def answer(trio: Trio) -> EpochEnd:
    position = trio[1].fetch_position()
    assert position is not None
    read = trio.ask(1, position)
    assert read is not None
    assert read.diverging is not None
    assert read.records is None
    return read.diverging


def test_the_leader_says_where_and_does_not_count_the_position() -> None:
    trio = diverged()
    assert answer(trio) == EpochEnd(0, 3)
    trio.now_ms += 10**6
    trio.append(b"more", acks=-1)
    assert trio[2].high_watermark == 5, "a log of that length says nothing when it is another one"
    truncated = trio.truncate(1, answer(trio))
    assert truncated is not None
    assert (truncated.end_before, truncated.end_after, truncated.committed) == (8, 3, 0)
    assert ResumeFetching(topic_partition=TP) in truncated.effects
    trio.catch_up(1)
    assert trio.values(1) == [b"c0", b"c1", b"c2", b"new", b"more"]
    trio.check()


def test_an_epoch_that_this_log_does_not_know_takes_two_rounds() -> None:
    trio = diverged()
    trio.crash(2, EVERYTHING)
    trio.elect(1, isr=[1])
    trio.append(b"e2")
    trio.restart(2, tell=False)
    trio.elect(2, isr=[2])
    assert answer(trio) == EpochEnd(1, 4)
    assert trio.truncate(1, EpochEnd(1, 4)) is not None
    assert trio[1].log.log_end_offset == 8, "epoch 2 is gone, and of epoch 0 there may be too much"
    assert answer(trio) == EpochEnd(0, 3)
    trio.catch_up(1)
    assert trio.values(1) == trio.values(2)
    trio.check()


def test_while_it_is_cut_the_log_stands_still() -> None:
    trio = diverged(flush_messages=1)
    follower, log = trio[1], trio[1].log
    assert follower.begin_truncation(answer(trio), leader_epoch=1)
    assert follower.fetch_position() is None
    assert not follower.begin_truncation(EpochEnd(0, 1), leader_epoch=1)
    assert not follower.begin_full_truncation(0, leader_epoch=1)
    assert log.start_flush(NOW, force=True) is None
    assert log.delete_old_segments(NOW, 3) == 0
    assert follower.flushed(NOW) == []
    late = follower.append_as_follower(
        b"",
        fetch_offset=8,
        leader_epoch=1,
        high_watermark=8,
        log_start_offset=0,
        now_ms=NOW,
    )
    assert (late, follower.high_watermark) == ([], 3)
    with pytest.raises(KafkaError) as refused:
        follower.read(0, 100, only_leader=False)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    effects = run_through(follower.truncate(NOW)).effects
    assert (log.log_end_offset, log.truncating) == (3, False)
    assert CompleteDelayedProduces(topic_partition=TP) in effects
    assert follower.fetch_position() is not None


def test_a_role_that_comes_meanwhile_is_taken_afterwards() -> None:
    trio = diverged()
    follower = trio[1]
    assert follower.begin_truncation(answer(trio), leader_epoch=1)
    trio.elect(NO_NODE)
    trio.elect(1, isr=[1])
    assert not follower.is_leader
    trio.finish_truncation(1)
    assert follower.is_leader
    assert (follower.leader_epoch, follower.epoch_start_offset, follower.high_watermark) == (
        3,
        3,
        3,
    )
    trio.append(b"mine")
    trio.catch_up(2)
    assert trio.values(1) == trio.values(2) == [b"c0", b"c1", b"c2", b"mine"]
    trio.check()


def test_a_late_answer_to_a_proposal_takes_no_role_away_that_waits() -> None:
    trio = diverged()
    follower, old = trio[1], trio.state
    assert follower.begin_truncation(answer(trio), leader_epoch=1)
    trio.elect(1, isr=[1])
    proposal = IsrProposal(leader_epoch=0, partition_epoch=0, isr=((1, 11), (2, 12)))
    assert follower.isr_answered(proposal, ErrorCode.NONE, old, trio.now_ms) == []
    trio.finish_truncation(1)
    assert (follower.is_leader, follower.leader_epoch) == (True, 2)


def test_a_right_to_serve_that_ends_meanwhile_stays_ended() -> None:
    trio = diverged()
    assert trio[1].begin_truncation(answer(trio), leader_epoch=1)
    trio.elect(1, isr=[1])
    trio[1].drop_role()
    trio.finish_truncation(1)
    assert trio[1].state is None


def test_nothing_is_cut_for_a_leader_of_another_epoch() -> None:
    trio = diverged()
    told = answer(trio)
    assert not trio[1].begin_truncation(told, leader_epoch=0)
    assert not trio[1].begin_truncation(EpochEnd(0, 8), leader_epoch=1), "nothing there to truncate"
    trio.elect(1, isr=[1])
    assert not trio[1].begin_truncation(told, leader_epoch=2)
    assert not trio[1].begin_full_truncation(0, leader_epoch=2)
    assert trio[1].log.log_end_offset == 8


def test_what_could_not_be_written_down_is_not_cut() -> None:
    trio = diverged()
    trio.hosts[1].flush()
    follower = trio[1]
    assert follower.begin_truncation(answer(trio), leader_epoch=1)
    assert follower.log.recovery_point == 0
    trio.elect(2)
    assert ResumeFetching(topic_partition=TP) in follower.abandon_truncation(NOW)
    assert (follower.log.recovery_point, follower.log.log_end_offset) == (8, 8)
    assert follower.leader_epoch == 2
    follower.log.advance_log_start(2)
    assert follower.begin_full_truncation(1, leader_epoch=2)
    assert follower.log.log_start_offset == 1
    follower.abandon_truncation(NOW)
    assert (follower.log.log_start_offset, follower.log.recovery_point) == (2, 8)
    trio.catch_up(1)
    trio.check()


def test_what_is_not_cut_after_all_is_flushed_when_it_was_to_be() -> None:
    trio = diverged(flush_ms=1000)
    assert trio[1].begin_truncation(answer(trio), leader_epoch=1)
    planned = FlushLog(topic_partition=TP, at_ms=NOW + 1000)
    assert planned in trio[1].abandon_truncation(NOW)


def test_the_recovery_point_is_lowered_before_and_where_it_may_after() -> None:
    trio = diverged(40, segment_bytes=500)
    trio.hosts[1].flush()
    log = trio[1].log
    assert (log.recovery_point, len(log.segments) > 3) == (43, True)
    log.delete_old_segments(NOW, 0)
    assert trio[1].begin_truncation(EpochEnd(0, 20), leader_epoch=1)
    base = max(s.base_offset for s in log.segments if s.base_offset < 20)
    assert log.recovery_point == base > 0
    trio.finish_truncation(1)
    assert (log.recovery_point, log.log_end_offset) == (20, 20)
    trio.elect(2)


def test_a_flush_under_way_proves_nothing_of_a_log_that_was_cut() -> None:
    trio = diverged()
    log = trio[1].log
    job = log.start_flush(NOW, force=True)
    assert job is not None
    assert trio[1].begin_truncation(answer(trio), leader_epoch=1)
    job.run()
    log.finish_flush(job, NOW)
    assert log.recovery_point == 0
    trio.finish_truncation(1)
    assert (log.recovery_point, log.log_end_offset) == (0, 3)
    trio.catch_up(1)
    trio.hosts[1].flush()
    assert log.recovery_point == 4


def test_acknowledgements_that_rest_on_what_was_cut_are_refused() -> None:
    trio = diverged(0)
    trio.elect(1, isr=[1, 2])
    appended = trio[1].append_as_leader(batch(b"one"), acks=-1, now_ms=NOW)
    assert appended.required_offset is not None
    trio.elect(2, isr=[2])
    trio.truncate(1, answer(trio))
    with pytest.raises(KafkaError) as refused:
        trio[1].has_reached(appended.required_offset)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_unclean_leader_takes_committed_records_away_and_it_is_told() -> None:
    trio = Trio(3)
    trio.elect(1)
    for value in (b"a", b"b", b"c"):
        trio.append(value)
    trio.fetch(3, max_bytes=1)
    trio.elect(1, isr=[1, 2])
    trio.catch_up(2)
    assert trio[2].high_watermark == 3
    trio.crash(1, EVERYTHING)
    trio.elect(3, isr=[3])
    assert (trio[3].high_watermark, trio[3].log.log_end_offset) == (1, 1)
    trio.append(b"x")
    position = trio[2].fetch_position()
    assert position is not None
    read = trio.ask(2, position)
    assert read is not None
    assert read.diverging is not None
    truncated = trio.truncate(2, read.diverging)
    assert truncated is not None
    assert (truncated.end_after, truncated.committed) == (1, 2)
    assert trio[2].high_watermark == 1
    trio.restart(1)
    trio.catch_up(1, 2)
    assert trio.values(1) == trio.values(2) == trio.values(3) == [b"a", b"x"]
    trio.check()


def test_a_foreign_log_is_cut_to_what_it_can_have_in_common() -> None:
    """Of an epoch that its leader has never been told of."""
    trio = diverged()
    trio[1].log.leader_epochs.assign(9, 6)
    assert answer(trio) == EpochEnd(1, 4)
    trio.catch_up(1)
    assert trio.values(1) == trio.values(2)
    trio.check()


def test_a_follower_below_the_leaders_log_start_starts_over() -> None:
    trio = Trio(2, min_insync_replicas=1)
    trio.elect(1, isr=[1])
    for number in range(6):
        trio.append(b"%d" % number, producer_id=4, epoch=0, sequence=number)
    trio.fetch(2, max_bytes=200)
    trio.hosts[2].flush()
    trio.hosts[2].checkpoint()
    assert dict(trio[2].producers.entries) != {}
    trio[1].delete_records(5)
    trio.fetch(2)
    state = trio[2]
    assert (state.log.log_start_offset, state.log.log_end_offset, state.high_watermark) == (5, 5, 5)
    assert dict(state.producers.entries) == {}
    trio.catch_up(2)
    assert trio.values(2) == [b"5"]
    assert state.producers.entries[4].last_sequence == 5
    trio.check()


def test_a_follower_above_the_leaders_end_without_a_record_starts_over_below() -> None:
    trio = Trio(2)
    trio.elect(1, isr=[1])
    trio.append(b"a")
    trio.truncate_fully(2, 70)
    trio.hosts[2].checkpoint()
    trio.catch_up(2)
    assert (trio[2].log.log_start_offset, trio.values(2)) == (0, [b"a"])
    trio.crash(2, EVERYTHING)
    trio.restart(2)
    assert trio.values(2) == [b"a"]
    trio.check()


# failing at any point

Cut = Callable[[Trio], None]


def by_epoch(trio: Trio) -> None:
    assert trio[1].begin_truncation(answer(trio), leader_epoch=1)


def all_of_it(trio: Trio) -> None:
    trio[2].delete_records(2)
    assert trio[1].begin_full_truncation(2, leader_epoch=1)


OPERATIONS: tuple[Operation, ...] = ("truncate", "flush", "delete", "put", "flush_folder", "open")


@pytest.mark.parametrize("cut", [by_epoch, all_of_it], ids=lambda cut: cut.__name__)
@pytest.mark.parametrize("checkpointed", [True, False])
def test_a_crash_at_any_point_leaves_a_log_that_opens(cut: Cut, checkpointed: bool) -> None:
    """With the recovery point written down before; else some crash is taken for a loss."""
    harmed = 0
    for at in range(200):
        trio = diverged(30, segment_bytes=500)
        host = trio.hosts[1]
        host.flush()
        host.checkpoint()
        cut(trio)
        if checkpointed:
            host.checkpoint()
        operations = 0

        def die(operation: Operation, path: str, at: int = at) -> None:
            nonlocal operations
            operations += 1
            if operations > at:
                raise StorageError(f"power is lost at {operation} of {path}")

        host.backend.faults.slow = die
        try:
            run_through(trio[1].truncate(NOW))
        except KafkaError:
            assert trio[1].log.offline is not None
        else:
            break
        finally:
            host.backend.faults.clear()
        host.crash(lose_names=at % 2 == 1)
        try:
            trio.restart(1)
        except CorruptLogError:
            harmed += 1
            continue
        trio.catch_up(1)
        assert trio.values(1)[-2:] == trio.values(2)[-2:]
        trio.check()
    else:
        raise AssertionError("it never ended")
    assert at > 8
    assert harmed == 0 if checkpointed else harmed > 0


def test_what_a_crash_left_of_an_epoch_that_never_was_is_cut_before_a_role_is_taken() -> None:
    trio = Trio(1)
    trio.elect(1)
    trio.append(b"flushed")
    trio[1].log.flush(trio.now_ms)
    trio.hosts[1].checkpoint()
    trio.elect(1)
    trio.append(b"torn")
    epoch = trio[1].leader_epoch
    trio.crash(1, EVERYTHING)
    partition = trio.restart(1, tell=False)
    assert trio.values(1) == [b"flushed", b"torn"]
    assert not partition.begin_torn_write_truncation(epoch)
    assert not partition.begin_torn_write_truncation(epoch - 2), (
        "what was flushed is not for a crash to change"
    )
    assert partition.begin_torn_write_truncation(epoch - 1)
    trio.finish_truncation(1)
    assert trio.values(1) == [b"flushed"]


@pytest.mark.parametrize(("clean_offset", "kept"), [(3, 3), (4, 0)])
def test_a_log_that_diverges_below_its_clean_offset_is_copied_anew(
    clean_offset: int, kept: int
) -> None:
    """Records that the cleaner dropped because of later records are missing without these."""
    trio = diverged()
    log = trio[1].log
    assert run_through(log.advance_clean_offset(clean_offset, log.generation))
    assert trio.truncate(1, answer(trio)) is not None
    assert log.log_end_offset == kept
    trio.catch_up(1)
    assert trio.values(1) == trio.values(2) == [b"c0", b"c1", b"c2", b"new"]
    trio.check()


@pytest.mark.parametrize(("high_watermark", "kept"), [(3, 3), (4, 0)])
def test_a_log_with_copied_gaps_that_diverges_below_what_was_committed_is_copied_anew(
    high_watermark: int, kept: int
) -> None:
    """The leader that it was copied from may have dropped records because of later ones."""
    trio = diverged()
    log = trio[1].log
    log.gaps.set()
    trio[1].high_watermark = high_watermark
    assert trio.truncate(1, answer(trio)) is not None
    assert log.log_end_offset == kept
    trio.catch_up(1)
    assert trio.values(1) == trio.values(2) == [b"c0", b"c1", b"c2", b"new"]


def put(replica: Partition, offset: int, *values: bytes, **more: object) -> None:
    """A batch as a leader has it in its log."""
    data = batch(*values, base_offset=offset, leader_epoch=0, **more)
    replica.log.append([data], [read_header(data)], NOW)


def compacted(leader: Partition, *, emptied: bool) -> None:
    """0, 1 and 2 are gone because of 8, 9 and 10: without a batch, or with an emptied one."""
    if emptied:
        put(leader, 0, last_offset_delta=2)
    for offset in range(3, 12):
        put(leader, offset, b"v%d" % offset)


@pytest.mark.parametrize("emptied", [False, True])
def test_a_copy_of_a_part_of_a_compacted_log_is_made_anew_after_an_unclean_election(
    emptied: bool,
) -> None:
    trio = Trio(3)
    trio.elect(1, isr=[1])
    for offset in range(5):
        put(trio[3], offset, b"v%d" % offset)
    compacted(trio[1], emptied=emptied)
    trio.append(b"last")
    assert trio[1].high_watermark > 10
    while trio[2].log.log_end_offset < 7:
        trio.fetch(2, max_bytes=1)
    trio.crash(1)
    trio.elect(3, isr=[3])
    trio.append(b"new")
    trio.catch_up(2)
    assert trio.values(2) == trio.values(3) == [*(b"v%d" % n for n in range(5)), b"new"]
