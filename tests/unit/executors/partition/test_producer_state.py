"""Idempotent producers, as Kafka's ProducerStateManager judges them."""

from dataclasses import replace

import pytest

from sparklog.errors import DecodeError, ErrorCode, KafkaError
from sparklog.executors.log import decode_snapshot, encode_snapshot
from sparklog.executors.partition.producer_entry import BatchMetadata, ProducerEntry
from sparklog.executors.partition.producer_state import (
    Accepted,
    AppendOrigin,
    Duplicate,
    ProducerStateManager,
)
from sparklog.types import COORDINATOR_PRODUCER_ID_BASE, MAX_INT32, TopicPartition
from sparklog.wire.records.batch import BatchHeader

TP = TopicPartition("t", 0)


def header(
    sequence: int, count: int = 1, *, pid: int = 7, epoch: int = 0, offset: int = 0, ts: int = 50
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=49,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=ts,
        max_timestamp=ts,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def send(
    state: ProducerStateManager,
    batch: BatchHeader,
    offset: int,
    *,
    now_ms: int = 1000,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> Accepted | Duplicate:
    judged = state.prepare(
        batch, base_offset=offset, timestamp=batch.max_timestamp, origin=origin, now_ms=now_ms
    )
    if isinstance(judged, Accepted):
        state.apply(judged)
    state.check_invariants()
    return judged


def refusal(state: ProducerStateManager, batch: BatchHeader, offset: int = 100) -> ErrorCode:
    before = dict(state.entries)
    with pytest.raises(KafkaError) as caught:
        send(state, batch, offset)
    assert state.entries == before
    return caught.value.code


def test_a_batch_without_producer_leaves_no_trace() -> None:
    state = ProducerStateManager(TP)
    assert send(state, header(-1, pid=-1, epoch=-1), 0) == Accepted(entry=None)
    assert state.entries == {}


def test_prepare_changes_nothing_until_apply() -> None:
    state = ProducerStateManager(TP)
    judged = state.prepare(
        header(0, 3), base_offset=10, timestamp=50, origin=AppendOrigin.CLIENT, now_ms=1
    )
    assert state.entries == {}
    entry = ProducerEntry(
        producer_id=7,
        producer_epoch=0,
        batches=(BatchMetadata(last_sequence=2, last_offset=12, offset_delta=2, timestamp=50),),
        last_timestamp=50,
        last_seen_ms=1,
    )
    assert judged == Accepted(entry=entry)
    assert isinstance(judged, Accepted)
    state.apply(judged)
    assert state.entries == {7: entry}


def test_any_of_the_last_five_batches_is_answered_with_its_old_offsets() -> None:
    state = ProducerStateManager(TP)
    for n in range(7):
        send(state, header(n * 2, 2, ts=50 + n), 100 + n * 2)
    for n in range(2, 7):
        assert send(state, header(n * 2, 2), 500) == Duplicate(
            base_offset=100 + n * 2, last_offset=101 + n * 2, timestamp=50 + n
        )
    for n in range(2):
        code = refusal(state, header(n * 2, 2))
        assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_part_of_a_known_batch_is_not_a_duplicate() -> None:
    state = ProducerStateManager(TP)
    send(state, header(0, 4), 0)
    assert refusal(state, header(0, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_refused() -> None:
    state = ProducerStateManager(TP)
    send(state, header(0, 4), 0)
    assert refusal(state, header(5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert isinstance(send(state, header(4), 4), Accepted)


def test_an_unknown_producer_may_start_anywhere() -> None:
    state = ProducerStateManager(TP)
    assert isinstance(send(state, header(41), 0), Accepted)
    assert refusal(state, header(43)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert isinstance(send(state, header(42), 1), Accepted)


def test_sequences_wrap_between_batches() -> None:
    state = ProducerStateManager(TP)
    send(state, header(MAX_INT32 - 1, 2), 0)
    assert isinstance(send(state, header(0, 2), 2), Accepted)
    assert state.entries[7].last_sequence == 1


def test_sequences_wrap_inside_a_batch() -> None:
    state = ProducerStateManager(TP)
    batch = header(MAX_INT32, 3)
    send(state, batch, 0)
    assert state.entries[7].last_sequence == 1
    assert state.entries[7].batches[-1].first_sequence == MAX_INT32
    assert send(state, batch, 3) == Duplicate(base_offset=0, last_offset=2, timestamp=50)
    assert isinstance(send(state, header(2), 3), Accepted)


def test_an_older_epoch_is_fenced() -> None:
    state = ProducerStateManager(TP)
    send(state, header(0, epoch=3), 0)
    assert refusal(state, header(1, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    # Even a repeat of what the older epoch wrote.
    assert refusal(state, header(0, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_starts_at_zero_and_forgets_the_older_batches() -> None:
    state = ProducerStateManager(TP)
    send(state, header(0, 5), 0)
    assert refusal(state, header(5, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(state, header(0, epoch=1), 5)
    assert [b.last_offset for b in state.entries[7].batches] == [5]
    assert state.entries[7].producer_epoch == 1


def test_replication_is_never_refused_and_never_deduplicated() -> None:
    state = ProducerStateManager(TP)
    send(state, header(0, 5, epoch=2), 0)
    replicated = AppendOrigin.REPLICATION
    assert isinstance(send(state, header(9, epoch=2), 5, origin=replicated), Accepted)
    assert isinstance(send(state, header(9, epoch=2), 6, origin=replicated), Accepted)


def test_a_coordinator_is_fenced_by_epoch_but_not_by_sequence() -> None:
    state = ProducerStateManager(TP)
    coordinator = AppendOrigin.COORDINATOR
    send(state, header(-1, epoch=4), 0, origin=coordinator)
    assert isinstance(send(state, header(-1, epoch=4), 1, origin=coordinator), Accepted)
    with pytest.raises(KafkaError) as caught:
        send(state, header(-1, epoch=3), 2, origin=coordinator)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_replaying_a_log_gives_the_state_of_the_appends() -> None:
    written, replayed = ProducerStateManager(TP), ProducerStateManager(TP)
    for n in range(8):
        batch = header(n, offset=n, ts=n)
        send(written, batch, n, now_ms=0)
        replayed.replay(batch)
    replayed.replay(header(-1, pid=-1, offset=8))
    assert replayed.entries == written.entries


def test_a_snapshot_keeps_the_batches_that_may_be_sent_again() -> None:
    """A producer with several requests in flight repeats all of them after the leader's restart."""
    state, loaded = ProducerStateManager(TP), ProducerStateManager(TP)
    for n in range(7):
        send(state, header(n, ts=60 + n), n)
    send(state, header(0, 4, pid=9, epoch=2), 7)
    loaded.load_snapshot(state.to_snapshot(), now_ms=77)
    loaded.check_invariants()
    assert loaded.entries == {
        pid: entry._replace(last_seen_ms=77) for pid, entry in state.entries.items()
    }
    assert send(loaded, header(2), 11) == Duplicate(base_offset=2, last_offset=2, timestamp=62)
    assert send(loaded, header(6), 11) == Duplicate(base_offset=6, last_offset=6, timestamp=66)
    assert refusal(loaded, header(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert isinstance(send(loaded, header(7), 11), Accepted)


def test_of_several_entries_of_a_producer_the_last_has_its_newest_batch() -> None:
    """Kafka writes and reads one batch per producer: what it reads last stays."""
    state = ProducerStateManager(TP)
    for n in range(2):
        send(state, header(n, ts=60 + n), n)
    rows = decode_snapshot(state.to_snapshot())
    assert [(row.last_sequence, row.last_offset, row.timestamp) for row in rows] == [
        (0, 0, 60),
        (1, 1, 61),
    ]
    state.load_snapshot(encode_snapshot(rows[-1:]))
    assert send(state, header(1), 2) == Duplicate(base_offset=1, last_offset=1, timestamp=61)
    older = replace(rows[0], producer_epoch=5)
    state.load_snapshot(encode_snapshot([older, rows[1]]))
    assert len(state.entries[7].batches) == 1


def test_a_damaged_snapshot_is_refused_and_changes_nothing() -> None:
    state = ProducerStateManager(TP)
    send(state, header(0), 0)
    before = dict(state.entries)
    data = bytearray(state.to_snapshot())
    data[-1] ^= 1
    with pytest.raises(DecodeError):
        state.load_snapshot(bytes(data))
    assert state.entries == before


def test_idle_producers_expire_by_the_brokers_clock_not_by_event_time() -> None:
    state = ProducerStateManager(TP)
    send(state, header(0, ts=1), 0, now_ms=1_000)
    send(state, header(0, pid=8, ts=9_999_999), 1, now_ms=2_000)
    assert state.expire(1_999, 1_000) == 0
    assert state.expire(2_000, 1_000) == 1
    assert list(state.entries) == [8]
    # Forgotten: any sequence starts anew.
    assert isinstance(send(state, header(5), 2), Accepted)


def test_a_coordinator_never_expires() -> None:
    """Its epoch fences the coordinators before it, however long it wrote nothing."""
    state = ProducerStateManager(TP)
    send(state, header(0, pid=COORDINATOR_PRODUCER_ID_BASE, epoch=3), 0, now_ms=0)
    send(state, header(0, pid=COORDINATOR_PRODUCER_ID_BASE - 1), 1, now_ms=0)
    assert state.expire(10**12, 1_000) == 1
    late = header(0, pid=COORDINATOR_PRODUCER_ID_BASE, epoch=2)
    assert refusal(state, late) is ErrorCode.INVALID_PRODUCER_EPOCH
