"""The client for code without an event loop: one loop in a daemon thread per process.

Owns: blocking wrappers of the asynchronous clients.  The wrapper of data requests is in
``blocking_data_client``, which explains deadlines and forks; the producer's is in
``blocking_producer``.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

from sparklog.client.admin import (
    CLUSTER_DEFAULT,
    Admin,
    ClusterDescription,
    ConfigEntry,
    LogDirDescription,
)
from sparklog.client.blocking_data_client import BlockingDataClient
from sparklog.client.blocking_producer import BlockingProducer
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.cluster_view import TopicView
from sparklog.client.consumer import ConsumedRecord, Consumer, ConsumerOptions
from sparklog.client.event_loop_thread import DEFAULT_TIMEOUT_S, GRACE_S
from sparklog.client.fetched_records import SkippedRecords
from sparklog.client.group_admin import GroupDescription, GroupListing, GroupOffset
from sparklog.client.groups import OffsetAndMetadata
from sparklog.client.producer_options import ProducerOptions
from sparklog.client.producer_sequences import ProducerIdentity
from sparklog.client.transaction_admin import (
    MAX_TIMEOUT_MS,
    ActiveProducer,
    HangingTransaction,
    TransactionDescription,
    TransactionListing,
)
from sparklog.errors import KafkaError
from sparklog.types import Endpoint, OffsetSpec, TopicPartition

T = TypeVar("T")


class BlockingClient(BlockingDataClient):
    """A cluster for blocking code: metadata, data requests and administration.

    ``async_admin`` is the asynchronous admin client inside, for ``submit`` and ``run``.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[Endpoint],
        *,
        client_id: str = "sparklog",
        secret: bytes | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """``timeout_s`` is the deadline of calls without a deadline of their own."""
        super().__init__(bootstrap, client_id=client_id, secret=secret, timeout_s=timeout_s)
        self.async_admin = Admin(self.cluster, timeout_s=timeout_s)
        self.admin = BlockingAdmin(self)

    def producer(self, options: ProducerOptions | None = None) -> BlockingProducer:
        return BlockingProducer(self, options)

    def consumer(self, options: ConsumerOptions | None = None) -> "BlockingConsumer":
        return BlockingConsumer(self, options)


