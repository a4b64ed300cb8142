"""The replicas of one broker, and the effects of their decisions.

Owns: which partitions are open, flushes, truncations, log workers, delayed operations, dynamic
configuration, quotas, replica selection and the broker's metrics.  Must not know request schemas,
other brokers' addresses or how a follower copies its leader's log.
"""

from sparklog.executors.replica_manager.log_end_reports import LogEndReports, offline_replicas
from sparklog.executors.replica_manager.log_maintenance import (
    clean_up,
    expire_producers,
    purge_deleted,
    synchronous,
)
from sparklog.executors.replica_manager.log_reads import LogReads
from sparklog.executors.replica_manager.metrics import BrokerMetrics
from sparklog.executors.replica_manager.offset_searches import SEARCHES_AT_ONCE, SEARCHES_MAX
from sparklog.executors.replica_manager.record_validation import QUEUED_BYTES_MAX
from sparklog.executors.replica_manager.replica_manager import ReplicaManager

__all__ = [
    "QUEUED_BYTES_MAX",
    "SEARCHES_AT_ONCE",
    "SEARCHES_MAX",
    "BrokerMetrics",
    "LogEndReports",
    "LogReads",
    "ReplicaManager",
    "clean_up",
    "expire_producers",
    "offline_replicas",
    "purge_deleted",
    "synchronous",
]
