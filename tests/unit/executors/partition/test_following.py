"""A follower takes over what its leader sent: whole, as it is, and nothing that does not fit."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.partition import (
    CompleteDelayedDeleteRecords,
    CompleteDelayedFetches,
    CompleteDelayedProduces,
    FetchPosition,
    FlushLog,
    ResumeFetching,
)
from sparklog.types import MAX_INT64, NO_NODE, Isolation
from sparklog.wire.records.batch import LOG_OVERHEAD, read_header, stamp
from sparklog.wire.records.builder import Record, encode_batch
from sparklog.wire.records.control import ControlType, EndTxnMarker, encode_marker
from tests.unit.executors.partition.partition_maker import NOW, TP
from tests.unit.executors.partition.replica_trio import Trio

Damage = Callable[[bytearray], bytes]


def elected(count: int = 2, **config: object) -> Trio:
    trio = Trio(count, **config)
    trio.elect(1)
    return trio


def logs(trio: Trio, node_id: int) -> list[bytes]:
    backend = trio.hosts[node_id].backend
    names = [name for name in backend.list("broker/t-0") if name.endswith(".log")]
    return [backend.read(f"broker/t-0/{name}") for name in sorted(names)]


def stored(base_offset: int, *values: bytes, epoch: int = 0, **more: object) -> bytes:
    """A batch as a leader has it in its log."""
    records = [Record(value=value, timestamp=NOW) for value in values]
    return encode_batch(records, base_offset=base_offset, leader_epoch=epoch, **more)  # type: ignore[arg-type]


def give(trio: Trio, data: bytes, *, node_id: int = 2, **changes: int) -> list[object]:
    """An answer to the follower's fetch."""
    follower = trio[node_id]
    values = {
        "fetch_offset": follower.log.log_end_offset,
        "leader_epoch": follower.leader_epoch,
        "high_watermark": 0,
        "log_start_offset": 0,
        "now_ms": NOW,
        **changes,
    }
    return list(follower.append_as_follower(data, **values))


def test_an_empty_log_begins_at_a_first_batch_that_is_far() -> None:
    trio, far = elected(), 3_000_000_000
    give(trio, stored(far, b"a"))
    trio[2].check_invariants()
    assert (trio[2].log.log_start_offset, trio[2].high_watermark) == (far, far)


def test_it_has_the_leaders_bytes_and_marks() -> None:
    trio = elected(segment_bytes=500)
    for number in range(20):
        trio.append(b"a%d" % number, b"b")
    trio.fetch(2, max_bytes=1)
    assert trio[2].fetch_position() == FetchPosition(
        offset=2, last_fetched_epoch=0, current_leader_epoch=0, log_start_offset=0
    )
    trio.catch_up(2)
    trio.fetch(2)
    assert logs(trio, 2) == logs(trio, 1)
    assert len(logs(trio, 2)) > 1
    assert (trio[2].high_watermark, trio[2].log.log_end_offset) == (40, 40)
    trio[1].delete_records(7)
    trio.fetch(2)
    assert trio[2].log.log_start_offset == 7
    trio.check()


def test_its_marks_are_bounded_by_its_own_log() -> None:
    trio = elected()
    effects = give(trio, stored(0, b"a", b"b"), high_watermark=9, log_start_offset=1)
    assert (trio[2].high_watermark, trio[2].log.log_start_offset) == (2, 1)
    assert effects == [
        CompleteDelayedFetches(topic_partition=TP, size=len(stored(0, b"a", b"b"))),
        CompleteDelayedProduces(topic_partition=TP),
        CompleteDelayedDeleteRecords(topic_partition=TP),
    ]
    assert give(trio, b"", high_watermark=1) == [], "a high watermark does not go back"
    assert give(trio, b"", high_watermark=9, log_start_offset=1) == []
    assert trio[2].high_watermark == 2


def test_an_answer_that_was_overtaken_changes_nothing() -> None:
    trio = elected()
    give(trio, stored(0, b"a"))
    late = stored(1, b"b")
    assert give(trio, late, leader_epoch=1, high_watermark=1) == []
    assert give(trio, late, leader_epoch=-1, high_watermark=1) == []
    assert give(trio, late, fetch_offset=0, high_watermark=1) == []
    # Were these taken, offset 1 would be missing for good.
    assert give(trio, stored(2, b"c"), fetch_offset=2, high_watermark=1) == []
    assert (trio[2].log.log_end_offset, trio[2].high_watermark) == (1, 0)
    trio.elect(2)
    assert give(trio, late) == []
    trio.elect(NO_NODE)
    assert give(trio, late) == []
    trio[2].drop_role()
    assert give(trio, late, leader_epoch=-1) == []
    assert trio[2].log.log_end_offset == 1


