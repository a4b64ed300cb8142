"""Transactions on followers: the same state, index and answers as at the leader, through cuts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition.partition import Partition
from sparklog.executors.partition.producer_state import TransactionEnd
from sparklog.types import Isolation
from sparklog.wire.records.batch import read_header
from sparklog.wire.records.builder import encode_batch
from sparklog.wire.records.control import ControlType, EndTxnMarker
from tests.unit.executors.partition.partition_maker import NOW
from tests.unit.executors.partition.replica_trio import EVERYTHING, Trio

COMMITTED = Isolation.READ_COMMITTED


def elected(**settings: object) -> Trio:
    trio = Trio(2, segment_bytes=700, index_interval_bytes=100, **settings)
    trio.elect(1)
    return trio


def data(trio: Trio, pid: int, *, epoch: int = 0) -> None:
    entry = trio.leader.producers.entries.get(pid)
    same = entry is not None and entry.producer_epoch == epoch
    sequence = entry.last_sequence + 1 if same and entry is not None else 0
    trio.append(b"p%d" % pid, producer_id=pid, epoch=epoch, sequence=sequence, transactional=True)


def end(trio: Trio, pid: int, kind: ControlType, *, epoch: int = 0) -> None:
    marker = EndTxnMarker(control_type=kind, coordinator_epoch=3)
    ended = TransactionEnd(producer_id=pid, producer_epoch=epoch, marker=marker)
    trio.leader.end_transaction(ended, now_ms=NOW)


def state_of(partition: Partition) -> object:
    """All that a replica knows of transactions, but for when it learnt of them."""
    txns = partition.producers.transactions
    log = partition.log
    found = log.read(
        log.log_start_offset, 1 << 20, end_offset=log.log_end_offset, with_aborted=True
    )
    if found.region is not None:
        found.region.release()
    return (
        {
            pid: entry._replace(batches=entry.batches[-1:], last_seen_ms=0)
            for pid, entry in partition.producers.entries.items()
        },
        dict(txns.ongoing),
        [txn for segment in log.segments for txn in segment.txn_index.read_all()],
        found.aborted,
        (partition.high_watermark, partition.last_stable_offset),
    )


def test_a_follower_knows_what_its_leader_knows() -> None:
    trio = elected()
    data(trio, 1)
    data(trio, 2)
    trio.append(b"plain")
    end(trio, 1, ControlType.ABORT)
    data(trio, 1)
    end(trio, 2, ControlType.COMMIT)
    end(trio, 1, ControlType.ABORT)
    end(trio, 7, ControlType.ABORT)  # of a producer that never wrote here
    data(trio, 3)
    trio.catch_up(2)
    trio.fetch(2)
    assert state_of(trio[2]) == state_of(trio[1])
    assert dict(trio[2].producers.transactions.ongoing) == {8: 3}
    (first, second) = trio[2].log.segments[0].txn_index.read_all()
    assert (first.producer_id, first.first_offset, first.last_offset) == (1, 0, 3)
    assert (second.producer_id, second.first_offset, second.last_offset) == (1, 4, 6)
    trio.check()


def test_a_transaction_that_is_decided_but_not_replicated_holds_readers_back() -> None:
    trio = elected()
    data(trio, 1)
    end(trio, 1, ControlType.COMMIT)
    trio.fetch(2)
    assert (trio[2].log.log_end_offset, trio[2].last_stable_offset) == (2, 0)
    trio.fetch(2)
    assert trio[2].last_stable_offset == 2
    read = trio[2].read(0, 1000, isolation=COMMITTED, only_leader=False)
    assert read.size > 0
    assert read.records is not None
    read.records.release()


def test_a_cut_opens_the_transaction_whose_end_it_takes_away() -> None:
    trio = elected()
    data(trio, 1)
    trio.catch_up(2)
    end(trio, 1, ControlType.ABORT)
    data(trio, 2)
    assert trio[1].log.segments[0].txn_index.entries == 1
    trio.elect(2, isr=[2])
    end(trio, 1, ControlType.COMMIT)
    trio.catch_up(1)
    trio.fetch(1)
    assert state_of(trio[1]) == state_of(trio[2])
    assert trio[1].log.segments[0].txn_index.entries == 0
    assert dict(trio[1].producers.transactions.ongoing) == {}
    trio.check()


def test_a_new_leader_goes_on_with_transactions_and_sequences() -> None:
    trio = elected()
    for _ in range(3):
        data(trio, 1)
    trio.append(b"i", producer_id=9, epoch=4, sequence=0)
    trio.catch_up(2)
    trio.elect(2, isr=[2])
    again = trio.append(b"i", producer_id=9, epoch=4, sequence=0)
    assert again == 3, "a repeat, which the former leader may have acknowledged"
    with pytest.raises(KafkaError) as gap:
        trio.append(b"i", producer_id=9, epoch=4, sequence=2)
    assert gap.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    with pytest.raises(KafkaError) as fenced:
        trio.append(b"i", producer_id=9, epoch=3, sequence=1)
    assert fenced.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    end(trio, 1, ControlType.ABORT)
    assert trio[2].last_stable_offset == trio[2].high_watermark == 5
    read = trio[2].read(0, 1000, isolation=COMMITTED)
    assert [(txn.producer_id, txn.first_offset) for txn in read.aborted] == [(1, 0)]
    assert read.records is not None
    read.records.release()


def test_control_batches_that_say_nothing_are_copied() -> None:
    """Compaction empties them; Raft's have other types."""
    trio = elected()
    data(trio, 1)
    empty = encode_batch(
        [], base_offset=1, leader_epoch=0, last_offset_delta=0, control=True, transactional=True,
        producer_id=1, producer_epoch=0,
    )  # fmt: skip
    trio[1].log.append([empty], [read_header(empty)], NOW)
    trio.catch_up(2)
    assert trio[2].log.log_end_offset == 2
    assert dict(trio[2].producers.transactions.ongoing) == {0: 1}


