"""The check of ``sparklog.validate.batches``: whether every record of a batch can be decoded.

Owns: the check of the records of one batch against each other and against their header.  Must not
know the sender of the batch.  This module imports Arrow, so brokers load it only for topics with
this setting.
"""

import numpy as np

from sparklog.errors import DecodeError
from sparklog.wire.records.batch import Buffer, read_header
from sparklog.wire.records.columns_decode import decode_columns


def check_records(batch: Buffer) -> None:
    """Raises DecodeError unless the batch has as many records as its header says, and all decode.

    ``batch`` is one whole batch of a client, whose offsets have no gaps.  Memory is bounded by a
    group of ``decode_columns``.
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
