"""The replicas of one broker, and the effects of their decisions.

Owns: which partitions are open, flushes, truncations, log workers, delayed operations, dynamic
configuration, quotas, replica selection and the broker's metrics.  Must not know request schemas,
other brokers' addresses or how a follower copies its leader's log.
"""

from sparklog.executors.replica_manager.batch_queues import OutcomeFuture, RequestTransaction
from sparklog.executors.replica_manager.delayed_produce import (
    DelayedPartitionRequests,
    DelayedProduce,
)
from sparklog.executors.replica_manager.listener import RoleListener
from sparklog.executors.replica_manager.log_end_reports import LogEndReports
from sparklog.executors.replica_manager.log_maintenance import (
    apply_local_retention,
    apply_retention,
    close_idle_files,
    expire_producers,
    purge_deleted,
    synchronous,
)
from sparklog.executors.replica_manager.log_reads import LogReads
from sparklog.executors.replica_manager.metrics import BrokerMetrics
from sparklog.executors.replica_manager.offset_searches import (
    BUCKET_SEARCHES_AT_ONCE,
    LONG_PARTS_AT_ONCE,
    SEARCHES_AT_ONCE,
    SEARCHES_MAX,
)
from sparklog.executors.replica_manager.record_validation import QUEUED_BYTES_MAX
from sparklog.executors.replica_manager.remote_reads import (
    RemoteReads,
    RemoteRecords,
    RemoteSizes,
    no_remote_sizes,
)
from sparklog.executors.replica_manager.replica_manager import ReplicaManager
from sparklog.executors.replica_manager.storage_errors import StorageErrorLogger
from sparklog.executors.replica_manager.tier_searches import find_in_tiers
from sparklog.executors.replica_manager.transaction_verifications import (
    VerifyTransaction,
    no_coordinator,
)

__all__ = [
    "BUCKET_SEARCHES_AT_ONCE",
    "LONG_PARTS_AT_ONCE",
    "QUEUED_BYTES_MAX",
    "SEARCHES_AT_ONCE",
    "SEARCHES_MAX",
    "BrokerMetrics",
    "DelayedPartitionRequests",
    "DelayedProduce",
    "LogEndReports",
    "LogReads",
    "OutcomeFuture",
    "RemoteReads",
    "RemoteRecords",
    "RemoteSizes",
    "ReplicaManager",
    "RequestTransaction",
    "RoleListener",
    "StorageErrorLogger",
    "VerifyTransaction",
    "apply_local_retention",
    "apply_retention",
    "close_idle_files",
    "expire_producers",
    "find_in_tiers",
    "no_coordinator",
    "no_remote_sizes",
    "purge_deleted",
    "synchronous",
]
