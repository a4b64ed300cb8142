"""Batches that are appended together come to what they would have come to one by one."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import (
    Appended,
    CompleteDelayedFetches,
    CompleteDelayedProduces,
    RequiredOffset,
    SentBatch,
)
from sparklog.executors.partition.partition import Partition
from tests.unit.executors.partition.partition_maker import NOW, TP, Maker, batch, flush, led

Open = Callable[..., Partition]


def damaged(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 1])


@st.composite
def sent_batches(draw: st.DrawFn) -> SentBatch:
    """Of producers 1 to 3 with small sequences, so that gaps and repeats are frequent."""
    producer = draw(st.integers(0, 3))
    values = [b"v" * draw(st.integers(0, 40)) for _ in range(draw(st.integers(1, 2)))]
    known = (
        {"producer_id": producer, "epoch": draw(st.integers(0, 1)),
         "sequence": draw(st.integers(0, 4))}
        if producer
        else {}
    )  # fmt: skip
    records: bytes | None = batch(*values, **known)
    assert records is not None
    kind = draw(st.sampled_from(["good"] * 6 + ["damaged", "empty"]))
    if kind == "damaged":
        records = damaged(records)
    elif kind == "empty":
        records = None
    return records, draw(st.sampled_from([0, 1, -1]))


def one_by_one(partition: Partition, sent: list[SentBatch]) -> list[Appended | KafkaError]:
    outcomes: list[Appended | KafkaError] = []
    for records, acks in sent:
        try:
            outcomes.append(partition.append_as_leader(records, acks=acks, now_ms=NOW))
        except KafkaError as error:
            outcomes.append(error)
    return outcomes


def plain(outcomes: list[Appended | KafkaError]) -> list[object]:
    """Effects and what was still waited for depend on when they are looked at."""
    return [
        (outcome.code, outcome.message)
        if isinstance(outcome, KafkaError)
        else (*outcome[:5], outcome.refusal and outcome.refusal.code)
        for outcome in outcomes
    ]


@given(
    groups=st.lists(st.lists(sent_batches(), max_size=8), max_size=4),
    segment_bytes=st.sampled_from([300, 10_000]),
    replicas=st.sampled_from([(1,), (1, 2)]),
)
def test_together_is_as_one_by_one(
    groups: list[list[SentBatch]], segment_bytes: int, replicas: tuple[int, ...]
) -> None:
    state = led(replicas=replicas, isr=replicas)
    together = Maker().open(state, segment_bytes=segment_bytes)
    alone = Maker().open(state, segment_bytes=segment_bytes)
    for group in groups:
        found = together.append_all_as_leader(group, now_ms=NOW)
        together.check_invariants()
        together.log.check_invariants()
        expected = one_by_one(alone, group)
        assert plain(found) == plain(expected)
        required_offsets = [getattr(outcome, "required_offset", None) for outcome in expected]
        if len(replicas) > 1:
            assert [
                getattr(outcome, "required_offset", None) for outcome in found
            ] == required_offsets
        assert together.high_watermark == alone.high_watermark
        assert together.producers.entries == alone.producers.entries
    assert content(together) == content(alone)
    assert all(segment.size <= segment_bytes for segment in together.log.segments)


def content(partition: Partition) -> bytes:
    data, offset, end = b"", 0, partition.log.log_end_offset
    while offset < end:
        read = partition.log.read(offset, 1 << 20, end_offset=end)
        assert read.region is not None
        data += read.region.read()
        offset = next(
            (s.base_offset for s in partition.log.segments if s.base_offset > read.first_offset),
            end,
        )
    return data


def test_a_group_is_one_write_and_wakes_readers_once(open_partition: Open) -> None:
    partition = open_partition()
    records = [batch(b"a"), batch(b"b", b"c"), batch(b"d")]
    outcomes = partition.append_all_as_leader([(data, -1) for data in records], now_ms=NOW)
    sizes = [len(data) for data in records]
    completes = (
        CompleteDelayedFetches(topic_partition=TP, size=sum(sizes)),
        CompleteDelayedProduces(topic_partition=TP),
    )
    assert outcomes == [
        Appended(base_offset=0, last_offset=0, log_start_offset=0, size=sizes[0]),
        Appended(base_offset=1, last_offset=2, log_start_offset=0, size=sizes[1]),
        Appended(
            base_offset=3, last_offset=3, log_start_offset=0, size=sizes[2], effects=completes
        ),
    ]


def test_a_failed_write_fails_all_and_changes_nothing() -> None:
    maker = Maker()
    partition = maker.open()
    first = batch(b"a", producer_id=9, epoch=0, sequence=0)
    assert partition.append_as_leader(first, acks=-1, now_ms=NOW).base_offset == 0
    entries = dict(partition.producers.entries)
    end, size = partition.log.log_end_offset, partition.log.size
    second = batch(b"b", producer_id=9, epoch=0, sequence=1)
    third = batch(b"c", producer_id=9, epoch=0, sequence=2)
    maker.backend.faults.fail_next(operation="writev", under="t-0")
    outcomes = partition.append_all_as_leader(
        [(second, -1), (damaged(second), -1), (third, 1), (second, -1)], now_ms=NOW
    )
    storage, corrupt = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE
    codes = [outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)]
    assert codes == [storage, corrupt, storage, storage]
    assert (partition.log.log_end_offset, partition.log.size) == (end, size)
    assert dict(partition.producers.entries) == entries
    again = partition.append_all_as_leader([(second, -1), (third, -1)], now_ms=NOW)
    assert [getattr(outcome, "base_offset", None) for outcome in again] == [1, 2]
    partition.log.check_invariants()


def test_whoever_does_not_lead_refuses_all(open_partition: Open) -> None:
    partition = open_partition(led(leader=2, replicas=(1, 2), isr=(2,)))
    outcomes = partition.append_all_as_leader([(batch(b"a"), -1), (None, 1)], now_ms=NOW)
    assert [getattr(outcome, "code", None) for outcome in outcomes] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    ] * 2
    assert partition.log.log_end_offset == 0


def test_a_promised_flush_covers_the_group(open_partition: Open) -> None:
    partition = open_partition(flush_messages=1)
    outcomes = partition.append_all_as_leader([(batch(b"a"), 1), (batch(b"b"), -1)], now_ms=NOW)
    assert [getattr(outcome, "required_offset", None) for outcome in outcomes] == [
        RequiredOffset(offset=1, leader_epoch=0, committed=False),
        RequiredOffset(offset=2, leader_epoch=0, committed=True),
    ]
    flush(partition)
    required_offsets = [
        outcome.required_offset for outcome in outcomes if isinstance(outcome, Appended)
    ]
    assert [
        required is not None and partition.has_reached(required) for required in required_offsets
    ] == [True, True]


@pytest.mark.parametrize("acks", [1, -1])
def test_too_few_in_sync_replicas_refuse_only_who_asks_for_all(
    open_partition: Open, acks: int
) -> None:
    partition = open_partition(led(replicas=(1, 2), isr=(1,)), min_insync_replicas=2)
    first, second = partition.append_all_as_leader(
        [(batch(b"a"), acks), (batch(b"b"), 1)], now_ms=NOW
    )
    refused = isinstance(first, KafkaError) and first.code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert refused == (acks == -1)
    assert isinstance(second, Appended)
    assert second.base_offset == (0 if refused else 1)
