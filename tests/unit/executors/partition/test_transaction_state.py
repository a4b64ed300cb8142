"""Transactions of one partition, judged as by ProducerStateManager and ProducerAppendInfo."""

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log.txn_index import AbortedTxn
from sparklog.executors.partition.producer_entry import BatchMetadata, ProducerEntry
from sparklog.executors.partition.producer_state import (
    Accepted,
    AppendOrigin,
    Duplicate,
    Ended,
    ProducerStateManager,
    TransactionEnd,
)
from sparklog.types import NO_OFFSET, TopicPartition
from sparklog.wire.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from sparklog.wire.records.control import ControlType, EndTxnMarker

TP = TopicPartition("t", 0)
NOW = 1000
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def header(
    sequence: int,
    offset: int,
    *,
    pid: int = 7,
    epoch: int = 0,
    count: int = 1,
    attributes: int = TRANSACTIONAL_BIT,
    ts: int = 50,
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=49,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
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
    sequence: int,
    offset: int,
    *,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    **fields: int,
) -> Accepted | Duplicate:
    batch = header(sequence, offset, **fields)
    judged = state.prepare(
        batch,
        base_offset=offset,
        timestamp=batch.max_timestamp,
        origin=origin,
        now_ms=NOW,
        verified=True,
    )
    if isinstance(judged, Accepted):
        state.apply(judged)
    state.check_invariants()
    return judged


def end(
    state: ProducerStateManager,
    kind: ControlType,
    offset: int,
    *,
    pid: int = 7,
    epoch: int = 0,
    coordinator_epoch: int = 3,
    version: int = 0,
) -> Ended:
    wish = TransactionEnd(
        producer_id=pid,
        producer_epoch=epoch,
        marker=EndTxnMarker(control_type=kind, coordinator_epoch=coordinator_epoch),
        transaction_version=version,
    )
    before = dict(state.entries)
    try:
        ended = state.prepare_end(wish, offset=offset, timestamp=60, now_ms=NOW)
    finally:
        assert state.entries == before
    state.apply_end(ended)
    state.check_invariants()
    return ended


def first_unstable(state: ProducerStateManager) -> int | None:
    return state.transactions.first_unstable_offset


def test_a_transaction_runs_from_its_first_batch_to_its_marker() -> None:
    state = ProducerStateManager(TP)
    send(state, 0, 10, count=2)
    send(state, 2, 12)
    entry = ProducerEntry(
        producer_id=7,
        producer_epoch=0,
        batches=(BatchMetadata(1, 11, 1, 50), BatchMetadata(2, 12, 0, 50)),
        last_timestamp=50,
        current_txn_first_offset=10,
        last_seen_ms=NOW,
    )
    assert state.entries == {7: entry}
    assert state.transactions.ongoing == {10: 7}
    after = entry._replace(
        coordinator_epoch=3, current_txn_first_offset=NO_OFFSET, last_timestamp=60
    )
    assert end(state, COMMIT, 13) == Ended(after, 10, 13, None)
    assert state.entries == {7: after}
    # Ended, but the marker is not replicated yet.
    assert (dict(state.transactions.ongoing), state.transactions.unreplicated) == ({}, {10: 13})
    assert first_unstable(state) == 10
    assert not state.transactions.replicate(13)
    assert state.transactions.replicate(14)
    assert first_unstable(state) is None
    # The same epoch goes on with the next sequence.
    send(state, 3, 14)
    assert first_unstable(state) == 14


def test_an_abort_says_what_was_stable_when_it_came() -> None:
    state = ProducerStateManager(TP)
    send(state, 0, 10, pid=1)
    send(state, 0, 11, pid=2)
    send(state, 0, 12, pid=3)
    assert end(state, ABORT, 13, pid=2).aborted == AbortedTxn(2, 11, 13, 10)
    assert end(state, ABORT, 14, pid=1).aborted == AbortedTxn(1, 10, 14, 12)
    assert end(state, ABORT, 15, pid=3).aborted == AbortedTxn(3, 12, 15, 16)


