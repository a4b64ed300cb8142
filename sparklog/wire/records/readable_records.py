"""The records of a slice that come before the first one that cannot be decoded.

Owns: finding where that is, record by record.  Must not know Arrow, or what is done with the rest.
"""

from sparklog.errors import DecodeError
from sparklog.wire.records.builder import check_record
from sparklog.wire.records.record_slices import RecordSlice
from sparklog.wire.records.zigzag import decode_varint


def readable_records(records: RecordSlice) -> RecordSlice:
    """The records of a slice up to the first that cannot be decoded."""
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
