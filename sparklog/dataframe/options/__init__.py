"""Options of ``format("sparklog")``: texts -> values.

Owns: the options' names, defaults, types and errors.  Must not know Spark's plans or the cluster.
"""

from sparklog.dataframe.options.option_values import option_texts
from sparklog.dataframe.options.options import (
    BATCH_BYTES,
    BOOTSTRAP_OPTIONS,
    BUFFER_BYTES,
    CLIENT_ID,
    DELIVERY_TIMEOUT_MS,
    OWN_SCAN_OPTION,
    PACKED_OPTION,
    Bound,
    ConsistentCut,
    ReadOptions,
    RemoteReads,
    WriteOptions,
    is_two_way,
    parse_read_options,
    parse_write_options,
    table_hint,
)
from sparklog.dataframe.options.topic_pattern import topic_matcher

__all__ = [
    "BATCH_BYTES",
    "BOOTSTRAP_OPTIONS",
    "BUFFER_BYTES",
    "CLIENT_ID",
    "DELIVERY_TIMEOUT_MS",
    "OWN_SCAN_OPTION",
    "PACKED_OPTION",
    "Bound",
    "ConsistentCut",
    "ReadOptions",
    "RemoteReads",
    "WriteOptions",
    "is_two_way",
    "option_texts",
    "parse_read_options",
    "parse_write_options",
    "table_hint",
    "topic_matcher",
]