def test_the_first_unstable_offset_is_of_the_earliest_that_is_open_or_not_replicated() -> None:
    state = ProducerStateManager(TP)
    seen = [first_unstable(state)]
    send(state, 0, 0, pid=1)
    send(state, 0, 1, pid=2)
    send(state, 0, 2, pid=3)
    seen.append(first_unstable(state))
    end(state, COMMIT, 3, pid=2)
    end(state, ABORT, 4, pid=1)
    seen.append(first_unstable(state))
    state.transactions.replicate(4)  # the marker at 3, not that at 4
    seen.append(first_unstable(state))
    state.transactions.replicate(5)
    seen.append(first_unstable(state))
    end(state, COMMIT, 5, pid=3)
    state.transactions.replicate(6)
    assert [*seen, first_unstable(state)] == [None, 0, 0, 0, 2, None]


def test_a_marker_without_transaction_is_taken_and_aborts_nothing() -> None:
    state = ProducerStateManager(TP)
    entry = ProducerEntry(
        producer_id=7, producer_epoch=4, last_timestamp=60, coordinator_epoch=3, last_seen_ms=NOW
    )
    assert end(state, ABORT, 0, epoch=4) == Ended(entry, NO_OFFSET, 0, None)
    assert end(state, ABORT, 1, epoch=4) == Ended(entry, NO_OFFSET, 1, None)
    assert first_unstable(state) is None
    # Its epoch fences, and sequences begin at 0.
    assert code_of(lambda: send(state, 0, 2, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(lambda: send(state, 1, 2, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(state, 0, 2, epoch=4)


def test_a_marker_with_a_bumped_epoch_fences_and_forgets_the_old_sequences() -> None:
    state = ProducerStateManager(TP)
    send(state, 0, 0, count=3)
    end(state, ABORT, 3, epoch=1)
    assert state.entries[7].batches == ()
    assert code_of(lambda: send(state, 3, 4)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(lambda: send(state, 3, 4, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert isinstance(send(state, 0, 4, epoch=1), Accepted)


def code_of(call: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call()  # type: ignore[operator]
    return caught.value.code


@pytest.mark.parametrize(
    ("version", "epoch", "is_open", "refused"),
    [
        (0, 4, True, True),
        (0, 5, True, False),
        (1, 5, True, False),
        (1, 6, True, False),
        # From version 2 on every marker bumps: the transaction's own epoch is a marker of the past.
        (2, 4, True, True),
        (2, 5, True, True),
        (2, 6, True, False),
        # Repeated by a coordinator that got no answer.
        (2, 5, False, False),
        (2, 4, False, True),
        (2, 6, False, False),
    ],
)
def test_epochs_of_markers(version: int, epoch: int, is_open: bool, refused: bool) -> None:
    state = ProducerStateManager(TP)
    send(state, 0, 0, epoch=5)
    if not is_open:
        end(state, COMMIT, 1, epoch=5)
    if refused:
        code = code_of(lambda: end(state, COMMIT, 2, epoch=epoch, version=version))
        assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    else:
        assert end(state, COMMIT, 2, epoch=epoch, version=version).entry.producer_epoch == epoch


def test_an_older_coordinator_is_fenced() -> None:
    state = ProducerStateManager(TP)
    send(state, 0, 0)
    end(state, COMMIT, 1, coordinator_epoch=5)
    send(state, 1, 2)
    fenced = code_of(lambda: end(state, ABORT, 3, coordinator_epoch=4))
    assert fenced is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert first_unstable(state) == 0
    end(state, ABORT, 3, coordinator_epoch=5)
    assert state.entries[7].coordinator_epoch == 5


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_a_batch_outside_of_the_open_transaction_is_refused(origin: AppendOrigin) -> None:
    state = ProducerStateManager(TP)
    send(state, 0, 0, origin=origin)
    refusal = code_of(lambda: send(state, 1, 1, attributes=0, origin=origin))
    assert refusal is ErrorCode.INVALID_TXN_STATE
    end(state, COMMIT, 1)
    send(state, 1, 2, attributes=0, origin=origin)


def test_a_repeat_of_a_transactional_batch_is_a_duplicate_also_after_the_marker() -> None:
    state = ProducerStateManager(TP)
    send(state, 0, 0, count=3)
    end(state, COMMIT, 3)
    assert send(state, 0, 4, count=3) == Duplicate(base_offset=0, last_offset=2, timestamp=50)
    assert dict(state.transactions.ongoing) == {}


def test_batches_that_are_not_written_yet_are_in_the_transaction_too() -> None:
    state = ProducerStateManager(TP)
    first = state.prepare(
        header(0, 5),
        base_offset=5,
        timestamp=50,
        origin=AppendOrigin.CLIENT,
        now_ms=NOW,
        verified=True,
    )
    assert isinstance(first, Accepted)
    assert first.entry is not None
    plain = header(1, 6, attributes=0)
    with pytest.raises(KafkaError, match="not transactional"):
        state.prepare(
            plain,
            base_offset=6,
            timestamp=50,
            origin=AppendOrigin.CLIENT,
            now_ms=NOW,
            ahead={7: first.entry},
        )
    assert dict(state.transactions.ongoing) == {}


def test_an_open_transaction_keeps_its_producer_from_expiring() -> None:
    state = ProducerStateManager(TP)
    send(state, 0, 0, pid=1)
    send(state, 0, 1, pid=2, attributes=0)
    assert state.expire(NOW + 10**9, 1) == 1
    assert list(state.entries) == [1]
    end(state, ABORT, 2, pid=1)
    assert state.expire(NOW, 1) == 0
    assert state.expire(NOW + 1, 1) == 1


def marker_header(offset: int, *, pid: int = 7, epoch: int = 0) -> BatchHeader:
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    return header(-1, offset, pid=pid, epoch=epoch, attributes=attributes, ts=60)


def test_replaying_a_log_gives_the_state_of_the_appends() -> None:
    written, replayed = ProducerStateManager(TP), ProducerStateManager(TP)
    aborted: list[AbortedTxn | None] = []
    for offset in range(40):
        pid = offset * 7 % 3
        if offset % 4 == 3:
            kind = ABORT if offset % 8 == 3 else COMMIT
            aborted.append(end(written, kind, offset, pid=pid).aborted)
            marker = EndTxnMarker(control_type=kind, coordinator_epoch=3)
            assert replayed.replay(marker_header(offset, pid=pid), NOW, marker) == aborted[-1]
        else:
            sequence = written.entries[pid].last_sequence + 1 if pid in written.entries else 0
            send(written, sequence, offset, pid=pid)
            assert replayed.replay(header(sequence, offset, pid=pid), NOW) is None
    assert replayed.entries == written.entries
    assert replayed.transactions.ongoing == written.transactions.ongoing
    assert replayed.transactions.unreplicated == written.transactions.unreplicated
    assert first_unstable(replayed) == first_unstable(written)
    assert any(aborted)
    replayed.check_invariants()


def test_control_batches_of_other_kinds_leave_no_trace() -> None:
    state = ProducerStateManager(TP)
    state.replay(marker_header(3), NOW, None)
    assert dict(state.entries) == {}


def test_a_snapshot_keeps_open_transactions_and_coordinator_epochs() -> None:
    state, loaded = ProducerStateManager(TP), ProducerStateManager(TP)
    send(state, 0, 0, pid=9)
    end(state, COMMIT, 1, pid=9, coordinator_epoch=8)
    send(state, 0, 2, pid=8)
    send(state, 0, 3, pid=7)
    send(state, 1, 4, pid=9)
    end(state, ABORT, 5, pid=6)
    loaded.load_snapshot(state.to_snapshot(), NOW)
    loaded.check_invariants()
    assert loaded.entries == state.entries
    assert list(loaded.transactions.ongoing.items()) == [(2, 8), (3, 7), (4, 9)]
    assert first_unstable(loaded) == 2
    loaded.clear()
    loaded.check_invariants()
    assert (dict(loaded.entries), first_unstable(loaded)) == ({}, None)