def flip_last(data: bytearray) -> bytes:
    data[-1] ^= 1
    return bytes(data)


def cut_off(data: bytearray) -> bytes:
    return bytes(data[:-1])


def twice(data: bytearray) -> bytes:
    return bytes(data + data)


def from_below(data: bytearray) -> bytes:
    stamp(data, 0, 1)
    return bytes(data)


def of_an_older_epoch(data: bytearray) -> bytes:
    stamp(data, 2, 0)
    return bytes(data)


def of_a_newer_epoch(data: bytearray) -> bytes:
    stamp(data, 2, 2)
    return bytes(data)


def of_another_format(data: bytearray) -> bytes:
    data[16] = 1
    return bytes(data)


def without_length(data: bytearray) -> bytes:
    data[8:LOG_OVERHEAD] = bytes(4)
    return bytes(data)


def beyond_all_offsets(data: bytearray) -> bytes:
    stamp(data, MAX_INT64, 1)
    return bytes(data)


def with_a_torn_marker(data: bytearray) -> bytes:
    return stored(2, b"x", epoch=1, control=True, producer_id=1, producer_epoch=0)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (flip_last, ErrorCode.CORRUPT_MESSAGE),
        (cut_off, ErrorCode.CORRUPT_MESSAGE),
        (without_length, ErrorCode.CORRUPT_MESSAGE),
        (with_a_torn_marker, ErrorCode.CORRUPT_MESSAGE),
        (of_another_format, ErrorCode.INVALID_RECORD),
        (twice, ErrorCode.INVALID_RECORD),
        (from_below, ErrorCode.INVALID_RECORD),
        (of_an_older_epoch, ErrorCode.INVALID_RECORD),
        (beyond_all_offsets, ErrorCode.INVALID_RECORD),
        (of_a_newer_epoch, ErrorCode.INVALID_RECORD),
    ],
)
def test_what_cannot_be_the_leaders_next_batch_is_refused(damage: Damage, code: ErrorCode) -> None:
    trio = elected()
    trio.elect(1)
    give(trio, stored(0, b"a", b"b", epoch=1))
    before = logs(trio, 2)
    good = stored(2, b"c", epoch=1)
    with pytest.raises(KafkaError) as refused:
        give(trio, damage(bytearray(good)), high_watermark=2)
    assert (refused.value.code, logs(trio, 2), trio[2].high_watermark) == (code, before, 0)
    with pytest.raises(KafkaError):
        give(trio, stored(2, b"c", epoch=1) + damage(bytearray(stored(3, b"d", epoch=1))))
    assert (trio[2].log.log_end_offset, dict(trio[2].producers.entries)) == (2, {})
    give(trio, good)
    trio.check()


@settings(max_examples=200, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 400),
    extra=st.binary(max_size=80),
)
def test_whatever_comes_is_taken_or_refused(
    changes: list[tuple[int, int]], cut: int, extra: bytes
) -> None:
    trio = elected()
    give(trio, stored(0, b"a", b"b"))
    sent = bytearray(
        stored(2, b"c", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        + encode_marker(
            EndTxnMarker(control_type=ControlType.ABORT, coordinator_epoch=1),
            producer_id=1,
            producer_epoch=0,
            timestamp=NOW,
            base_offset=3,
            leader_epoch=0,
        )
        + stored(4, b"d" * 50)
    )
    for position, value in changes:
        sent[position % len(sent)] = value
    data = bytes(sent[:cut]) + extra
    try:
        give(trio, data, high_watermark=9)
    except KafkaError as error:
        if error.code not in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD):
            raise
        assert (trio[2].log.log_end_offset, trio[2].high_watermark) == (2, 0)
    trio[2].check_invariants()
    trio[2].log.check_invariants()


def test_a_write_that_fails_leaves_what_was_written_before_it() -> None:
    trio = elected(segment_bytes=300)
    sent = [
        stored(n, b"v" * 100, producer_id=7, producer_epoch=0, base_sequence=n) for n in range(4)
    ]
    trio.hosts[2].backend.faults.fail_next(operation="writev", under="00000000000000000002.log")
    with pytest.raises(KafkaError) as refused:
        give(trio, b"".join(sent))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    follower = trio[2]
    end = follower.log.log_end_offset
    assert 0 < end < 4
    assert follower.producers.entries[7].last_sequence == end - 1
    give(trio, b"".join(sent[end:]))
    assert follower.producers.entries[7].last_sequence == 3
    assert b"".join(logs(trio, 2)) == b"".join(sent)


def test_batches_larger_than_a_segment_of_today_are_taken() -> None:
    trio = elected()
    small = replace(trio[2].config, segment_bytes=200)
    trio[2].configure(small, NOW)
    sent = [stored(0, b"a"), stored(1, b"b" * 500), stored(2, b"c" * 20), stored(3, b"d")]
    give(trio, b"".join(sent))
    assert [segment.base_offset for segment in trio[2].log.segments] == [0, 1, 2]
    assert b"".join(logs(trio, 2)) == b"".join(sent)
    trio.check()


