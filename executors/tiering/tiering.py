"""The tiering of one broker: its process for the remote_dir, the manager, and the reads.

Owns: how these are put together.  Must not know what they do.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sparklog.config.tiering import quota_burst_ms
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager import ReplicaManager, StorageErrorLogger
from sparklog.executors.tiering.bucket_ends import BucketEnds
from sparklog.executors.tiering.fetch_quota import FetchQuota
from sparklog.executors.tiering.follower_starts import FollowerStarts
from sparklog.executors.tiering.leaving import AskReplicas
from sparklog.executors.tiering.metrics import TieringMetrics
from sparklog.executors.tiering.remote_fetches import RemoteFetches
from sparklog.executors.tiering.remote_log_manager import AskLeader, RemoteLogManager
from sparklog.executors.tiering.remote_process import InlineRemoteLogs, RemoteLogs, RemoteProcess
from sparklog.executors.tiering.replica_records import ReadReplica, ReplicaRecords
from sparklog.process import local_folder
from sparklog.remote_log.service import RemoteLogService
from sparklog.storage_backends.registry import open_backend, open_file_half

#: The scheme of stores that no other process sees.
_OWN_MEMORY = "memory:"


class Tiering:
    """``run`` it while the broker serves, then ``close`` it."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        remote: RemoteLogs,
        *,
        ask_leader: AskLeader,
        ask_replicas: AskReplicas,
        read_replica: ReadReplica,
        sources: Callable[[Partition], Iterator[int]],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._remote = remote
        metrics = TieringMetrics()
        self.manager = RemoteLogManager(
            replica_manager,
            remote,
            ask_leader=ask_leader,
            ask_replicas=ask_replicas,
            random_bytes=random_bytes,
            metrics=metrics,
        )
        self._fetches = RemoteFetches(
            remote,
            lambda tp: replica_manager.delayed_operations.complete_fetches(tp, 0),
            metrics,
            open_file=remote.open_file,
            tell_damage=StorageErrorLogger(replica_manager.now_ms).log,
            is_hosted=lambda each: replica_manager.get(each.topic_partition) is each,
            quota=_fetch_quota(replica_manager, remote),
            find_elsewhere=ReplicaRecords(read_replica, sources).find,
        )
        replica_manager.remote_reads = self._fetches
        replica_manager.remote_sizes = self.manager.remote_sizes
        self.find_start = FollowerStarts(remote).find
        ends = BucketEnds(remote, lambda: self.manager.nonce)
        replica_manager.recoveries.find_end = ends.find_end
        replica_manager.recoveries.find_aborted = ends.find_aborted
        self._recoveries = replica_manager.recoveries

    async def run(self) -> None:
        """Look after the tiered partitions until cancelled."""
        await self.manager.run()

    async def close(self) -> None:
        """End the reads and the process."""
        await self._fetches.close()
        await self._remote.close()

    def as_json(self) -> dict[str, Any]:
        """The part of NodeStatus about tiering."""
        cache = {f"remote_cache_{k}": v for k, v in self._remote.cache._asdict().items()}
        return {**self.manager.as_json(), **cache, **self._recoveries.as_json()}


def _fetch_quota(replica_manager: ReplicaManager, remote: RemoteLogs) -> FetchQuota:
    config = replica_manager.broker_config
    return FetchQuota(
        lambda: replica_manager.broker_config.remote_log_manager_fetch_max_bytes_per_second,
        burst_ms=quota_burst_ms(
            config.remote_log_manager_fetch_quota_window_num,
            config.remote_log_manager_fetch_quota_window_size_seconds,
        ),
        monotonic_ms=replica_manager.monotonic_ms,
        bytes_fetched=None if remote.open_file is None else lambda: remote.cache.bytes_fetched,
    )


def open_remote_logs(
    remote_dir: str,
    *,
    options: Mapping[str, Any],
    cluster_id: str,
    data_dir: str,
    cache_name: str,
    cache_bytes: int,
) -> RemoteLogs:
    """The remote logs of a cluster; nothing is contacted before the first call.

    Args:
        remote_dir: the URL or folder of the store.
        options: of the store; they may hold a secret.
        data_dir: the URL or folder below which the cache has its folder ``cache_name``.
        cache_bytes: the size limit of the cache.
    """
    if remote_dir.startswith(_OWN_MEMORY) or data_dir.startswith(_OWN_MEMORY):
        remote = open_backend(remote_dir, options)
        return InlineRemoteLogs(lambda: RemoteLogService(remote, open_file_half), cluster_id)
    cache_dir = f"{data_dir}/{cache_name}"
    return RemoteProcess(
        {
            "remote_dir": remote_dir,
            "options": dict(options),
            "cluster_id": cluster_id,
            "cache_dir": cache_dir,
            "cache_bytes": cache_bytes,
        },
        # A folder is read without a cache.
        open_file_half(cache_dir).open if local_folder(remote_dir) is None else None,
    )
