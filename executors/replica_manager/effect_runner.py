"""The runner of the effects that partitions decide on.

Owns: which collaborator each kind of effect goes to.  Must not know why a partition decides
on an effect.
"""

from collections.abc import Callable, Iterable
from typing import assert_never

from sparklog.executors.partition import (
    CompleteDelayedDeleteRecords,
    CompleteDelayedFetches,
    CompleteDelayedFollowerFetches,
    CompleteDelayedProduces,
    Effect,
    FlushLog,
    ResumeFetching,
    SubmitAlterPartition,
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
                case CompleteDelayedFetches():
                    self._delayed_operations.complete_fetches(effect.topic_partition, effect.size)
                case CompleteDelayedProduces():
                    self._delayed_operations.produces.check_and_complete(effect.topic_partition)
                case CompleteDelayedFollowerFetches():
                    self._delayed_operations.complete_follower_fetches(
                        effect.topic_partition, effect.size
                    )
                case CompleteDelayedDeleteRecords():
                    self._delayed_operations.delete_records.check_and_complete(
                        effect.topic_partition
                    )
                case FlushLog() | WriteStatistics():
                    self._work_on_log(effect)
                case SubmitAlterPartition():
                    self._replication.submit_alter_partition(effect.topic_partition)
                case ResumeFetching():
                    self._replication.resume(effect.topic_partition)
                case _:
                    assert_never(effect)

    def _work_on_log(self, effect: FlushLog | WriteStatistics) -> None:
        partition = self._partitions.get(effect.topic_partition)
        if partition is None:
            return
        if isinstance(effect, FlushLog):
            self.log_flusher.plan(partition, effect.at_ms)
        else:
            self._log_workers.measure(partition.log)
