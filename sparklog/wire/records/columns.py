"""Record batches <-> Arrow columns: the whole interface.

Owns: the names under which the two halves are imported.  Must not know more than these names.
"""

from sparklog.wire.records.columns_decode import COLUMN_TYPES, decode_columns, next_offset
from sparklog.wire.records.columns_encode import EncodedBatch, encode_columns, encode_section
from sparklog.wire.records.columns_headers import HEADERS_TYPE

__all__ = [
    "COLUMN_TYPES",
    "HEADERS_TYPE",
    "EncodedBatch",
    "decode_columns",
    "encode_columns",
    "encode_section",
    "next_offset",
]
