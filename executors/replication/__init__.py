"""Replication between brokers.

Owns: the fetcher manager and its fetchers, the fetch state of each followed partition,
AlterPartition requests, and the repair of damaged ranges from other replicas.  Must not know
clients.
"""

from sparklog.executors.replication.replica_fetcher import no_remote_start
from sparklog.executors.replication.replication import Replication
from sparklog.executors.replication.tiered_states import TieredStates

__all__ = [
    "Replication",
    "TieredStates",
    "no_remote_start",
]
