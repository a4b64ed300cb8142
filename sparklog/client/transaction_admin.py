"""Administration of transactions: lists, descriptions, producers of partitions, and forced aborts.

Owns: the requests of tools about transactions and their results as values.  Must not know how a
coordinator decides, nor how a producer works.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.connection import Connection
from sparklog.client.coordinators import Coordinators
from sparklog.client.deadline import Deadline, check, kafka_error, retry
from sparklog.client.find_coordinator_api import CoordinatorType
from sparklog.client.partition_results import unanswered, value_or_raise
from sparklog.client.producer_sequences import ProducerIdentity
from sparklog.client.transactions import INIT_PRODUCER_ID_VERSION_MAX
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import NO_OFFSET, TopicPartition, numbers_by_topic
from sparklog.wire.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from sparklog.wire.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    TransactionState,
)
from sparklog.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from sparklog.wire.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from sparklog.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from sparklog.wire.protocol.schema import Request

T = TypeVar("T")

#: Kafka's default of ``transaction.max.timeout.ms``: no transaction is open for longer.
MAX_TIMEOUT_MS: Final = 15 * 60_000
#: The timeout of a transactional id that a tool has taken over, until its next producer sets it.
_FENCE_TIMEOUT_MS: Final = 60_000
#: The first version of ListTransactions with each filter.
_DURATION_FROM: Final = 1
_PATTERN_FROM: Final = 2
#: States in which the coordinator still holds partitions of a transaction open.
_OPEN_STATES: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id in the list of all; ``state`` is Kafka's name, such as ``Ongoing``.

    ``coordinator`` is a node id.
    """

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id and its transaction.

    ``start_ms`` is the time of day in milliseconds when the transaction began, None without one;
    ``partitions`` are those that have no marker yet.
    """

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: frozenset[TopicPartition]

    @property
    def is_open(self) -> bool:
        return self.state in _OPEN_STATES


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """A producer that the leader of a partition remembers.

    ``last_timestamp`` is that of its last batch in milliseconds.  ``transaction_start_offset`` is
    the first offset of its open transaction, None without one.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction:
    """A transaction that is open in a partition while no coordinator will end it there."""

    topic_partition: TopicPartition
    producer: ActiveProducer


