"""Kafka's file formats, byte for byte."""

import struct
import uuid

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CorruptLogError, DecodeError, ErrorCode, KafkaError
from sparklog.executors.log.checkpoint import (
    EpochEntry,
    decode_epochs,
    decode_offsets,
    encode_epochs,
    encode_offsets,
)
from sparklog.executors.log.names import file_name, offsets_with, parse_file_name
from sparklog.executors.log.offset_index import unpack_offset_index
from sparklog.executors.log.partition_metadata import (
    claim_partition_dir,
    decode_partition_metadata,
    encode_partition_metadata,
)
from sparklog.executors.log.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)
from sparklog.executors.log.time_index import unpack_time_index
from sparklog.segment_files.index_entries import OffsetPosition, TimestampOffset
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import TopicPartition

INT16, INT32, INT64 = (st.integers(-(2 ** (b - 1)), 2 ** (b - 1) - 1) for b in (16, 32, 64))
ENTRIES = st.builds(
    ProducerSnapshotEntry,
    producer_id=INT64,
    producer_epoch=INT16,
    last_sequence=INT32,
    last_offset=INT64,
    offset_delta=INT32,
    timestamp=INT64,
    coordinator_epoch=INT32,
    current_txn_first_offset=INT64,
)
ONE = ProducerSnapshotEntry(
    producer_id=7,
    producer_epoch=2,
    last_sequence=41,
    last_offset=1000,
    offset_delta=9,
    timestamp=1_700_000_000_000,
    coordinator_epoch=-1,
    current_txn_first_offset=-1,
)


def test_a_snapshot_has_kafkas_bytes() -> None:
    body = struct.pack(">i", 1) + struct.pack(
        ">qhiqiqiq", 7, 2, 41, 1000, 9, 1_700_000_000_000, -1, -1
    )
    assert encode_snapshot([ONE]) == struct.pack(">hI", 1, crc32c(body)) + body
    assert len(encode_snapshot([ONE])) == 2 + 4 + 4 + 46


@given(st.lists(ENTRIES, max_size=5))
def test_a_snapshot_comes_back(entries: list[ProducerSnapshotEntry]) -> None:
    assert decode_snapshot(encode_snapshot(entries)) == entries


@given(st.data())
def test_a_damaged_snapshot_is_refused(data: st.DataObject) -> None:
    whole = encode_snapshot([ONE, ONE])
    position = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[position] ^= data.draw(st.integers(1, 255))
    for bad in (bytes(flipped), whole[:position], whole + b"\0"):
        with pytest.raises(DecodeError):
            decode_snapshot(bad)


def test_checkpoints_are_kafkas_text() -> None:
    epochs = [EpochEntry(0, 0), EpochEntry(3, 120)]
    assert encode_epochs(epochs) == b"0\n2\n0 0\n3 120\n"
    assert decode_epochs(b"0\n2\n0 0\n3 120\n") == epochs
    offsets = {TopicPartition("a.b", 0): 5, TopicPartition("c", 12): 2**40}
    assert encode_offsets(offsets) == b"0\n2\na.b 0 5\nc 12 1099511627776\n"
    assert decode_offsets(encode_offsets(offsets)) == offsets
    assert encode_epochs([]) == b"0\n0\n"
    assert decode_epochs(b"0\n0\n") == []


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0 0",
        b"0\n1\n0\n",
        b"0\n1\n0 x\n",
        b"0\n1\n-1 0\n",
        b"0\n1\n0 0 0\n",
        b"0\n2\n3 5\n2 9\n",
        b"0\n2\n3 5\n4 4\n",
        b"\xff\n0\n",
        b"\0" * 40,
    ],
)
def test_a_damaged_epoch_checkpoint_is_refused(text: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_epochs(text)


def test_a_damaged_offset_checkpoint_is_refused() -> None:
    for text in (b"0\n1\nt 0\n", b"0\n1\nt 0 -5\n", b"0\n1\nt zero 5\n"):
        with pytest.raises(DecodeError):
            decode_offsets(text)


def test_partition_metadata_names_the_topic_id_as_kafka_does() -> None:
    topic_id = uuid.UUID("ffffffff-0000-4000-8000-0000000000fb")
    data = encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: _____wAAQACAAAAAAAAA-w\n"
    assert decode_partition_metadata(data) == topic_id
    for bad in (b"", b"version: 1\n", b"version: 0\ntopic_id: ??\n", b"version: 0\n", b"\xff"):
        with pytest.raises(DecodeError):
            decode_partition_metadata(bad)


def test_a_partition_directory_belongs_to_one_topic() -> None:
    half = MemoryBackend()
    half.make_folder("t-0")
    mine, other = uuid.UUID(int=1), uuid.UUID(int=2)
    assert claim_partition_dir(half, "t-0", None) is None
    assert claim_partition_dir(half, "t-0", mine) == mine
    assert claim_partition_dir(half, "t-0", None) == mine
    with pytest.raises(KafkaError) as refusal:
        claim_partition_dir(half, "t-0", other)
    assert refusal.value.code == ErrorCode.INCONSISTENT_TOPIC_ID
    half.put("t-0/partition.metadata", b"?")
    with pytest.raises(CorruptLogError):
        claim_partition_dir(half, "t-0", mine)


def test_file_names_have_twenty_digits() -> None:
    assert file_name(42, ".log") == "00000000000000000042.log"
    assert parse_file_name("00000000000000000042.index") == (42, ".index")
    assert parse_file_name("00000000000000000042.log.deleted") == (42, ".log.deleted")
    for other in ("leader-epoch-checkpoint", "42.log", "0000000000000000004x.log", "0" * 20):
        assert parse_file_name(other) is None
    names = ["00000000000000000042.log", "00000000000000000007.log", "00000000000000000009.index"]
    assert offsets_with(names, ".log") == [7, 42]


def test_index_entries_have_kafkas_bytes() -> None:
    offsets = struct.pack(">iiii", 9, 4200, 30, 9000)
    expected = [OffsetPosition(109, 4200), OffsetPosition(130, 9000)]
    assert unpack_offset_index(offsets, 100) == expected
    assert unpack_offset_index(offsets + bytes(64), 100) == expected
    times = struct.pack(">qiqi", 5, 9, 8, 30)
    entries = [TimestampOffset(5, 109), TimestampOffset(8, 130)]
    assert unpack_time_index(times, 100) == entries
    assert unpack_time_index(times + bytes(120) + b"\1", 100) == entries
    assert unpack_time_index(bytes(120), 100) == []
    assert unpack_time_index(struct.pack(">qi", 0, 0), 100) == [TimestampOffset(0, 100)]
