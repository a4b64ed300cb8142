"""The records of a slice that come before the first one that cannot be decoded.

Owns: finding that record, record by record.  Must not know Arrow, or how errors are handled.
"""

from sparklog.errors import DecodeError
from sparklog.wire.records.builder import check_record
from sparklog.wire.records.record_slices import RecordSlice
from sparklog.wire.records.zigzag import decode_varint


def readable_records(records: RecordSlice) -> RecordSlice:
    """The records of a slice up to the first undecodable record."""
    data = memoryview(records.data)
    count = end = 0
    try:
        while count < records.count:
            length, body = decode_varint(data, end)
            if not 0 <= length <= len(data) - body:
                break
            check_record(data[body : body + length])
            count, end = count + 1, body + length
    except DecodeError:
        pass
    return RecordSlice(count, data[:end])
