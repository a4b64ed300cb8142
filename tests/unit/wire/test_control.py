"""Transaction markers: Kafka's bytes, malformed bytes, and the filter of aborted data."""

import struct
from collections.abc import Iterator

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import DecodeError, KafkaError
from sparklog.types import TimestampType
from sparklog.wire.protocol.messages.fetch import AbortedTransaction
from sparklog.wire.records.aborted import AbortedFilter
from sparklog.wire.records.batch import check_batch, iter_batches, read_header
from sparklog.wire.records.builder import Record, decode_records, encode_batch
from sparklog.wire.records.columns import decode_columns
from sparklog.wire.records.control import ControlType, EndTxnMarker, encode_marker, read_marker

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
INT32 = st.integers(-(2**31), 2**31 - 1)
#: Both as Kafka 4.3.1 builds them (``MemoryRecords.withEndTransactionMarker``): offset 42, time
#: 1700000000000, leader epoch 3, producer 7 of epoch 5, coordinator epoch 9.
KAFKAS = {
    ABORT: "000000000000002a0000004200000003020c4a9a130030000000000000018bcfe568000000018bcfe568"
    "0000000000000000070005ffffffff000000012000000008000000000c00000000000900",
    COMMIT: "000000000000002a0000004200000003"
    "02f8744c5b0030000000000000018bcfe568000000018bcfe568"
    "0000000000000000070005ffffffff000000012000000008000000010c00000000000900",
}


def marker(kind: ControlType, epoch: int = 0) -> EndTxnMarker:
    return EndTxnMarker(control_type=kind, coordinator_epoch=epoch)


@pytest.mark.parametrize("kind", ControlType)
def test_a_marker_has_the_bytes_that_kafka_gives_it(kind: ControlType) -> None:
    data = encode_marker(
        marker(kind, 9),
        producer_id=7,
        producer_epoch=5,
        timestamp=1_700_000_000_000,
        base_offset=42,
        leader_epoch=3,
    )
    assert data.hex() == KAFKAS[kind]


@settings(max_examples=200, deadline=None)
@given(
    kind=st.sampled_from(ControlType),
    coordinator_epoch=INT32,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    timestamp=st.integers(0, 2**50),
    by_broker=st.booleans(),
    base_offset=st.integers(0, 2**60),
)
def test_markers_come_back(
    kind: ControlType,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    by_broker: bool,
    base_offset: int,
) -> None:
    timestamp_type = TimestampType.LOG_APPEND_TIME if by_broker else TimestampType.CREATE_TIME
    data = encode_marker(
        marker(kind, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp=timestamp,
        timestamp_type=timestamp_type,
        base_offset=base_offset,
    )
    header = read_header(data)
    check_batch(data, 0, header)
    assert read_marker(data, 0, header) == marker(kind, coordinator_epoch)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch) == (producer_id, producer_epoch)
    assert (header.base_offset, header.record_count) == (base_offset, 1)
    assert (header.max_timestamp, header.timestamp_type) == (timestamp, timestamp_type)
    (record,) = decode_records(data, skip_control=False)
    theirs = ABORT_MARKER if kind is ABORT else COMMIT_MARKER
    assert record.key is not None
    assert ControlRecord.parse(record.key) == theirs
    assert decode_records(data) == []


def control(key: bytes | None, value: bytes | None) -> bytes:
    return encode_batch([Record(key=key, value=value, timestamp=1)], producer_id=1, control=True)


def reading(data: bytes) -> EndTxnMarker | None:
    return read_marker(data, 0, read_header(data))


@pytest.mark.parametrize("kind", [-1, 2, 3, 4, 5, 6, 7, 99])
def test_other_control_records_are_no_markers(kind: int) -> None:
    assert reading(control(struct.pack(">hh", 0, kind), b"anything")) is None


def test_a_control_batch_that_compaction_emptied_says_nothing() -> None:
    assert reading(encode_batch([], last_offset_delta=0, control=True)) is None