class TransactionAdmin:
    """Requests about transactions.

    Every call raises KafkaError for a refusal and ConnectError when no node responds.  Calls wait
    for a coordinator that moves or loads, until ``timeout_s`` is over.
    """

    def __init__(self, cluster: ClusterClient, *, timeout_s: float = 60.0) -> None:
        self.cluster = cluster
        self.timeout_s = timeout_s
        self._transaction_coordinators = Coordinators(cluster, CoordinatorType.TRANSACTION)

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> dict[str, TransactionListing]:
        """The transactional ids of all coordinators, sorted; the arguments choose among them.

        Args:
            states: Kafka's names, such as ``Ongoing``; an unknown state matches nothing.
            longer_than_ms: only transactions that have been open for longer, in milliseconds.
            pattern: a regular expression (RE2J in Kafka) for the whole transactional id.
        """
        deadline = Deadline(self.timeout_s)
        request = ListTransactionsRequest(
            state_filters=tuple(states),
            producer_id_filters=tuple(producer_ids),
            duration_filter=-1 if longer_than_ms is None else longer_than_ms,
            transactional_id_pattern=pattern,
        )
        answers: dict[int, ListTransactionsResponse | None] = {}

        async def ask(node_id: int) -> None:
            answers[node_id] = await self._list(node_id, request, deadline)

        async def attempt() -> None:
            await self.cluster.refresh((), deadline)
            nodes = [node for node in self.cluster.view.nodes if node not in answers]
            for failure in await asyncio.gather(*map(ask, nodes), return_exceptions=True):
                if failure is not None:
                    raise failure

        await retry(attempt, deadline)
        if not any(answers.values()):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "no node of the cluster lists transactions"
            )
        found = {
            each.transactional_id: TransactionListing(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                state=each.transaction_state,
                coordinator=node_id,
            )
            for node_id, response in answers.items()
            if response is not None
            for each in response.transaction_states
        }
        return dict(sorted(found.items()))

    async def _list(
        self, node_id: int, request: ListTransactionsRequest, deadline: Deadline
    ) -> ListTransactionsResponse | None:
        """The answer of a node; None: this node coordinates no transactions."""
        connection = await self.cluster.connect_node(node_id, deadline)
        if ListTransactionsRequest.API_KEY not in connection.versions:
            return None
        needed = _PATTERN_FROM if request.transactional_id_pattern is not None else 0
        if request.duration_filter >= 0:
            needed = max(needed, _DURATION_FROM)
        if connection.version_for(ListTransactionsRequest) < needed:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"node {node_id} cannot filter transactions so (ListTransactions v{needed})",
            )
        response: ListTransactionsResponse = await _ask(connection, request, deadline)
        check(response.error_code, f"node {node_id} cannot list its transactions")
        return response

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, skip_unknown: bool = False
    ) -> dict[str, TransactionDescription]:
        """Describe transactional ids; ``skip_unknown`` leaves out those that do not exist.

        Raises KafkaError (TRANSACTIONAL_ID_NOT_FOUND) for the first unknown one otherwise.
        """

        async def call(
            node_id: int, connection: Connection, ids: tuple[str, ...], deadline: Deadline
        ) -> dict[str, TransactionDescription | KafkaError]:
            request = DescribeTransactionsRequest(transactional_ids=ids)
            response = await _ask(connection, request, deadline)
            return {
                each.transactional_id: _described(each, node_id)
                for each in response.transaction_states
            }

        deadline = Deadline(self.timeout_s)
        found = await self._transaction_coordinators.ask(transactional_ids, call, deadline)
        return {
            key: _value(answer)
            for key, answer in found.items()
            if not (skip_unknown and _is_unknown(answer))
        }

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """The producers that the leader of each partition remembers, by producer id."""

        async def call(
            node_id: int, group: dict[TopicPartition, None], deadline: Deadline
        ) -> dict[TopicPartition, list[ActiveProducer] | KafkaError]:
            request = DescribeProducersRequest(topics=_topics(group))
            response = await self.cluster.ask(request, deadline, node_id)
            return _producers(response, group)

        wanted = dict.fromkeys(sorted(set(partitions)))
        found = await self.cluster.ask_leaders(wanted, call, Deadline(self.timeout_s))
        return {tp: value_or_raise(tp, answer) for tp, answer in found.items()}

    async def fence_producers(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, ProducerIdentity]:
        """Fence the producers of transactional ids, and abort what they have open.

        When this returns, their transactions are aborted, and each id has the producer id and epoch
        of the result.  A producer that goes on gets PRODUCER_FENCED.
        """

        async def call(
            _node_id: int, connection: Connection, ids: tuple[str, ...], deadline: Deadline
        ) -> dict[str, ProducerIdentity | KafkaError]:
            return {key: await _fence(connection, key, deadline) for key in ids}

        deadline = Deadline(self.timeout_s)
        found = await self._transaction_coordinators.ask(transactional_ids, call, deadline)
        return {key: _value(answer) for key, answer in found.items()}

    async def abort_transaction(self, transactional_id: str) -> TransactionDescription:
        """Abort the open transaction of a transactional id by fencing its producer.

        Returns: the transaction as it was.  Raises KafkaError: TRANSACTIONAL_ID_NOT_FOUND, or
        INVALID_TXN_STATE when no transaction is open; nothing is fenced then.
        """
        found = (await self.describe_transactions([transactional_id]))[transactional_id]
        if not found.is_open:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"the transactional id {transactional_id!r} is {found.state} and has no open "
                "transaction",
            )
        await self.fence_producers([transactional_id])
        return found

    async def find_hanging_transactions(
        self, topics: Collection[str] = (), *, max_timeout_ms: int = MAX_TIMEOUT_MS
    ) -> list[HangingTransaction]:
        """Transactions that keep the last stable offset of a partition although none will end them.

        Such a transaction is older than ``max_timeout_ms``, the largest timeout that producers may
        have, and its producer id has no open transaction with this partition at any coordinator.

        Args:
            topics: the topics to look at; all by default, internal topics included.
        """
        deadline = Deadline(self.timeout_s)
        view = await self.cluster.refresh(sorted(topics) or None, deadline)
        names = topics or view.topics
        partitions = [
            TopicPartition(name, number) for name in names for number in view.topic(name).partitions
        ]
        before_ms = self.cluster.runtime.wall_ms() - max_timeout_ms
        producers = await self.describe_producers(partitions)
        candidates = [
            HangingTransaction(topic_partition=tp, producer=each)
            for tp, found in producers.items()
            for each in found
            if each.transaction_start_offset is not None and each.last_timestamp < before_ms
        ]
        if not candidates:
            return []
        listed = await self.list_transactions(
            producer_ids={each.producer.producer_id for each in candidates}
        )
        known = await self.describe_transactions(listed, skip_unknown=True)
        coordinated = {
            (each.producer_id, tp)
            for each in known.values()
            if each.is_open
            for tp in each.partitions
        }
        return [
            each
            for each in candidates
            if (each.producer.producer_id, each.topic_partition) not in coordinated
        ]

    async def abort_hanging_transaction(self, hanging: HangingTransaction) -> None:
        """Write an abort marker into a partition whose transaction no coordinator will end.

        A transaction that is not hanging loses its records in this partition only: see
        ``abort_transaction``.  Raises KafkaError: CLUSTER_AUTHORIZATION_FAILED when the cluster
        takes markers from its own nodes only (``sparklog.client.abort.markers.enable``).
        """
        tp, producer = hanging.topic_partition, hanging.producer
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=(WritableTxnMarkerTopic(name=tp.topic, partition_indexes=(tp.partition,)),),
            # A producer that no coordinator has ever written a marker for has no epoch of one.
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )

        async def call(
            node_id: int, group: dict[TopicPartition, None], deadline: Deadline
        ) -> dict[TopicPartition, KafkaError | None]:
            request = WriteTxnMarkersRequest(markers=(marker,))
            response = await self.cluster.ask(request, deadline, node_id)
            return _written_markers(response, group)

        found = await self.cluster.ask_leaders({tp: None}, call, Deadline(self.timeout_s))
        value_or_raise(tp, found[tp])