def test_epochs_come_from_the_batches() -> None:
    trio = elected()
    trio.elect(1)
    trio.elect(1)
    give(trio, stored(0, b"a", epoch=0) + stored(1, b"b", epoch=2) + stored(2, b"c", epoch=2))
    entries = [(entry.epoch, entry.start_offset) for entry in trio[2].log.leader_epochs.entries]
    assert entries == [(0, 0), (2, 1)]
    position = trio[2].fetch_position()
    assert position is not None
    assert (position.last_fetched_epoch, position.current_leader_epoch) == (2, 2)


def test_a_leader_that_wrote_nothing_forgets_its_epoch() -> None:
    """Records of an older epoch, which it gets after an unclean election, would be taken for it."""
    trio = elected(3)
    trio.append(b"a")
    trio.catch_up(2)
    trio.append(b"b")
    trio.elect(2, isr=[2])
    assert trio[2].log.leader_epochs.latest_epoch == 1
    trio.elect(1, isr=[1])
    position = trio[2].fetch_position()
    assert position is not None
    assert position.last_fetched_epoch == 0
    trio.catch_up(2)
    assert trio[2].log.leader_epochs.epoch_at(1) == 0
    trio.check()


def test_a_promised_flush_comes_before_the_fetch_that_says_so() -> None:
    trio = elected(flush_messages=1)
    effects = give(trio, stored(0, b"a"))
    assert effects == [FlushLog(topic_partition=TP, at_ms=NOW)]
    assert trio[2].fetch_position() is None
    resumed = [ResumeFetching(topic_partition=TP)]
    assert [e for e in trio.hosts[2].flush() if isinstance(e, ResumeFetching)] == resumed
    position = trio[2].fetch_position()
    assert position is not None
    assert position.offset == 1


def test_a_promise_holds_for_what_was_written_before_a_write_that_failed() -> None:
    trio = elected(flush_messages=1, segment_bytes=300)
    sent = [stored(n, b"v" * 100) for n in range(4)]
    follower, host = trio[2], trio.hosts[2]
    host.backend.faults.fail_next(operation="writev", under="00000000000000000002.log")
    with pytest.raises(KafkaError):
        give(trio, b"".join(sent))
    assert (follower.log.log_end_offset, follower.fetch_position()) == (2, None)
    assert follower.plan_flush(NOW) == [FlushLog(topic_partition=TP, at_ms=NOW)]
    assert ResumeFetching(topic_partition=TP) in host.flush()
    position = follower.fetch_position()
    assert position is not None
    assert (position.offset, follower.log.recovery_point) == (2, 2)


def test_a_role_tells_that_there_is_somebody_to_fetch_from() -> None:
    trio = Trio(2)
    trio.elect(1, tell=False)
    assert ResumeFetching(topic_partition=TP) in trio[2].make_leader_or_follower(trio.state, 0)
    assert ResumeFetching(topic_partition=TP) not in trio[1].make_leader_or_follower(trio.state, 0)
    assert trio[1].fetch_position() is None
    trio.elect(NO_NODE)
    assert trio[2].fetch_position() is None


def test_an_offline_log_is_not_fetched_for() -> None:
    trio = elected()
    job = trio[2].log.start_flush(NOW, force=True)
    assert job is not None
    trio[2].log.fail_flush(job, StorageError("the disk is gone"))
    assert trio[2].fetch_position() is None
    assert give(trio, stored(0, b"a")) == []


# gaps


def with_gaps(trio: Trio) -> list[int]:
    """What compaction left in the leader's log; the offsets that are there."""
    for base_offset in (2, 3, 7, 20):
        data = stored(base_offset, b"x%d" % base_offset)
        trio[1].log.append([data], [read_header(data)], NOW)
    empty = encode_batch([], base_offset=21, leader_epoch=0, last_offset_delta=4)
    trio[1].log.append([empty], [read_header(empty)], NOW)
    return [2, 3, 7, 20]


@pytest.mark.parametrize("policy", [("delete",), ("compact",)])
def test_gaps_are_copied(policy: tuple[str, ...]) -> None:
    trio = elected(cleanup_policy=policy)
    offsets = with_gaps(trio)
    trio.catch_up(2)
    assert [offset for _, offset, _ in trio.hosts[2].records()] == offsets
    assert trio[2].log.log_end_offset == 26
    assert logs(trio, 2) == logs(trio, 1)
    trio.check()


@pytest.mark.parametrize("policy", [("delete",), ("compact",)])
def test_a_copy_with_gaps_survives_a_loss_of_power(policy: tuple[str, ...]) -> None:
    """The ``compacted`` file is durable before the first gap, so recovery keeps what it finds."""
    trio = elected(cleanup_policy=policy)
    with_gaps(trio)
    follower = trio[2]
    position = follower.fetch_position()
    assert position is not None
    read = trio.ask(2, position)
    assert read is not None
    assert read.records is not None
    give(trio, read.records.read())
    assert follower.fetch_position() is not None
    assert follower.log.recovery_point == 0
    trio.crash(2, 10**9)
    trio.restart(2)
    assert trio[2].log.log_end_offset == 26
    trio.catch_up(2)
    trio.check()


# the leader's log start


def test_a_log_start_inside_a_batch() -> None:
    trio = elected(3)
    trio.append(b"a", b"b", b"c", b"d")
    trio.append(b"e")
    trio.elect(1, isr=[1, 2])
    trio.catch_up(2)
    trio[1].delete_records(2)
    trio.fetch(3)
    position = trio[3].fetch_position()
    assert position == FetchPosition(
        offset=2, last_fetched_epoch=-1, current_leader_epoch=1, log_start_offset=2
    )
    trio.catch_up(3)
    assert logs(trio, 3) == logs(trio, 1)
    assert (trio[3].log.log_start_offset, trio[3].log.log_end_offset) == (2, 5)
    trio.hosts[3].checkpoint()
    trio.crash(3, 10**9)
    trio.restart(3)
    assert (trio[3].log.log_start_offset, trio[3].log.log_end_offset) == (2, 5)
    trio.check()


def test_who_ends_inside_of_the_leaders_batch_has_another_one_there() -> None:
    trio = elected()
    trio.append(b"a", b"b", b"c")
    trio.crash(2)
    trio.restart(2)
    trio.elect(2, isr=[2])
    trio.append(b"x", b"y", b"z", b"z")
    trio[2].delete_records(3)
    trio.catch_up(1)
    assert (trio[1].log.log_start_offset, trio[1].log.log_end_offset) == (3, 4)
    assert logs(trio, 1) == logs(trio, 2)
    trio.check()


def test_who_ends_where_the_leader_starts_may_have_another_past() -> None:
    """The transaction that it has open was never in the leader's log, which has no end for it."""
    trio = elected()
    trio.append(b"t", transactional=True, producer_id=5, epoch=0, sequence=0)
    trio.crash(2)
    trio.restart(2)
    trio.elect(2, isr=[2])
    trio.append(b"x")
    trio[2].delete_records(1)
    trio.append(b"y")
    assert dict(trio[1].producers.transactions.ongoing) == {0: 5}
    trio.catch_up(1)
    assert dict(trio[1].producers.transactions.ongoing) == {}
    assert trio[1].last_stable_offset == trio[1].high_watermark == 2
    trio.check()


def test_who_has_all_that_the_leader_has_left_stays_as_it_is() -> None:
    trio = elected()
    for value in (b"a", b"b"):
        trio.append(value)
    trio.catch_up(2)
    trio.fetch(2)
    trio[1].delete_records(2)
    trio.append(b"c")
    trio.catch_up(2)
    assert trio.values(2) == [b"c"]
    trio.check()


# reading from a follower (KIP-392)


def test_a_follower_answers_clients_up_to_its_own_high_watermark() -> None:
    trio = elected()
    trio.append(b"a")
    trio.append(b"b")
    trio.fetch(2)
    assert trio[2].high_watermark == 0
    with pytest.raises(KafkaError) as refused:
        trio[2].read(0, 1000)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert trio[2].read(0, 1000, only_leader=False).records is None
    trio.fetch(2)
    read = trio[2].read(0, 1000, only_leader=False, isolation=Isolation.READ_COMMITTED)
    assert (read.high_watermark, read.end_offset, read.size > 0) == (2, 2, True)
    assert read.records is not None
    read.records.release()
    with pytest.raises(KafkaError) as far:
        trio[2].read(3, 1000, only_leader=False)
    assert far.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(KafkaError) as fenced:
        trio[2].read(0, 1000, only_leader=False, current_leader_epoch=7)
    assert fenced.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH
    trio[2].drop_role()
    with pytest.raises(KafkaError) as gone:
        trio[2].read(0, 1000, only_leader=False)
    assert gone.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_batch_of_the_leader_that_a_client_wrote_is_not_judged_again() -> None:
    """Settings of the follower's topic config, clocks and sequences are the leader's to judge."""
    trio = elected(max_message_bytes=10)
    sent = stored(0, b"a" * 100, producer_id=3, producer_epoch=1, base_sequence=77)
    give(trio, sent + stored(1, b"b", producer_id=3, producer_epoch=0, base_sequence=5))
    assert trio[2].log.log_end_offset == 2
