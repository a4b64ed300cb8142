"""Incremental fetch sessions (KIP-227).

Owns: the sessions of a broker, their cache, and which session is evicted for a new one.  Must not
know partitions' logs, connections or clocks (``now_ms`` comes in).
"""

from sparklog.executors.fetch_sessions.session import (
    INITIAL_EPOCH,
    SLICE_PARTITIONS,
    CachedPartition,
    FetchSession,
    View,
    next_epoch,
    requested_partitions,
)
from sparklog.executors.fetch_sessions.session_cache import (
    NO_SESSION,
    PARTITION_UNITS,
    FetchKey,
    FetchSessionCache,
)

__all__ = [
    "INITIAL_EPOCH",
    "NO_SESSION",
    "PARTITION_UNITS",
    "SLICE_PARTITIONS",
    "CachedPartition",
    "FetchKey",
    "FetchSession",
    "FetchSessionCache",
    "View",
    "next_epoch",
    "requested_partitions",
]