def test_data_that_compaction_emptied_opens_no_transaction() -> None:
    """The batch stays for the sequence of its producer, and the marker may be gone."""
    trio = elected()
    empty = encode_batch(
        [], base_offset=0, leader_epoch=0, last_offset_delta=2, transactional=True,
        producer_id=1, producer_epoch=0, base_sequence=4,
    )  # fmt: skip
    trio[1].log.append([empty], [read_header(empty)], NOW)
    trio.catch_up(2)
    assert trio[2].log.log_end_offset == 3
    assert trio[2].producers.entries[1].last_sequence == 6
    assert dict(trio[2].producers.transactions.ongoing) == {}


def test_producers_of_replicas_expire_by_when_they_were_copied() -> None:
    trio = elected()
    trio.append(b"old", timestamp=NOW - 10**9, producer_id=9, epoch=0, sequence=0)
    trio.catch_up(2)
    assert trio[2].producers.expire(NOW + 10, 1000) == 0
    assert trio[2].producers.expire(NOW + 1000, 1000) == 1


KINDS = (*["data"] * 3, "plain", *["abort"] * 2, "commit", "fetch", "fetch", "swap", "crash")


@settings(max_examples=60, deadline=None)
@given(
    moves=st.lists(
        st.tuples(st.sampled_from(KINDS), st.integers(1, 3), st.integers(1, 300)),
        min_size=5,
        max_size=60,
    )
)
def test_in_any_order(moves: list[tuple[str, int, int]]) -> None:
    """With leaders that change before all was copied, and answers cut at any size."""
    trio = elected()
    for kind, pid, size in moves:
        other = 3 - trio.state.leader
        if kind == "data":
            data(trio, pid)
        elif kind == "plain":
            trio.append(*[b"x"] * pid)
        elif kind == "abort":
            end(trio, pid, ControlType.ABORT)
        elif kind == "commit":
            end(trio, pid, ControlType.COMMIT)
        elif kind == "fetch":
            trio.fetch(other, max_bytes=size)
        elif kind == "swap":
            trio.elect(other, isr=[other])
        else:
            trio.hosts[other].checkpoint()
            trio.crash(other, size if pid == 1 else EVERYTHING)
            trio.restart(other)
        for host in trio.hosts.values():
            host.replica.check_invariants()
    other = 3 - trio.state.leader
    trio.catch_up(other)
    trio.change_isr(1, 2)
    trio.catch_up(other)
    trio.fetch(other)
    assert state_of(trio[1]) == state_of(trio[2])
    trio.check()
