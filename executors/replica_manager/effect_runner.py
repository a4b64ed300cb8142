"""Carrying out the effects that partitions decide on.

Owns: which collaborator each kind of effect goes to.  Must not know why a partition wants it.
"""

from collections.abc import Callable, Iterable
from typing import assert_never

from sparklog.executors.partition import (
    Effect,
    FlushLog,
    ProposeIsr,
    ResumeFetching,
    WakeDeleters,
    WakeFollowers,
    WakeReaders,
    WakeWriters,
    WriteStatistics,
)
from sparklog.executors.replica_manager.delayed_operations import DelayedOperations
from sparklog.executors.replica_manager.hosted_partitions import HostedPartitions
from sparklog.executors.replica_manager.listener import ReplicationEvents
from sparklog.executors.replica_manager.log_flusher import LogFlusher
from sparklog.executors.replica_manager.log_workers import LogWorkers
from sparklog.types import TopicPartition


class EffectRunner:
    """Carries out the effects of one broker's partitions.

    ``on_failed_flush`` is called with each partition whose log a failed flush took offline.
    """

    def __init__(
        self,
        partitions: HostedPartitions,
        delayed_operations: DelayedOperations,
        log_workers: LogWorkers,
        replication: ReplicationEvents,
        *,
        now_ms: Callable[[], int],
        on_failed_flush: Callable[[TopicPartition], None],
    ) -> None:
        self._partitions = partitions
        self._delayed_operations = delayed_operations
        self._log_workers = log_workers
        self._replication = replication
        self.log_flusher = LogFlusher(
            now_ms, self.carry_out, delayed_operations.timers, on_failed_flush
        )

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Carry out the effects in their order; nothing blocks."""
        for effect in effects:
            match effect:
                case WakeReaders():
                    self._delayed_operations.wake_readers(effect.topic_partition, effect.size)
                case WakeWriters():
                    self._delayed_operations.produces.check_and_complete(effect.topic_partition)
                case WakeFollowers():
                    self._delayed_operations.wake_followers(effect.topic_partition, effect.size)
                case WakeDeleters():
                    self._delayed_operations.deletions.check_and_complete(effect.topic_partition)
                case FlushLog():
                    partition = self._partitions.get(effect.topic_partition)
                    if partition is not None:
                        self.log_flusher.plan(partition, effect.at_ms)
                case WriteStatistics():
                    partition = self._partitions.get(effect.topic_partition)
                    if partition is not None:
                        self._log_workers.measure(partition.log)
                case ProposeIsr():
                    self._replication.propose(effect.topic_partition)
                case ResumeFetching():
                    self._replication.resume(effect.topic_partition)
                case _:
                    assert_never(effect)
