"""AddPartitionsToTxn (key 24) v0-5: a transaction will write to partitions.

Versions before 4 are for producers: the partitions of one transaction are added, all or none.
Later versions are for brokers, with many transactions in one request.  A broker asks whether the
transaction of an old client has the partitions of a batch (``verify_only``), or adds them for a
client of transaction version 2 (KIP-890).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from sparklog.driver.control_plane.handlers.transactional_requests import (
    OLD_CLIENT_VERSION,
    TransactionalRequests,
)
from sparklog.driver.transactions import (
    EPOCH_BUMP_VERSION,
    AddPartitions,
    ProducerIdentity,
    TransactionRequest,
    VerifyPartitions,
)
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage
from sparklog.metadata.topic_names import INTERNAL_TOPICS
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.service.transaction_error_responses import (
    refuse_add_partitions_to_txn,
    topic_results,
)
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

_FENCED_FROM = 2
_BROKERS_FROM = 4
#: Since v5 clients know TRANSACTION_ABORTABLE; a broker asks in v4 for older clients.
_ABORTABLE_FROM = 5


def handler(transactions: TransactionalRequests, image: Callable[[], ClusterImage]) -> ApiHandler:
    async def handle(
        context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        if context.version < _BROKERS_FROM:
            return await for_producer(context, request)
        if not context.member:
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "AddPartitionsToTxn v4 and later is for brokers of the cluster",
            )
        results = await asyncio.gather(*(for_broker(context, one) for one in request.transactions))
        return AddPartitionsToTxnResponse(results_by_transaction=tuple(results))

    async def for_producer(
        context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        topics = request.v3_and_below_topics
        partitions = _partitions(topics)
        refused = _refused(image(), partitions)
        code = ErrorCode.OPERATION_NOT_ATTEMPTED if refused else ErrorCode.NONE
        if not refused:
            await transactions.submit(
                context,
                request.v3_and_below_transactional_id,
                lambda request_id: AddPartitions(
                    request_id=request_id,
                    transactional_id=request.v3_and_below_transactional_id,
                    producer=ProducerIdentity(
                        request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
                    ),
                    partitions=partitions,
                    connection=context.connection.number,
                    client_version=OLD_CLIENT_VERSION,
                ),
                fenced_from=_FENCED_FROM,
            )

        def code_of(topic: str, partition: int) -> ErrorCode:
            return refused.get(TopicPartition(topic, partition), code)

        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=topic_results(topics, code_of)
        )

    async def for_broker(
        context: RequestContext, one: AddPartitionsToTxnTransaction
    ) -> AddPartitionsToTxnResult:
        partitions = _partitions(one.topics)
        missing: frozenset[TopicPartition] = frozenset()
        code = ErrorCode.NONE
        try:
            result = await transactions.submit(
                context,
                one.transactional_id,
                lambda request_id: _broker_request(request_id, one, partitions),
            )
        except KafkaError as error:
            code = error.code
        else:
            missing = result if isinstance(result, frozenset) else missing
        lacking = (
            ErrorCode.TRANSACTION_ABORTABLE
            if context.version >= _ABORTABLE_FROM
            else ErrorCode.INVALID_TXN_STATE
        )

        def code_of(topic: str, partition: int) -> ErrorCode:
            return lacking if TopicPartition(topic, partition) in missing else code

        return AddPartitionsToTxnResult(
            transactional_id=one.transactional_id, topic_results=topic_results(one.topics, code_of)
        )

    return ApiHandler(
        api_key=AddPartitionsToTxnRequest.API_KEY,
        min_version=AddPartitionsToTxnRequest.MIN_VERSION,
        max_version=AddPartitionsToTxnRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_add_partitions_to_txn,
    )


def _broker_request(
    request_id: int, one: AddPartitionsToTxnTransaction, partitions: frozenset[TopicPartition]
) -> TransactionRequest:
    producer = ProducerIdentity(one.producer_id, one.producer_epoch)
    if one.verify_only:
        return VerifyPartitions(
            request_id=request_id,
            transactional_id=one.transactional_id,
            producer=producer,
            partitions=partitions,
        )
    return AddPartitions(
        request_id=request_id,
        transactional_id=one.transactional_id,
        producer=producer,
        partitions=partitions,
        connection=0,  # epochs tell the transactions of such a client apart
        client_version=EPOCH_BUMP_VERSION,
    )


def _partitions(topics: tuple[AddPartitionsToTxnTopic, ...]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(t.name, number) for t in topics for number in t.partitions)


def _refused(
    image: ClusterImage, partitions: Iterable[TopicPartition]
) -> Mapping[TopicPartition, ErrorCode]:
    """The partitions to which a producer cannot write; internal topics are for coordinators."""
    refused: dict[TopicPartition, ErrorCode] = {}
    for tp in partitions:
        if tp.topic in INTERNAL_TOPICS:
            refused[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image.partition(tp) is None:
            refused[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused
