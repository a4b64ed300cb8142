"""Batches that a client may not send, and the code that it is told."""

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c

from sparklog.config import TopicConfig
from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition.batch_validation import (
    check_timestamps,
    read_client_batch,
    stamp_batch,
)
from sparklog.types import NO_TIMESTAMP, Compression
from sparklog.wire.records.batch import check_batch, pack_batch, read_header
from tests.support.bombs import bomb
from tests.unit.executors.partition.partition_maker import NOW, batch

CONFIG = TopicConfig()


def changed(position: int, form: str, value: int, *, sealed: bool = True) -> bytes:
    """A good batch with one header field overwritten, and a CRC that fits unless not ``sealed``."""
    data = bytearray(batch(b"a", b"b"))
    struct.pack_into(form, data, position, value)
    if sealed:
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def packed(section: bytes, count: int, codec: int = 0) -> bytes:
    """A batch with a right CRC around any bytes, which says ``count`` records."""
    return pack_batch(
        section, attributes=codec, record_count=count, last_offset_delta=count - 1,
        base_timestamp=0, max_timestamp=0,
    )  # fmt: skip


BAD: dict[str, tuple[Callable[[], bytes | None], ErrorCode]] = {
    "nothing": (lambda: None, ErrorCode.INVALID_RECORD),
    "no bytes": (lambda: b"", ErrorCode.INVALID_RECORD),
    "two batches": (lambda: batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
    "cut off": (lambda: batch(b"a")[:-1], ErrorCode.INVALID_RECORD),
    "bytes behind it": (lambda: batch(b"a") + b"abc", ErrorCode.CORRUPT_MESSAGE),
    "only a few bytes": (lambda: b"abc", ErrorCode.INVALID_RECORD),
    "length too small": (lambda: changed(8, ">i", 3), ErrorCode.CORRUPT_MESSAGE),
    "length negative": (lambda: changed(8, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
    "length too large": (lambda: changed(8, ">i", 2**31 - 1), ErrorCode.INVALID_RECORD),
    "magic 1": (lambda: changed(16, ">b", 1), ErrorCode.INVALID_RECORD),
    "magic 9": (lambda: changed(16, ">b", 9), ErrorCode.CORRUPT_MESSAGE),
    "wrong CRC": (lambda: changed(60, ">b", 9, sealed=False), ErrorCode.CORRUPT_MESSAGE),
    "unknown codec": (lambda: changed(21, ">h", 7), ErrorCode.INVALID_RECORD),
    "base offset": (lambda: changed(0, ">q", 5), ErrorCode.INVALID_RECORD),
    "no records": (lambda: changed(57, ">i", 0), ErrorCode.INVALID_RECORD),
    "record count": (lambda: changed(57, ">i", 3), ErrorCode.INVALID_RECORD),
    "last offset delta": (lambda: changed(23, ">i", -1), ErrorCode.INVALID_RECORD),
    "control batch": (lambda: batch(b"a", control=True), ErrorCode.INVALID_RECORD),
    "transactional without a producer": (
        lambda: batch(b"a", transactional=True),
        ErrorCode.INVALID_RECORD,
    ),
    "transactional with a negative sequence": (
        lambda: batch(b"a", transactional=True, producer_id=1, epoch=0, sequence=-1),
        ErrorCode.INVALID_RECORD,
    ),
    "negative sequence": (
        lambda: batch(b"a", producer_id=1, epoch=0, sequence=-1),
        ErrorCode.INVALID_RECORD,
    ),
    "negative epoch": (
        lambda: batch(b"a", producer_id=1, epoch=-1, sequence=0),
        ErrorCode.INVALID_RECORD,
    ),
    "more records than bytes": (
        lambda: packed(b"\x0c\x00\x00\x00\x01\x01\x00", 2),
        ErrorCode.INVALID_RECORD,
    ),
    "2^31 - 1 records": (lambda: packed(b"x" * 100, 2**31 - 1), ErrorCode.INVALID_RECORD),
    "2^31 - 1 records, zstd": (
        lambda: packed(b"x" * 1_000_000, 2**31 - 1, 4),
        ErrorCode.INVALID_RECORD,
    ),
    "more records than gzip can hold": (
        lambda: packed(b"x" * 70, 10_400, 1),
        ErrorCode.INVALID_RECORD,
    ),
    "LogAppendTime": (lambda: changed(21, ">h", 8), ErrorCode.INVALID_TIMESTAMP),
    "a delete horizon": (lambda: changed(21, ">h", 0x40), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_batches_are_refused(name: str) -> None:
    make, code = BAD[name]
    with pytest.raises(KafkaError) as caught:
        read_client_batch(make(), CONFIG)
    assert caught.value.code == code, caught.value


@pytest.mark.parametrize("codec", list(Compression))
def test_a_count_that_the_bytes_can_hold_is_not_doubted(codec: Compression) -> None:
    header = read_client_batch(bomb(1_000_000, codec), TopicConfig(max_message_bytes=2**30))
    assert header.record_count == 1_000_000


def test_sizes_are_limited_by_the_topic() -> None:
    data = batch(b"x" * 1000)
    with pytest.raises(KafkaError) as caught:
        read_client_batch(data, TopicConfig(max_message_bytes=len(data) - 1))
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(KafkaError) as caught:
        read_client_batch(data, TopicConfig(segment_bytes=len(data) - 1))
    assert caught.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    exact = TopicConfig(max_message_bytes=len(data), segment_bytes=len(data))
    assert read_client_batch(data, exact).size == len(data)


@pytest.mark.parametrize(
    ("timestamp", "allowed"),
    [(NOW - 100, True), (NOW - 101, False), (NOW + 50, True), (NOW + 51, False), (-1, True)],
)
def test_timestamps_stay_near_the_clock(timestamp: int, allowed: bool) -> None:
    config = TopicConfig(message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=50)
    header = read_header(batch(b"a", timestamp=timestamp))
    if allowed:
        check_timestamps(header, config, NOW)
        return
    with pytest.raises(KafkaError) as caught:
        check_timestamps(header, config, NOW)
    assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
    check_timestamps(header, TopicConfig(message_timestamp_type="LogAppendTime"), NOW)


@pytest.mark.parametrize("append_time", [NO_TIMESTAMP, NOW])
def test_stamping_in_place_and_on_a_copy_give_the_same_bytes(append_time: int) -> None:
    data = batch(b"a", b"b", timestamp=5)
    header = read_header(data)
    copied, stamped = stamp_batch(data, header, 42, 7, append_time)
    in_place, stamped_too = stamp_batch(bytearray(data), header, 42, 7, append_time)
    whole = b"".join(copied)
    assert whole == b"".join(in_place)
    assert stamped == stamped_too
    check_batch(whole, 0, read_header(whole))
    seen = read_header(whole)
    assert (seen.base_offset, seen.partition_leader_epoch) == (42, 7)
    assert (seen.max_timestamp, seen.attributes) == (stamped.max_timestamp, stamped.attributes)
    assert data == batch(b"a", b"b", timestamp=5)
