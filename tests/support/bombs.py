"""Batches of a few kilobytes that decompress to many megabytes, and the memory that work takes."""

import tracemalloc
from collections.abc import Callable

from sparklog.types import Compression
from sparklog.wire.records.batch import pack_attributes, pack_batch
from sparklog.wire.records.compression import compress

#: A record with nothing in it, as small as a record can be.
TINY = bytes([12, 0, 0, 0, 1, 1, 0])
BOMB_RECORDS = 3_000_000


def bomb(
    count: int = BOMB_RECORDS,
    codec: Compression = Compression.ZSTD,
    *,
    timestamp: int = 1000,
    max_timestamp: int = 2000,
) -> bytes:
    """A batch that decompresses to ``count`` records of seven bytes, all at ``timestamp``."""
    return pack_batch(
        compress(codec, TINY * count),
        attributes=pack_attributes(codec),
        record_count=count,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=max_timestamp,
    )


def peak_bytes(work: Callable[[], object]) -> int:
    """The most bytes that Python and NumPy had allocated at once during ``work``."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
