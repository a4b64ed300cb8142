"""The constants that Python and the Java classes share.

Owns: the shared values, and the Java class ``Constants``, which is generated from them.  Must not
know the use of a value on either side.

A number that only Java uses stands in its Java class.  A row of a packed write is described in
``java/PieceOutlet.java``, and the values of a packed read in ``java/UnpackedRows.java``.
"""

import json
import re
import struct
from typing import Final

from sparklog.client.partitioner import MURMUR2_M, MURMUR2_SEED, POSITIVE
from sparklog.dataframe.corrupt_batches import OPTION as CORRUPT_OPTION
from sparklog.dataframe.corrupt_batches import REMEDY
from sparklog.dataframe.discovery import ANNOUNCED_PROPERTY
from sparklog.dataframe.options import (
    BATCH_BYTES,
    BUFFER_BYTES,
    CLIENT_ID,
    DELIVERY_TIMEOUT_MS,
    OWN_SCAN_OPTION,
    PACKED_OPTION,
)
from sparklog.errors import ErrorCode
from sparklog.wire.records.batch import BATCH_OVERHEAD, LOG_OVERHEAD

#: Settings of Spark; ``false`` turns off packed reads, packed writes, or sending by the JVM.
PACKED_READS_CONF: Final = "spark.sparklog.packed.reads"
PACKED_WRITES_CONF: Final = "spark.sparklog.packed.writes"
DIRECT_WRITES_CONF: Final = "spark.sparklog.direct.writes"

#: The consequence, for the log, when Spark's sessions cannot be extended.
WITHOUT_PACKED_READS: Final = "rows are made by Python"
WITHOUT_PACKED_WRITES: Final = "writes are not packed in the JVM"

#: Columns of the rows of a packed write; times in milliseconds.
ROW_COLUMNS: Final = (
    ("records", "BINARY"),
    ("record_count", "INT"),
    ("base_timestamp", "BIGINT"),
    ("max_timestamp", "BIGINT"),
    ("partition", "INT"),
    ("acknowledged", "BIGINT"),
)
#: Special values of the column ``partition``: any one partition for all records, and the partition
#: of each record's key.
ANY_PARTITION: Final = -1
BY_KEY: Final = -2

#: Bytes of a task's first pieces; later pieces grow with the bytes that the task has packed.
FIRST_PIECE_BYTES: Final = 64 * 1024
#: Minimum bytes for the sections of all partitions, even if fewer bytes may be in flight.
ALLOCATED_BYTES_MIN: Final = 1024 * 1024
#: Pieces that go to Python in one Arrow batch; each Arrow batch has a cost of its own.
PIECES_PER_BATCH: Final = 4
#: Produce requests of one task that a broker may have to answer at a time.
REQUESTS_PER_BROKER: Final = 4
#: Most bytes of the pieces in one request, unless it has a single piece.  When brokers answer late,
#: a request has the pieces of many partitions.
REQUEST_BYTES: Final = 1_000_000

#: The layout of a range: first offset, end offset, partition; the name of the topic follows.
BOUNDS: Final = struct.Struct(">qqi")
#: A text in a pickled partition of a scan: the task returns rows.  No topic can have this name.
GIVE_ROWS: Final = "sparklog: give rows"
#: The text for record batches.  It is as long as ``GIVE_ROWS``, so that the JVM can replace that
#: text in the pickled bytes.
GIVE_BATCHES: Final = "sparklog: batches !"
#: The columns that the JVM can decode, in the order of the kinds of ``UnpackedRows.fill``.
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def constants_java(used_by: str) -> str:
    """The Java class ``Constants``, with the fields that the classes in ``used_by`` mention."""
    values = constants()
    names = sorted(set(re.findall(r"\bConstants\.(\w+)", used_by)))
    fields = "".join(f"  static final {_declared(name, values[name])};\n" for name in names)
    return f"final class Constants {{\n{fields}}}\n"


def constants() -> dict[str, int | str]:
    """Every field of ``Constants``."""
    from sparklog.dataframe.schema import read_schema

    types = {field.name: field.dataType.simpleString() for field in read_schema(True).fields}
    return {
        "ALLOCATED_BYTES_MIN": ALLOCATED_BYTES_MIN,
        "ALL_COLUMNS": "; ".join(f"{name} {kind}" for name, kind in types.items()),
        "ANNOUNCED_PROPERTY": ANNOUNCED_PROPERTY,
        "ANY_PARTITION": ANY_PARTITION,
        "BATCH_BYTES": BATCH_BYTES,
        "BATCH_OVERHEAD": BATCH_OVERHEAD,
        "BUFFER_BYTES": BUFFER_BYTES,
        "BY_KEY": BY_KEY,
        "CLIENT_ID": CLIENT_ID,
        "CORRUPT_OPTION": CORRUPT_OPTION,
        "DELIVERY_TIMEOUT_MS": DELIVERY_TIMEOUT_MS,
        "DIRECT_WRITES_CONF": DIRECT_WRITES_CONF,
        "FIRST_PIECE_BYTES": FIRST_PIECE_BYTES,
        "GIVE_BATCHES": GIVE_BATCHES,
        "GIVE_ROWS": GIVE_ROWS,
        "LOG_OVERHEAD": LOG_OVERHEAD,
        "MURMUR2_M": _signed(MURMUR2_M),
        "MURMUR2_SEED": _signed(MURMUR2_SEED),
        "NOT_LEADER_OR_FOLLOWER": ErrorCode.NOT_LEADER_OR_FOLLOWER.value,
        "OWN_SCAN_OPTION": OWN_SCAN_OPTION,
        "PACKED_OPTION": PACKED_OPTION,
        "PACKED_READS_CONF": PACKED_READS_CONF,
        "PACKED_WRITES_CONF": PACKED_WRITES_CONF,
        "PIECES_PER_BATCH": PIECES_PER_BATCH,
        "POSITIVE": POSITIVE,
        "READ_COLUMNS": "; ".join(f"{name} {types[name]}" for name in COLUMNS),
        "REMEDY": REMEDY,
        "REQUESTS_PER_BROKER": REQUESTS_PER_BROKER,
        "REQUEST_BYTES": REQUEST_BYTES,
        "ROW_COLUMNS": ", ".join(" ".join(column) for column in ROW_COLUMNS),
        "UNKNOWN_TOPIC_ID": ErrorCode.UNKNOWN_TOPIC_ID.value,
        "UNKNOWN_TOPIC_OR_PARTITION": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value,
        "WITHOUT_PACKED_READS": WITHOUT_PACKED_READS,
        "WITHOUT_PACKED_WRITES": WITHOUT_PACKED_WRITES,
    }


def _signed(number: int) -> int:
    """An unsigned number of 32 bits as Java's signed ``int``."""
    return number - (1 << 32) if number >> 31 else number


def _declared(name: str, value: int | str) -> str:
    """The declaration of a Java field, of the smallest type for its value."""
    if isinstance(value, str):
        return f"String {name} = {json.dumps(value)}"
    if -(1 << 31) <= value < 1 << 31:
        return f"int {name} = {value}"
    return f"long {name} = {value}L"
