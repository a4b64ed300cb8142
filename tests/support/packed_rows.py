"""The rows of packed writes as Python gets them.

Owns: their Arrow schema.  Must not know who makes them.
"""

import pyarrow as pa

from sparklog.dataframe.jvm.constants import ROW_COLUMNS

_TYPES = {"BINARY": pa.binary(), "INT": pa.int32(), "BIGINT": pa.int64()}
SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in ROW_COLUMNS])
