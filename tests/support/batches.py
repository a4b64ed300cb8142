"""Record batches for tests.

Owns: batches of plain values, whose timestamps do not depend on the clock.
"""

from typing import Any

from sparklog.wire.records.builder import Record, encode_batch

#: Milliseconds since 1970 of the first record of a batch.
TIMESTAMP_MS = 1_700_000_000_000


def batch(*values: bytes, timestamp: int = TIMESTAMP_MS, step_ms: int = 0, **options: Any) -> bytes:
    """A batch with a record for each value; ``options`` are those of ``encode_batch``."""
    records = [
        Record(value=value, timestamp=timestamp + number * step_ms)
        for number, value in enumerate(values)
    ]
    return encode_batch(records, **options)
