"""Batches that librdkafka and aiokafka made (tests/golden/make.py), read record by record."""

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.types import Compression
from sparklog.wire.records.batch import check_batch, check_client_batch, iter_batches
from sparklog.wire.records.builder import Record, decode_records, encode_batch
from sparklog.wire.records.columns import decode_columns

GOLDEN = Path(__file__).parents[2] / "golden"
FILES = [
    f"{maker}-{c.name.lower()}.bin" for maker in ("librdkafka", "aiokafka") for c in Compression
]


def load(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def octets(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def expected() -> list[Record]:
    rows: list[dict[str, Any]] = json.loads((GOLDEN / "expected.json").read_text())
    return [
        Record(
            offset=offset,
            timestamp=row["timestamp"],
            key=octets(row["key"]),
            value=octets(row["value"]),
            headers=tuple((name, octets(value)) for name, value in row["headers"]),
        )
        for offset, row in enumerate(rows)
    ]


def as_records(table: pa.Table) -> list[Record]:
    milliseconds = table["timestamp"].cast(pa.int64()).to_pylist()
    return [
        Record(
            offset=row["offset"],
            timestamp=microseconds // 1000,
            key=row["key"],
            value=row["value"],
            headers=tuple((h["key"], h["value"]) for h in row["headers"] or ()),
        )
        for row, microseconds in zip(table.to_pylist(), milliseconds, strict=True)
    ]


@pytest.mark.parametrize("name", FILES)
def test_headers_and_crc_hold(name: str) -> None:
    data = load(name)
    codec = Compression[name.split("-")[1].removesuffix(".bin").upper()]
    batches = list(iter_batches(data))
    for header, start in batches:
        check_batch(data, start, header)
        check_client_batch(header)
    assert {header.compression for header, _ in batches} == {codec}
    assert sum(header.record_count for header, _ in batches) == len(expected())
    assert max(h.max_timestamp for h, _ in batches) == max(r.timestamp for r in expected())
    first = batches[0][0]
    if name.startswith("aiokafka"):
        facts = (first.producer_id, first.producer_epoch, first.base_sequence)
        assert facts == (4711, 3, 17)
    else:
        assert (first.has_producer, first.producer_epoch, first.base_sequence) == (True, 0, 0)


@pytest.mark.parametrize("name", FILES)
def test_single_records_are_as_sent(name: str) -> None:
    assert decode_records(load(name)) == expected()


@pytest.mark.parametrize("name", FILES)
def test_columns_are_as_sent(name: str) -> None:
    table = pa.Table.from_batches(list(decode_columns(load(name))))
    assert as_records(table) == expected()
    assert set(table["timestampType"].to_pylist()) == {0}


def test_snappy_came_in_both_framings() -> None:
    assert load("aiokafka-snappy.bin")[61:69] == b"\x82SNAPPY\x00"
    assert load("librdkafka-snappy.bin")[61:69] != b"\x82SNAPPY\x00"


def test_our_builder_gives_the_same_bytes() -> None:
    ours = encode_batch(expected(), producer_id=4711, producer_epoch=3, base_sequence=17)
    theirs = load("aiokafka-none.bin")
    # The CRC does not cover the leader epoch, which the broker sets.
    assert (ours[:12], ours[16:]) == (theirs[:12], theirs[16:])
