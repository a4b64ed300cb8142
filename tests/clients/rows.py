"""The records that clients write here, and what the brokers' files say of them."""

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sparklog.types import Compression
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import decode_records

PARTITIONS = 3
CODECS = tuple(Compression(number).name.lower() for number in range(5))
Headers = tuple[tuple[str, bytes | None], ...]
#: Partition and offset.
Place = tuple[int, int]

#: An hour ago, so that no record is too old or too new for a topic with default settings.
FIRST_TIMESTAMP = int(time.time() * 1000) - 3_600_000
_HEADERS: tuple[Headers, ...] = (
    (),
    (("trace", "größe".encode()),),
    (("a", b"1"), ("ä", b"2"), ("a", b"3")),
)
_ROWS = 60


class Row(NamedTuple):
    """One record where it lies; in order of partition and offset."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def place(row: Row) -> Place:
    return row.partition, row.offset


def make_rows(*, empties: bool = True, null_headers: bool = True) -> list[Row]:
    """Every kind of field, in the order of sending.

    ``empties`` and ``null_headers``: whether fields of no bytes and headers without a value are
    among them.
    """
    next_offsets = [0] * PARTITIONS
    rows = []
    for number in range(_ROWS):
        partition = number % PARTITIONS
        headers = _HEADERS[number * len(_HEADERS) // _ROWS]
        key, value = _key_and_value(number)
        if empties and number >= _ROWS - 2 * PARTITIONS:
            key, value = (b"", value) if number % 2 else (key, b"")
            headers += (("empty", b""),)
        if null_headers and number >= _ROWS - PARTITIONS:
            headers += (("nothing", None),)
        # Unordered: every fifth record is older than the ones before.
        timestamp = FIRST_TIMESTAMP + number * 1000 - (30_000 if number % 5 == 4 else 0)
        rows.append(Row(partition, next_offsets[partition], timestamp, key, value, headers))
        next_offsets[partition] += 1
    return rows


def _key_and_value(number: int) -> tuple[bytes | None, bytes | None]:
    key, value = b"key %d" % number, b"value %d" % number
    if number % 7 == 3:
        return None, value
    if number % 7 == 5:
        return key, None
    if number % 11 == 7:
        return "schlüssel".encode(), b"a long value, " * 500
    return key, value


def since(rows: Sequence[Row], timestamp: int) -> list[Row]:
    """What is read from the first record of each partition that is not older."""
    found: list[Row] = []
    for partition in range(PARTITIONS):
        of_partition = sorted((row for row in rows if row.partition == partition), key=place)
        found += itertools.dropwhile(lambda row: row.timestamp < timestamp, of_partition)
    return found


def stored_rows(data_dir: Path, topic: str) -> tuple[list[Row], set[str]]:
    """What the brokers' files hold of a topic, and with which codecs."""
    rows: list[Row] = []
    codecs: set[str] = set()
    for path in sorted(data_dir.glob(f"broker-*/{topic}-*/*.log")):
        partition = int(path.parent.name.rpartition("-")[2])
        data = path.read_bytes()
        codecs |= {header.compression.name.lower() for header, _ in iter_batches(data)}
        rows += [
            Row(partition, r.offset, r.timestamp, r.key, r.value, r.headers)
            for r in decode_records(data)
        ]
    return sorted(rows, key=place), codecs
