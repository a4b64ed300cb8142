"""Reads of the logs for one fetch, of a consumer or of a follower.

Owns: which replica the fetch may read, which one it should read, when a follower is throttled, and
what the leader learns of a follower's fetch.  Must not know request schemas or how a fetch waits.
"""

from typing import TypeAlias

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import Partition, PartitionRead
from sparklog.executors.replica_manager.replica_manager import ReplicaManager
from sparklog.executors.replica_manager.replica_selector import closest_replica
from sparklog.types import NO_NODE, Isolation, TopicPartition

#: The partition, the result of the read, and the preferred read replica.  If that is a broker, the
#: consumer should read there, and no records were read here; NO_NODE stands for this broker.
LogReadResult: TypeAlias = tuple[Partition, PartitionRead, int]


class LogReads:
    """The reads of one fetch.

    ``replica_id`` and ``replica_epoch`` are those of the follower that fetches, -1 for a consumer.
    ``rack`` is the consumer's rack; empty if unknown.  ``for_replica``: the consumer is another
    broker, which looks for what its own replica or the bucket has lost.  With ``only_leader`` a
    follower refuses.
    """

    __slots__ = (
        "_for_replica",
        "_rack",
        "_replica_epoch",
        "_replica_manager",
        "by_follower",
        "isolation",
        "only_leader",
        "replica_id",
    )

    def __init__(
        self,
        replica_manager: ReplicaManager,
        *,
        replica_id: int,
        replica_epoch: int,
        rack: str,
        for_replica: bool,
        isolation: Isolation,
        only_leader: bool,
    ) -> None:
        self._replica_manager = replica_manager
        self._replica_epoch = replica_epoch
        self._rack = rack
        self._for_replica = for_replica
        self.replica_id = replica_id
        self.by_follower = replica_id >= 0
        self.isolation = isolation
        self.only_leader = only_leader

    def read(
        self,
        topic: str,
        number: int,
        fetch_offset: int,
        max_bytes: int,
        *,
        current_leader_epoch: int,
        last_fetched_epoch: int,
        min_one: bool,
    ) -> LogReadResult:
        """Read a partition, at least one whole batch with ``min_one``.

        Raises KafkaError with the code that Kafka answers when this fetch cannot read here.
        """
        partition = self._replica_manager.find(topic, number)
        preferred, throttled = NO_NODE, False
        if self.by_follower:
            self._check_follower(partition)
            throttled = self._is_throttled(partition)
        elif self._rack:
            preferred = self._preferred_read_replica(partition, fetch_offset)
        gets_records = preferred == NO_NODE and not throttled
        read = partition.read(
            fetch_offset,
            max(max_bytes, 0) if gets_records else 0,
            current_leader_epoch=current_leader_epoch,
            replica_id=self.replica_id,
            last_fetched_epoch=last_fetched_epoch,
            isolation=self.isolation,
            min_one=min_one and gets_records,
            only_leader=self.only_leader,
        )
        if read.is_remote:
            read = self._read_remote(partition, read, fetch_offset, max_bytes, min_one=min_one)
        return partition, read, preferred

    def _read_remote(
        self,
        partition: Partition,
        read: PartitionRead,
        fetch_offset: int,
        max_bytes: int,
        *,
        min_one: bool,
    ) -> PartitionRead:
        """The read with the records from the bucket; as it was while they are on their way."""
        committed = self.isolation is Isolation.READ_COMMITTED
        found = self._replica_manager.remote_reads.read(
            partition,
            fetch_offset,
            max_bytes,
            end_offset=read.end_offset,
            with_aborted=committed,
            for_replica=self._for_replica,
        )
        if found is None:
            return read
        if found.records.size > max_bytes and not min_one:
            # The first batch does not fit behind the records of other partitions.
            found.records.release()
            return read._replace(is_remote=False)
        return read._replace(records=found.records, size=found.records.size, aborted=found.aborted)

    def update_follower_fetch_state(
        self, partition: Partition, fetch_offset: int, log_start_offset: int
    ) -> None:
        """Tell the leader where the log of the fetching follower ends and starts."""
        replica_manager = self._replica_manager
        replica_manager.carry_out(
            partition.update_follower_fetch_state(
                self.replica_id,
                fetch_offset,
                log_start_offset,
                broker_epoch=self._replica_epoch,
                now_ms=replica_manager.monotonic_ms(),
            )
        )

    def count_sent(self, topic: str, number: int, size: int) -> None:
        """Count ``size`` bytes of records of a partition that go into the response."""
        replica_manager = self._replica_manager
        if self.by_follower:
            replica_manager.counters.replication_bytes_out += size
            partition = replica_manager.get(TopicPartition(topic, number))
            if partition is not None:
                replica_manager.throttle.record_sent(
                    partition, size, replica_manager.monotonic_ms()
                )
        else:
            replica_manager.counters.bytes_out[topic] += size

    def _is_throttled(self, partition: Partition) -> bool:
        replica_manager = self._replica_manager
        return replica_manager.throttle.should_leader_throttle(
            partition, self.replica_id, replica_manager.monotonic_ms()
        )

    def _preferred_read_replica(self, partition: Partition, fetch_offset: int) -> int:
        if self.only_leader or not partition.is_leader:
            return NO_NODE
        ends = partition.followers_with(fetch_offset)
        if not ends:
            return NO_NODE
        replica_manager = self._replica_manager
        return closest_replica(self._rack, replica_manager.node_id, ends, replica_manager.image)

    def _check_follower(self, partition: Partition) -> None:
        replica_id, state = self.replica_id, partition.state
        if partition.is_leader and state is not None and replica_id not in state.replicas:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} has no replica of {partition.topic_partition}",
            )
