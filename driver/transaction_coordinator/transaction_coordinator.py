"""The transaction coordinator of one controller, for all transactional ids.

Owns: the partitions of ``__transaction_state``, and which of them a transactional id belongs to.
Must not know how a partition decides, loads or appends.

The coordinator begins when the cluster image has ``__transaction_state``.  Nothing waits for its
loading: a request for a partition that is not loaded gets COORDINATOR_LOAD_IN_PROGRESS.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from sparklog.client.data_client import DataClient
from sparklog.config import BrokerConfig
from sparklog.driver.transaction_coordinator.cut_taker import CutTaker
from sparklog.driver.transaction_coordinator.image_cluster_client import ImageClusterClient
from sparklog.driver.transaction_coordinator.marker_sender import MarkerSender
from sparklog.driver.transaction_coordinator.partition_coordinator import (
    PartitionCoordinator,
    PartitionTools,
    ResultFuture,
)
from sparklog.driver.transaction_coordinator.producer_id_pool import ProducerIdPool
from sparklog.driver.transaction_coordinator.transaction_log import TransactionLog
from sparklog.driver.transactions import (
    ConsistentCuts,
    Now,
    TransactionConfig,
    TransactionRequest,
    TransactionShard,
)
from sparklog.errors import ErrorCode, KafkaError, SparklogError
from sparklog.metadata import ClusterImage
from sparklog.metadata.coordinators import coordinator_partition
from sparklog.metadata.topic_names import TRANSACTION_STATE
from sparklog.runtime_environment import RuntimeEnvironment
from sparklog.types import TopicPartition

#: Partitions that load at the same time.
_LOADS_AT_ONCE: Final = 8
#: The time between two looks at deadlines, in seconds.
_TICK_S: Final = 0.1


class TransactionCoordinator:
    """``image_changed`` starts it; ``close`` it when the control plane stops.

    Args:
        image: returns the committed image.
        allocate_producer_id: returns an unused producer id, or raises KafkaError.
        on_fenced: a later controller coordinates transactions.
        confirm_leadership: returns when no other controller had taken over at the time of the call;
            raises KafkaError otherwise.
    """

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        *,
        config: BrokerConfig,
        secret: bytes,
        runtime: RuntimeEnvironment,
        allocate_producer_id: Callable[[], Awaitable[int]],
        on_fenced: Callable[[SparklogError], None],
        confirm_leadership: Callable[[], Awaitable[None]],
    ) -> None:
        self._image = image
        self._config = config
        self._runtime = runtime
        self._controller_epoch = image().controller_epoch
        self._cluster = ImageClusterClient(image, secret, runtime)
        self._data_client = DataClient(self._cluster)
        self._markers = MarkerSender(self._cluster, image, self._controller_epoch, on_fenced)
        self._producer_ids = ProducerIdPool(allocate_producer_id)
        self._request_ids = itertools.count()
        self._replaying = asyncio.Lock()
        self._partitions: list[PartitionCoordinator] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False
        settings = _transaction_config(config)
        cuts = ConsistentCuts()
        # Connections of their own: the offsets of a cut do not wait behind appends.
        self._cut_cluster = ImageClusterClient(image, secret, runtime)
        self._cut_taker = CutTaker(
            cuts,
            lambda: self._partitions,
            DataClient(self._cut_cluster),
            self._now,
            confirm_leadership,
        )
        self._tools = PartitionTools(
            new_shard=lambda: TransactionShard(settings, self._producer_ids.take, cuts),
            now=self._now,
            markers=self._markers,
            loads=asyncio.Semaphore(_LOADS_AT_ONCE),
            on_fenced=on_fenced,
            on_event=self._cut_taker.advance,
        )

    # -- life

    def image_changed(self) -> None:
        """Start the partitions once their topic is there."""
        topic = self._image().topic(TRANSACTION_STATE)
        if topic is None or self._partitions or self._closed:
            return
        self._partitions = [
            PartitionCoordinator(self._log(number), self._tools)
            for number in range(len(topic.partitions))
        ]
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(partition.run()) for partition in self._partitions]
        self._tasks.append(loop.create_task(self._tick()))
        self._producer_ids.fill()

    async def close(self) -> None:
        """End everything; requests without a result are refused."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._producer_ids.close()
        await self._markers.close()
        self._cut_taker.close()
        await self._cluster.close()
        await self._cut_cluster.close()

    # -- requests

    def submit(
        self, transactional_id: str, make_request: Callable[[int], TransactionRequest]
    ) -> ResultFuture:
        """Decide on a request.

        Args:
            make_request: makes the request from its id.

        Returns:
            The future of the result, or of a KafkaError.  Cancelling it withdraws the request.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        return self._partition(transactional_id).submit(make_request(next(self._request_ids)))

    def shard(self, transactional_id: str) -> TransactionShard:
        """The state machine with the transactional id, to read from.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        return self._partition(transactional_id).require_shard()

    def shards(self) -> Iterator[TransactionShard]:
        """All state machines, to read from.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS.
        """
        return (partition.require_shard() for partition in self._partitions)

    async def consistent_cut(
        self, partitions: frozenset[TopicPartition], max_wait_ms: int
    ) -> dict[TopicPartition, int]:
        """Last stable offsets that tear no transaction.

        Args:
            max_wait_ms: how long other transactions may be held back for the cut.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS; CONCURRENT_TRANSACTIONS or REQUEST_TIMED_OUT
                when a transaction is in the way; THROTTLING_QUOTA_EXCEEDED; NOT_CONTROLLER.
        """
        return await self._cut_taker.take(partitions, max_wait_ms)

    def as_json(self) -> dict[str, Any]:
        """The part of NodeStatus about transactions."""
        shards = [p.shard for p in self._partitions if p.shard is not None]
        return {
            "shards": len(self._partitions),
            "active_shards": len(shards),
            "transactional_ids": sum(shard.count for shard in shards),
            "ongoing": sum(shard.ongoing_count for shard in shards),
            "unsent_markers": self._markers.unsent,
            "consistent_cuts": self._cut_taker.taken,
            "failed_consistent_cuts": self._cut_taker.failed,
        }

    # -- inside

    def _partition(self, transactional_id: str) -> PartitionCoordinator:
        number = coordinator_partition(self._image(), TRANSACTION_STATE, transactional_id)
        if number is None or not self._partitions:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{TRANSACTION_STATE} does not exist yet; FindCoordinator creates it",
            )
        return self._partitions[number]

    def _log(self, number: int) -> TransactionLog:
        return TransactionLog(
            TopicPartition(TRANSACTION_STATE, number),
            self._data_client,
            controller_epoch=self._controller_epoch,
            load_bytes=self._config.transaction_state_log_load_buffer_size,
            replaying=self._replaying,
            wall_ms=self._runtime.wall_ms,
        )

    def _now(self) -> Now:
        return Now(self._runtime.monotonic_ms(), self._runtime.wall_ms())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            for partition in self._partitions:
                partition.pass_time()


def _transaction_config(config: BrokerConfig) -> TransactionConfig:
    return TransactionConfig(
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        timeout_check_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expiration_check_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
    )
