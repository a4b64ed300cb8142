"""The runtime of one kind of coordinator on one broker: a shard for each partition that it leads.

Owns: which shards there are, and which shard a request is for.  Must not know what requests mean,
or how a shard decides and writes.

A coordinator keeps its state in an internal topic.  The leader of a partition of that topic
coordinates whatever belongs to the partition (Kafka's ``CoordinatorRuntime``).
"""

import asyncio
import itertools
from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator.delayed_responses import ResponseFuture
from sparklog.executors.coordinator.log_loader import LogLoader
from sparklog.executors.coordinator.metrics import CoordinatorMetrics
from sparklog.executors.coordinator.shard import Shard, ShardTools
from sparklog.executors.coordinator.state_machine import (
    CoordinatorRequest,
    CoordinatorStateMachine,
    DeletedTopic,
    TransactionalProducer,
)
from sparklog.executors.partition import Appended, Partition, ProducerEntry, TransactionEnd
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.metadata import ClusterImage, PartitionImage
from sparklog.types import Compression, TopicPartition
from sparklog.wire.protocol.schema import Request, Response


class CoordinatorRuntime:
    """The shards of one internal topic; ``close`` it when the broker stops."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        topic: str,
        make_state_machine: Callable[[], CoordinatorStateMachine],
        *,
        load_buffer_bytes: Callable[[], int],
        commit_timeout_ms: Callable[[], int],
        compression: Compression = Compression.NONE,
    ) -> None:
        """
        Args:
            topic: the internal topic.
            make_state_machine: makes an empty state machine for one partition.
            load_buffer_bytes: returns how many bytes of the log are read at once.
            commit_timeout_ms: returns how long a response waits for its records to be replicated.
            compression: of the records in the topic.
        """
        self.topic = topic
        self.metrics = CoordinatorMetrics()
        self._replica_manager = replica_manager
        self._tools = ShardTools(
            replica_manager=replica_manager,
            make_state_machine=make_state_machine,
            loader=LogLoader(load_buffer_bytes),
            metrics=self.metrics,
            commit_timeout_ms=commit_timeout_ms,
            compression=compression,
        )
        self._shards: dict[int, Shard] = {}
        #: Loads of shards that were unloaded; they end soon.
        self._ending: set[asyncio.Task[None]] = set()
        self._request_ids = itertools.count()
        self._topic_ids: dict[str, UUID] = {}
        #: Version of the image whose topics are known.
        self._image_version: int | None = None
        self._closed = False
        replica_manager.replication_events.add_role_listener(self)

    @property
    def partitions(self) -> Collection[int]:
        """The partitions of the topic that this broker coordinates, or will after loading."""
        return self._shards.keys()

    # requests

    def submit(
        self,
        partition: int,
        body: Request,
        *,
        version: int,
        client_id: str,
        client_host: str,
        producer: TransactionalProducer | None = None,
    ) -> ResponseFuture:
        """Let the state machine of a partition decide on a request.

        Args:
            producer: the producer to whose transaction the request belongs.

        Returns:
            The future of the response, or of a KafkaError.  Cancelling it withdraws the request.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        shard = self._shard(partition)
        request = CoordinatorRequest(
            request_id=next(self._request_ids),
            body=body,
            version=version,
            client_id=client_id,
            client_host=client_host,
            producer=producer,
        )
        future: ResponseFuture = asyncio.get_running_loop().create_future()
        shard.submit(request, future)
        return future

    def answer(self, partition: int, body: Request) -> Response | None:
        """The response to a request that needs no decision; None: ``submit`` the request.

        Raises KafkaError as ``submit``.
        """
        return self._shard(partition).require_active().answer(body, self._tools.now())

    def end_transaction(self, partition: int, end: TransactionEnd) -> Appended:
        """Append a marker to a partition, and commit or drop what the transaction wrote there.

        The caller waits for the required offset before it answers.

        Raises:
            KafkaError: as ``submit``, or an error of the append; then nothing has changed.
        """
        return self._shard(partition).end_transaction(end)

    def producer_entry(self, partition: int, producer_id: int) -> ProducerEntry | None:
        """What a partition knows of a producer; a marker makes another entry.

        Raises KafkaError as ``submit``.
        """
        shard = self._shard(partition)
        shard.require_active()
        return shard.partition.producers.entries.get(producer_id)

    def _shard(self, partition: int) -> Shard:
        if self._closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        shard = self._shards.get(partition)
        if shard is None:
            raise _not_coordinator(TopicPartition(self.topic, partition))
        return shard

    # calls of the replica manager

    def role_changed(self, partition: Partition, before: PartitionImage | None) -> None:
        """See ``RoleListener``."""
        del before
        tp = partition.topic_partition
        if tp.topic != self.topic or self._closed:
            return
        shard = self._shards.get(tp.partition)
        if partition.is_leader:
            if (
                shard is not None
                and shard.partition is partition
                and shard.leader_epoch == partition.leader_epoch
            ):
                shard.partition_changed()  # only the in-sync replicas have changed
                return
            self._unload(tp)
            self._shards[tp.partition] = Shard(partition, self._tools)
        else:
            self._unload(tp)

    def config_changed(self, partition: Partition) -> None:
        """See ``RoleListener``."""
        tp = partition.topic_partition
        shard = self._shards.get(tp.partition) if tp.topic == self.topic else None
        if shard is not None:
            shard.partition_changed()

    def partition_closing(self, partition: Partition) -> None:
        """See ``RoleListener``."""
        if partition.topic_partition.topic == self.topic:
            self._unload(partition.topic_partition)

    def image_changed(self, image: ClusterImage) -> None:
        """See ``RoleListener``: tell the shards of the topics that were deleted."""
        known, since = self._topic_ids, self._image_version
        touched = None if since is None else image.touched_after(since)
        self._image_version = image.version
        names = {*known, *image.topics} if touched is None else {tp.topic for tp in touched}
        deleted: list[DeletedTopic] = []
        for name in names:
            topic = image.topic(name)
            before = known.pop(name, None)
            if topic is not None:
                known[name] = topic.topic_id
            if before is not None and (topic is None or topic.topic_id != before):
                deleted.append(DeletedTopic(name, before))
        if deleted:
            for shard in self._shards.values():
                shard.topics_deleted(deleted)

    def as_json(self) -> dict[str, Any]:
        """The part of NodeStatus about this coordinator."""
        return {
            "shards": len(self._shards),
            "active_shards": sum(shard.is_active for shard in self._shards.values()),
            **self.metrics.as_json(),
        }

    # end

    async def close(self) -> None:
        """Append what was decided, refuse the requests that wait, and take no more requests."""
        self._closed = True
        stopping = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        for number, shard in list(self._shards.items()):
            shard.append_now()
            self._unload(TopicPartition(self.topic, number), stopping)
        if self._ending:
            await asyncio.wait(self._ending)

    def _unload(self, tp: TopicPartition, error: KafkaError | None = None) -> None:
        shard = self._shards.pop(tp.partition, None)
        if shard is not None:
            load = shard.unload(_not_coordinator(tp) if error is None else error)
            self._ending.add(load)
            load.add_done_callback(self._ending.discard)


def _not_coordinator(tp: TopicPartition) -> KafkaError:
    return KafkaError(ErrorCode.NOT_COORDINATOR, f"this broker does not lead {tp}")