class BlockingAdmin:
    """``Admin`` for blocking code; every method waits for the method of the same name."""

    def __init__(self, client: BlockingClient) -> None:
        self._run = client.run
        self._admin = client.async_admin

    def create_topic(
        self,
        name: str,
        partitions: int = CLUSTER_DEFAULT,
        *,
        replication_factor: int = CLUSTER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        tiered: bool | None = None,
        validate_only: bool = False,
    ) -> None:
        self._run(
            self._admin.create_topic(
                name,
                partitions,
                replication_factor=replication_factor,
                configs=configs,
                tiered=tiered,
                validate_only=validate_only,
            )
        )

    def await_serving(self, name: str) -> None:
        self._run(self._admin.await_serving(name))

    def delete_topics(self, names: Iterable[str]) -> None:
        self._run(self._admin.delete_topics(names))

    def create_partitions(self, name: str, count: int) -> None:
        self._run(self._admin.create_partitions(name, count))

    def list_topics(self, *, internal: bool = False) -> dict[str, TopicView]:
        return self._run(self._admin.list_topics(internal=internal))

    def describe_topics(self, names: Sequence[str]) -> dict[str, TopicView]:
        return self._run(self._admin.describe_topics(names))

    def describe_cluster(self) -> ClusterDescription:
        return self._run(self._admin.describe_cluster())

    def describe_topic_configs(self, name: str) -> dict[str, ConfigEntry]:
        return self._run(self._admin.describe_topic_configs(name))

    def describe_broker_configs(self, node_id: int) -> dict[str, ConfigEntry]:
        return self._run(self._admin.describe_broker_configs(node_id))

    def alter_broker_configs(
        self, node_id: int | None, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        call = self._admin.alter_broker_configs(node_id, changes, validate_only=validate_only)
        self._run(call)

    def describe_log_dirs(self) -> dict[int, list[LogDirDescription]]:
        return self._run(self._admin.describe_log_dirs())

    def status(self) -> dict[int, Mapping[str, int]]:
        return self._run(self._admin.status())

    def alter_topic_configs(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        self._run(self._admin.alter_topic_configs(name, changes, validate_only=validate_only))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return self._run(self._admin.delete_records(before))

    def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> dict[str, GroupListing]:
        return self._run(self._admin.list_groups(states=states, types=types))

    def describe_groups(
        self, group_ids: Iterable[str], *, skip_unknown: bool = False
    ) -> dict[str, GroupDescription]:
        return self._run(self._admin.describe_groups(group_ids, skip_unknown=skip_unknown))

    def group_offsets(
        self, group_id: str, also: Iterable[TopicPartition] = ()
    ) -> dict[TopicPartition, GroupOffset]:
        return self._run(self._admin.group_offsets(group_id, also))

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        self._run(self._admin.alter_group_offsets(group_id, offsets))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        self._run(self._admin.delete_groups(group_ids))

    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        self._run(self._admin.delete_group_offsets(group_id, partitions))

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> dict[str, TransactionListing]:
        call = self._admin.list_transactions(
            states=states, producer_ids=producer_ids, longer_than_ms=longer_than_ms, pattern=pattern
        )
        return self._run(call)

    def describe_transactions(
        self, transactional_ids: Iterable[str], *, skip_unknown: bool = False
    ) -> dict[str, TransactionDescription]:
        call = self._admin.describe_transactions(transactional_ids, skip_unknown=skip_unknown)
        return self._run(call)

    def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        return self._run(self._admin.describe_producers(partitions))

    def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, ProducerIdentity]:
        return self._run(self._admin.fence_producers(transactional_ids))

    def abort_transaction(self, transactional_id: str) -> TransactionDescription:
        return self._run(self._admin.abort_transaction(transactional_id))

    def find_hanging_transactions(
        self, topics: Collection[str] = (), *, max_timeout_ms: int = MAX_TIMEOUT_MS
    ) -> list[HangingTransaction]:
        return self._run(
            self._admin.find_hanging_transactions(topics, max_timeout_ms=max_timeout_ms)
        )

    def abort_hanging_transaction(self, hanging: HangingTransaction) -> None:
        self._run(self._admin.abort_hanging_transaction(hanging))


class BlockingConsumer:
    """``Consumer`` for blocking code.  Iterating gives records without end."""

    def __init__(self, client: BlockingClient, options: ConsumerOptions | None) -> None:
        self._client = client
        self._consumer: Consumer = client.run(_make(Consumer, client.cluster, options), GRACE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def assign(
        self,
        partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int],
        start: OffsetSpec = OffsetSpec.EARLIEST,
    ) -> None:
        """See ``Consumer.assign``."""
        self._client.run(self._consumer.assign(partitions, start), self._client.timeout_s)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._client.run(self._consumer.seek(tp, offset), self._client.timeout_s)

    def position(self, tp: TopicPartition) -> int:
        return self._consumer.position(tp)

    @property
    def skipped(self) -> SkippedRecords:
        """See ``Consumer.skipped``."""
        return self._consumer.skipped

    @property
    def unreadable(self) -> dict[TopicPartition, KafkaError]:
        """See ``Consumer.unreadable``."""
        return self._consumer.unreadable

    def poll(self, timeout_s: float = 1.0, max_records: int = 500) -> list[ConsumedRecord]:
        """See ``Consumer.poll``."""
        limit = timeout_s + self._client.timeout_s
        return self._client.run(self._consumer.poll(timeout_s, max_records), limit)

    def __iter__(self) -> Iterator[ConsumedRecord]:
        while True:
            yield from self.poll()

    def close(self) -> None:
        self._client.run(self._consumer.close(), GRACE_S)


async def _make(kind: Callable[[ClusterClient, Any], T], cluster: ClusterClient, options: Any) -> T:
    """Make an object on the loop that it belongs to."""
    return kind(cluster, options)
