"""Pieces of packed records in Python."""

import json
import struct
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from sparklog.dataframe.options.options import PACKED_OPTION
from sparklog.dataframe.source import SparklogDataSource
from sparklog.dataframe.write.packed_records import (
    Handover,
    PackedBatch,
    PackedRecords,
    packed_batch,
    rows_of,
)
from sparklog.dataframe.write.row_partitioner import RowPartitioner
from sparklog.dataframe.write.writer import PackedTopicWriter, TopicWriter
from sparklog.errors import ConfigError
from sparklog.types import Compression
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from sparklog.wire.protocol.produce import MAX_VERSION, ScatteredRecords, encode_produce_request
from sparklog.wire.records.batch import BATCH_OVERHEAD
from sparklog.wire.records.builder import Record, decode_records, encode_batch
from sparklog.wire.records.columns import encode_section
from tests.support.packed_rows import SCHEMA

TOPIC_ID = UUID(int=2**127 + 5)
Rows = list[tuple[bytes | None, int, bytes | None]]
some_bytes = st.none() | st.binary(max_size=200)
some_rows = st.lists(st.tuples(some_bytes, st.integers(-(2**40), 2**40), some_bytes), min_size=1)


def records_of(rows: Rows) -> list[Record]:
    return [
        Record(key=key, value=value, timestamp=at, headers=(), offset=offset)
        for offset, (value, at, key) in enumerate(rows)
    ]


def piece(rows: Rows) -> PackedRecords:
    return PackedRecords(
        records=memoryview(encode_batch(records_of(rows)))[BATCH_OVERHEAD:],
        record_count=len(rows),
        base_timestamp=rows[0][1],
        max_timestamp=max(at for _, at, _ in rows),
    )


@given(some_rows)
def test_a_piece_becomes_the_batch_or_the_rows_that_it_was_made_of(rows: Rows) -> None:
    packed = piece(rows)
    batch = encode_section(
        packed.records,
        record_count=packed.record_count,
        base_timestamp=packed.base_timestamp,
        max_timestamp=packed.max_timestamp,
    )
    assert b"".join(batch.parts) == encode_batch(records_of(rows))
    assert batch.size == packed.batch_bytes
    table = rows_of(packed)
    assert table.column("value").to_pylist() == [value for value, _, _ in rows]
    assert table.column("key").to_pylist() == [key for _, _, key in rows]
    times = table.column("timestamp").cast(pa.int64()).to_pylist()
    assert times == [at * 1000 for _, at, _ in rows]


def test_a_piece_is_compressed_behind_its_header() -> None:
    packed = piece([(b"v" * 1000, 7, None)] * 50)
    batch = encode_section(
        packed.records,
        record_count=50,
        base_timestamp=7,
        max_timestamp=7,
        compression=Compression.ZSTD,
        producer_id=3,
        producer_epoch=1,
        base_sequence=9,
    )
    assert batch.size < 1000
    assert decode_records(b"".join(batch.parts)) == records_of([(b"v" * 1000, 7, None)] * 50)
    assert batch.base_sequence == 9


def rows_from_the_jvm(**columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def test_pieces_lie_in_the_memory_of_their_arrow_batch() -> None:
    whole = rows_from_the_jvm(
        records=[b"zero", b"one", b"two", b"three"],
        record_count=[5, 1, 2, 1],
        base_timestamp=[5, 10, 20, 30],
        max_timestamp=[5, 11, 22, 30],
        partition=[-1, -1, 4, -2],
        acknowledged=[0, 0, 0, 0],
    )
    found = packed_batch(whole.slice(1))
    assert (found.acknowledged, found.handover, found.records) == (0, None, 4)
    one, two, three = found.pieces
    assert [each.by_key for each in found.pieces] == [False, False, True]
    assert three.partition is None
    assert (bytes(one.records), one.record_count, one.partition) == (b"one", 1, None)
    assert (one.base_timestamp, one.max_timestamp) == (10, 11)
    assert (bytes(two.records), two.record_count, two.partition) == (b"two", 2, 4)
    assert (two.base_timestamp, two.max_timestamp) == (20, 22)


def test_the_jvm_tells_what_it_has_sent() -> None:
    found = packed_batch(
        rows_from_the_jvm(
            records=[b""],
            record_count=[0],
            base_timestamp=[0],
            max_timestamp=[0],
            partition=[-1],
            acknowledged=[2**40],
        )
    )
    assert found == PackedBatch(acknowledged=2**40, handover=None, pieces=[])
    assert found.records == 2**40


def test_the_jvm_hands_over_what_was_not_acknowledged() -> None:
    told = struct.pack(">qh16siq3i", 2**40, 3, TOPIC_ID.bytes, 6, 9000, 7, 0, 2**31 - 1)
    found = packed_batch(
        rows_from_the_jvm(
            records=[told, b"left"],
            record_count=[0, 5],
            base_timestamp=[0, 10],
            max_timestamp=[0, 11],
            partition=[-1, 2],
            acknowledged=[17, 0],
        )
    )
    (left,) = found.pieces
    assert (bytes(left.records), left.partition, found.records) == (b"left", 2, 22)
    assert found.handover == Handover(
        producer_id=2**40,
        producer_epoch=3,
        topic_id=TOPIC_ID,
        pieces_left=6,
        since_ms=9000,
        sequences=[7, 0, 2**31 - 1],
    )


def test_scattered_records_are_sent_as_joined_ones() -> None:
    def sent(records: Any) -> bytes:
        data = PartitionProduceData(index=4, records=records)
        topic = TopicProduceData(name="t", partition_data=(data,))
        request = ProduceRequest(acks=-1, timeout_ms=9, topic_data=(topic,))
        return b"".join(encode_produce_request(min(MAX_VERSION, 12), 1, "me", request))

    assert sent(ScatteredRecords((b"head", memoryview(b"rest")))) == sent(b"headrest")


def test_pieces_go_to_the_partitions_in_turn() -> None:
    partitioner = RowPartitioner("t", 3, first_run=8)
    assert [partitioner.next_partition() for _ in range(4)] == [2, 0, 1, 2]


def test_the_source_checks_the_rows_of_a_packed_write() -> None:
    pieces = StructType().add("records", "binary")
    options = {"kafka.bootstrap.servers": "h:1", "topic": "t"}

    def writer(rows: StructType) -> Any:
        told = options | {PACKED_OPTION: json.dumps(rows.jsonValue())}
        return SparklogDataSource(told).writer(pieces, overwrite=False)

    assert type(writer(StructType().add("value", "string"))) is PackedTopicWriter
    with pytest.raises(ConfigError, match="unknown column 'valeu'"):
        writer(StructType().add("valeu", "string"))
    plain = SparklogDataSource(options).writer(StructType().add("value", "string"), False)
    assert type(plain) is TopicWriter