async def _fence(
    connection: Connection, transactional_id: str, deadline: Deadline
) -> ProducerIdentity | KafkaError:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=_FENCE_TIMEOUT_MS
    )
    response = await connection.request(
        request, timeout_s=max(deadline.left_s, 0.001), at_most=INIT_PRODUCER_ID_VERSION_MAX
    )
    if response.error_code:
        words = f"the producer of the transactional id {transactional_id!r} was not fenced"
        return kafka_error(response.error_code, words)
    return ProducerIdentity(
        producer_id=response.producer_id, producer_epoch=response.producer_epoch
    )


async def _ask(connection: Connection, request: Request, deadline: Deadline) -> Any:
    return await connection.request(request, timeout_s=max(deadline.left_s, 0.001))


def _described(found: TransactionState, node_id: int) -> TransactionDescription | KafkaError:
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        text = f"there is no transactional id {found.transactional_id!r}"
        return kafka_error(found.error_code, text)
    if found.error_code:
        text = f"the request about the transactional id {found.transactional_id!r} was refused"
        return kafka_error(found.error_code, text)
    return TransactionDescription(
        transactional_id=found.transactional_id,
        coordinator=node_id,
        state=found.transaction_state,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        start_ms=found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
        partitions=frozenset(
            TopicPartition(topic.topic, number)
            for topic in found.topics
            for number in topic.partitions
        ),
    )


def _topics(partitions: Iterable[TopicPartition]) -> tuple[TopicRequest, ...]:
    return tuple(
        TopicRequest(name=name, partition_indexes=numbers)
        for name, numbers in numbers_by_topic(partitions).items()
    )


def _producers(
    response: DescribeProducersResponse, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer] | KafkaError]:
    found: dict[TopicPartition, list[ActiveProducer] | KafkaError] = unanswered(partitions)
    for topic in response.topics:
        for part in topic.partitions:
            tp = TopicPartition(topic.name, part.partition_index)
            if part.error_code:
                words = part.error_message or f"the producers of {tp} are not known"
                found[tp] = kafka_error(part.error_code, words)
                continue
            active = sorted(part.active_producers, key=lambda each: each.producer_id)
            found[tp] = [_producer(each) for each in active]
    return found


def _written_markers(
    response: WriteTxnMarkersResponse, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    found: dict[TopicPartition, KafkaError | None] = unanswered(partitions)
    for marker in response.markers:
        for topic in marker.topics:
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.partition_index)
                words = f"the leader of {tp} wrote no marker"
                if part.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                    words += (
                        "; brokers of sparklog take abort markers from clients while the setting "
                        "sparklog.client.abort.markers.enable is true"
                    )
                found[tp] = kafka_error(part.error_code, words) if part.error_code else None
    return found


def _producer(state: ProducerState) -> ActiveProducer:
    start = state.current_txn_start_offset
    return ActiveProducer(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        transaction_start_offset=None if start == NO_OFFSET else start,
    )


def _value(answer: T | KafkaError) -> T:
    if isinstance(answer, KafkaError):
        raise answer
    return answer


def _is_unknown(answer: object) -> bool:
    return isinstance(answer, KafkaError) and (answer.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
