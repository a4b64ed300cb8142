"""Whether every record of a batch can be decoded: what ``sparklog.validate.batches`` asks.

Owns: the check of the records of one batch against each other and against their header.  Must not
know who sent the batch.  Arrow comes with this module, so brokers load it when a topic asks.
"""

import numpy as np

from sparklog.errors import DecodeError
from sparklog.wire.records.batch import Buffer, read_header
from sparklog.wire.records.columns_decode import decode_columns


def check_records(batch: Buffer) -> None:
    """Raises DecodeError unless the batch has the records that its header says, and all decode.

    ``batch`` is one whole batch of a client, whose offsets follow each other without gaps.  Memory
    is bounded by a group of ``decode_columns``.
    """
    header = read_header(batch)
    found = header.base_offset
    for part in decode_columns(batch, start_offset=header.base_offset, check_crc=False):
        offsets = part["offset"].to_numpy()
        if not np.array_equal(offsets, np.arange(found, found + len(offsets))):
            raise DecodeError("the offsets of a batch's records do not follow each other")
        found += len(offsets)
    if found != header.base_offset + header.record_count:
        raise DecodeError(
            f"a batch says {header.record_count} records, {found - header.base_offset} have offsets"
        )