def test_later_versions_are_read_as_version_0() -> None:
    data = control(struct.pack(">hhi", 3, 1, 5), struct.pack(">hiq", 2, 8, 1))
    assert reading(data) == marker(COMMIT, 8)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"", "key of a control record has 0 bytes"),
        (b"\0\0\0", b"", "key of a control record has 3 bytes"),
        (b"\xff\xff\0\1", b"", "impossible version -1"),
        (b"\0\0\0\1", None, "value of a transaction marker has 0 bytes"),
        (b"\0\0\0\1", b"\0" * 5, "value of a transaction marker has 5 bytes"),
        (b"\0\0\0\0", b"\xff\xff\0\0\0\1", "impossible version -1"),
    ],
)
def test_malformed_markers_are_errors(key: bytes | None, value: bytes | None, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        reading(control(key, value))


@settings(max_examples=300, deadline=None)
@given(key=st.none() | st.binary(max_size=12), value=st.none() | st.binary(max_size=12))
def test_whatever_a_control_record_holds_it_is_read_or_refused(
    key: bytes | None, value: bytes | None
) -> None:
    try:
        found = reading(control(key, value))
    except DecodeError:
        return
    assert found is None or isinstance(found.control_type, ControlType)


# the filter


class Fetched:
    """A log that a test writes batch by batch, and the result of a fetch from it."""

    def __init__(self) -> None:
        self.data = b""
        self.end = 0
        self.aborted: list[AbortedTransaction] = []
        self._open: dict[int, tuple[int, list[int]]] = {}
        #: Offsets of records that a reader of committed data gets.
        self.committed: set[int] = set()

    def plain(self, count: int = 1) -> None:
        self.committed |= set(range(self.end, self.end + count))
        self._add(count)

    def transactional(self, producer_id: int, count: int = 1) -> None:
        _, offsets = self._open.setdefault(producer_id, (self.end, []))
        offsets += range(self.end, self.end + count)
        self._add(count, producer_id=producer_id, transactional=True)

    def finish(self, producer_id: int, kind: ControlType) -> None:
        first, offsets = self._open.pop(producer_id, (None, []))
        if kind is COMMIT:
            self.committed |= set(offsets)
        elif first is not None:
            self.aborted.append(AbortedTransaction(producer_id=producer_id, first_offset=first))
        self.data += encode_marker(
            marker(kind),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=5,
            base_offset=self.end,
        )
        self.end += 1

    def finish_all(self, kind: ControlType) -> None:
        for producer_id in sorted(self._open):
            self.finish(producer_id, kind)

    def _add(self, count: int, producer_id: int = -1, transactional: bool = False) -> None:
        self.data += encode_batch(
            [Record(value=b"v", timestamp=7)] * count,
            base_offset=self.end,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            transactional=transactional,
        )
        self.end += count

    def kept(self, aborted: list[AbortedTransaction] | None = None) -> Iterator[int]:
        drops = AbortedFilter(self.aborted if aborted is None else aborted).drops
        for header, start in iter_batches(self.data):
            if not drops(self.data, start, header) and not header.is_control:
                yield from range(header.base_offset, header.next_offset)


step = st.tuples(st.sampled_from(["plain", "data", "abort", "commit"]), st.integers(1, 3))


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(step, max_size=40), start=st.integers(0, 60))
def test_only_committed_records_are_left(steps: list[tuple[str, int]], start: int) -> None:
    log = Fetched()
    for kind, number in steps:
        match kind:
            case "plain":
                log.plain(number)
            case "data":
                log.transactional(number, number)
            case "abort":
                log.finish(number, ABORT)
            case _:
                log.finish(number, COMMIT)
    log.finish_all(ABORT)
    assert set(log.kept()) == log.committed
    offsets = [
        offset
        for batch in decode_columns(log.data, start_offset=start, aborted=log.aborted)
        for offset in batch.column("offset").to_pylist()
    ]
    assert offsets == sorted(offset for offset in log.committed if offset >= start)
    # A broker may name transactions outside of the response.
    more = [*log.aborted, AbortedTransaction(producer_id=1, first_offset=log.end)]
    assert set(log.kept(more)) == log.committed


def test_markers_count_although_their_batches_are_not_wanted() -> None:
    log = Fetched()
    log.transactional(1)
    log.finish(1, ABORT)
    log.transactional(1)
    log.finish(1, COMMIT)
    # Neither the timestamp bound nor the offsets may hide the abort marker from the filter.
    (batch,) = decode_columns(log.data, start_offset=2, aborted=log.aborted, min_timestamp=6)
    assert batch.column("offset").to_pylist() == [2]


def test_a_damaged_marker_is_an_error() -> None:
    log = Fetched()
    log.transactional(1)
    log.finish(1, ABORT)
    damaged = bytearray(log.data)
    damaged[-1] ^= 1
    log.data = bytes(damaged)
    with pytest.raises(KafkaError, match="CRC"):
        list(log.kept())
