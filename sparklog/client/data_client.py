"""The client of data requests: Fetch, Produce, ListOffsets and InitProducerId, by partition.

Owns: versions, leader routing and retries of data requests.  Must not know records: batches pass
through as bytes, fetched batches as views of the receive buffer.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from sparklog.client.cluster_client import ClusterClient, OnRetry
from sparklog.client.connection import Connection
from sparklog.client.deadline import Deadline, check, retry
from sparklog.client.fetch_api import Fetched, FetchFrom, fetch_results, fetch_topics
from sparklog.client.list_offsets_api import list_offsets_results, list_offsets_topics
from sparklog.client.partition_results import value_or_raise
from sparklog.client.preferred_read_replicas import NO_RACK, PreferredReadReplicas, RackOf
from sparklog.client.produce_api import Produced, produce_results, produce_topics
from sparklog.client.producer_sequences import ProducerIdentity
from sparklog.errors import ConnectError, ErrorCode, KafkaError
from sparklog.transport import Buffer
from sparklog.types import (
    NO_LEADER_EPOCH,
    NO_NODE,
    Isolation,
    OffsetSpec,
    OffsetTimestamp,
    TopicPartition,
)
from sparklog.wire.protocol.codec import encode_request
from sparklog.wire.protocol.fetch import decode_fetch_response
from sparklog.wire.protocol.messages.fetch import FetchRequest
from sparklog.wire.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from sparklog.wire.protocol.messages.list_offsets import (
    ListOffsetsRequest,
)
from sparklog.wire.protocol.produce import (
    ProduceRequest,
    decode_produce_response,
    encode_produce_request,
)
from sparklog.wire.protocol.schema import Request

FETCH_LANE: Final = "fetch"
ACKS_ALL: Final = -1
_CONSUMER: Final = -1
#: The last versions of Fetch and Produce that name topics; later ones carry ids.
_NAMES_UNTIL: Final = 12
#: How often one fetch follows a leader to a preferred read replica before its result is empty.
_SENT_ON_MAX: Final = 2
#: Time for a response in addition to the time that the broker may wait, in seconds.
_ANSWER_GRACE_S: Final = 10.0


class DataClient:
    """Data requests by partition, routed to leaders and retried within a deadline in seconds."""

    def __init__(self, cluster: ClusterClient, rack_of: RackOf = NO_RACK) -> None:
        self.cluster = cluster
        self._preferred = PreferredReadReplicas(rack_of)

    async def fetch(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        max_bytes: int = 8 * 1024 * 1024,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        isolation: Isolation = Isolation.READ_COMMITTED,
        timeout_s: float = 60.0,
        lane: str = FETCH_LANE,
    ) -> Fetched:
        """Batches of one partition from an offset.

        Raises KafkaError (OFFSET_OUT_OF_RANGE, and retriable errors when time is up).  Fetches of
        one lane and leader wait for each other; concurrent callers use separate lanes.
        """
        found = await self.fetch_each(
            {tp: FetchFrom(offset=offset, max_bytes=max_bytes)},
            max_bytes=max_bytes,
            min_bytes=min_bytes,
            max_wait_ms=max_wait_ms,
            isolation=isolation,
            timeout_s=timeout_s,
            lane=lane,
        )
        return value_or_raise(tp, found[tp])

    async def fetch_each(
        self,
        wanted: Mapping[TopicPartition, FetchFrom],
        *,
        max_bytes: int = 50 * 1024 * 1024,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        isolation: Isolation = Isolation.READ_COMMITTED,
        timeout_s: float = 60.0,
        lane: str = FETCH_LANE,
        on_retry: OnRetry | None = None,
    ) -> dict[TopicPartition, Fetched | KafkaError]:
        """Batches of many partitions, one request per leader; a result for each partition.

        Partitions whose leader names a preferred read replica are fetched from that replica.
        Damage that the last answer has told is the result, also if time is up before the next one.
        """
        preferred, until = self._preferred, Deadline(timeout_s)
        damaged: dict[TopicPartition, KafkaError] = {}

        async def call(
            node_id: int, group: dict[TopicPartition, FetchFrom], deadline: Deadline
        ) -> dict[TopicPartition, Fetched | KafkaError]:
            connection = await self.cluster.connect_node(node_id, deadline, lane)
            version = self._version(connection, FetchRequest, group)
            epochs = self._leader_epochs(group)
            request = FetchRequest(
                rack_id=preferred.rack(group, self.cluster.view),
                replica_id=_CONSUMER,
                max_wait_ms=min(max_wait_ms, deadline.left_ms),
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation_level=isolation,
                topics=fetch_topics(group, epochs, self._topic_id),
            )
            correlation_id = connection.next_correlation_id()
            payload = encode_request(request, version, correlation_id, connection.client_id)
            patience_s = min(max_wait_ms / 1000 + _ANSWER_GRACE_S, deadline.left_s)
            answer = await connection.exchange(
                FetchRequest.API_KEY, (payload,), timeout_s=max(patience_s, 0.001)
            )
            answered_id, response = decode_fetch_response(version, answer)
            connection.check_correlation(correlation_id, answered_id)
            check(response.error_code)
            return fetch_results(response, group, epochs, self._names(group))

        async def follow(
            node_id: int, group: dict[TopicPartition, FetchFrom], deadline: Deadline
        ) -> dict[TopicPartition, Fetched | KafkaError]:
            try:
                answers = await call(node_id, group, deadline)
            except (ConnectError, KafkaError):
                for tp in group:
                    preferred.fall_back(tp, node_id)
                raise
            followed = {tp: self._followed(tp, node_id, answers[tp]) for tp in group}
            for tp, answer in followed.items():
                damaged.pop(tp, None)
                if isinstance(answer, KafkaError) and answer.code is ErrorCode.CORRUPT_MESSAGE:
                    damaged[tp] = answer
            return followed

        found: dict[TopicPartition, Fetched | KafkaError] = {}
        asked = wanted
        for _ in range(1 + _SENT_ON_MAX):
            found |= await self.cluster.ask_leaders(
                asked, follow, until, node_of=preferred.node_of, on_retry=on_retry
            )
            asked = {tp: wanted[tp] for tp in asked if _names_another(found[tp])}
            if not asked:
                break
        return found | damaged

    async def produce(
        self,
        tp: TopicPartition,
        batches: Sequence[Buffer],
        *,
        acks: int = ACKS_ALL,
        timeout_s: float = 60.0,
        create: bool = False,
        sends: "Counter[TopicPartition] | None" = None,
        transactional_id: str | None = None,
        version_max: int | None = None,
    ) -> Produced:
        """Encoded batches (usually one) to one partition.  Raises KafkaError.

        ``sends`` counts the requests that carried the batches.  After more than one, an error does
        not mean that nothing was written: the response to an earlier request may be lost.
        ``transactional_id`` belongs to transactional batches; ``version_max`` is the highest
        version of the request.
        """
        answers = await self.produce_each(
            {tp: batches},
            acks=acks,
            timeout_s=timeout_s,
            create=create,
            sends=sends,
            transactional_id=transactional_id,
            version_max=version_max,
        )
        return value_or_raise(tp, answers[tp])

    async def produce_each(
        self,
        batches: Mapping[TopicPartition, Sequence[Buffer]],
        *,
        acks: int = ACKS_ALL,
        timeout_s: float = 60.0,
        create: bool = False,
        sends: "Counter[TopicPartition] | None" = None,
        transactional_id: str | None = None,
        version_max: int | None = None,
    ) -> dict[TopicPartition, Produced | KafkaError]:
        """Encoded batches to many partitions, one request per leader; a result for each partition.

        Retriable failures are sent again unchanged, so batches without a producer id may be
        written twice when a response is lost.  The other arguments are those of ``produce``.
        """

        async def call(
            node_id: int, group: dict[TopicPartition, Sequence[Buffer]], deadline: Deadline
        ) -> dict[TopicPartition, Produced | KafkaError]:
            connection = await self.cluster.connect_node(node_id, deadline)
            version = self._version(connection, ProduceRequest, group)
            if version_max is not None:
                version = min(version, version_max)
            request = ProduceRequest(
                transactional_id=transactional_id,
                acks=acks,
                timeout_ms=max(deadline.left_ms, 1),
                topic_data=produce_topics(group, self._topic_id),
            )
            correlation_id = connection.next_correlation_id()
            payload = encode_produce_request(version, correlation_id, connection.client_id, request)
            if sends is not None:
                sends.update(group.keys())
            if acks == 0:
                await connection.send(payload)
                return dict.fromkeys(group, Produced())
            answer = await connection.exchange(
                ProduceRequest.API_KEY, payload, timeout_s=max(deadline.left_s, 0.001)
            )
            answered_id, response = decode_produce_response(version, answer)
            connection.check_correlation(correlation_id, answered_id)
            return produce_results(response, group, self._names(group))

        return await self.cluster.ask_leaders(batches, call, Deadline(timeout_s), create=create)

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        timeout_s: float = 60.0,
    ) -> dict[TopicPartition, OffsetTimestamp]:
        """Offsets for timestamps in milliseconds or for ``OffsetSpec``; -1 without such an offset.

        Raises KafkaError for the first partition without a result.
        """
        answers = await self.find_offsets(wanted, isolation=isolation, timeout_s=timeout_s)
        return {tp: value_or_raise(tp, answer) for tp, answer in answers.items()}

    async def find_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        timeout_s: float = 60.0,
        final: Container[ErrorCode] = (),
    ) -> dict[TopicPartition, OffsetTimestamp | KafkaError]:
        """``list_offsets`` with errors in place of missing results.

        Codes in ``final`` are not retried.
        """

        async def call(
            node_id: int, group: dict[TopicPartition, int], deadline: Deadline
        ) -> dict[TopicPartition, OffsetTimestamp | KafkaError]:
            connection = await self.cluster.connect_node(node_id, deadline)
            request = ListOffsetsRequest(
                replica_id=_CONSUMER,
                isolation_level=isolation,
                topics=list_offsets_topics(group, self._leader_epochs(group)),
                timeout_ms=deadline.left_ms,
            )
            response = await connection.request(request, timeout_s=max(deadline.left_s, 0.001))
            return list_offsets_results(response, group)

        return await self.cluster.ask_leaders(wanted, call, Deadline(timeout_s), final=final)

    async def end_offsets(
        self,
        partitions: Sequence[TopicPartition],
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        timeout_s: float = 60.0,
    ) -> dict[TopicPartition, int]:
        """The offsets behind the last readable records."""
        wanted = dict.fromkeys(partitions, int(OffsetSpec.LATEST))
        found = await self.list_offsets(wanted, isolation=isolation, timeout_s=timeout_s)
        return {tp: answer.offset for tp, answer in found.items()}

    async def init_producer_id(self, *, timeout_s: float = 60.0) -> ProducerIdentity:
        """A new producer id."""
        deadline = Deadline(timeout_s)
        request = InitProducerIdRequest(transaction_timeout_ms=60_000)

        async def attempt() -> InitProducerIdResponse:
            response: InitProducerIdResponse = await self.cluster.ask_broker(request, deadline)
            check(response.error_code)
            return response

        found = await retry(attempt, deadline)
        return ProducerIdentity(producer_id=found.producer_id, producer_epoch=found.producer_epoch)

    def _version(
        self, connection: Connection, message: type[Request], group: Iterable[TopicPartition]
    ) -> int:
        """The highest common version; without topic ids if the id of a topic is not known."""
        if all(self._topic_id(tp.topic) for tp in group):
            return connection.version_for(message)
        return connection.version_for(message, at_most=_NAMES_UNTIL)

    def _topic_id(self, name: str) -> UUID | None:
        topic = self.cluster.view.topics.get(name)
        return topic.topic_id if topic else None

    def _names(self, group: Iterable[TopicPartition]) -> dict[UUID | None, str]:
        """Topic names by id, for responses that carry only ids."""
        return {self._topic_id(tp.topic): tp.topic for tp in group}

    def _leader_epochs(self, group: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The known leader epochs: a leader that was replaced meanwhile refuses the request."""
        leaders = {tp: self.cluster.view.leader(tp) for tp in group}
        return {tp: led.leader_epoch if led else NO_LEADER_EPOCH for tp, led in leaders.items()}

    def _followed(
        self, tp: TopicPartition, node_id: int, answer: Fetched | KafkaError
    ) -> Fetched | KafkaError:
        """The result of a leader or follower; after errors of a follower the leader is asked."""
        if isinstance(answer, Fetched) and answer.preferred_read_replica != NO_NODE:
            self._preferred.prefer(tp, answer.preferred_read_replica)
        elif self._preferred.is_follower(tp, node_id):
            if isinstance(answer, KafkaError):
                answer = KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, str(answer))
            elif answer.records:
                return answer
            self._preferred.fall_back(tp, node_id)
        return answer


def _names_another(answer: Fetched | KafkaError) -> bool:
    return isinstance(answer, Fetched) and answer.preferred_read_replica != NO_NODE
