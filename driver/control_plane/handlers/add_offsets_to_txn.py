"""AddOffsetsToTxn (key 25) v0-4: a transaction will commit offsets of a group.

The transaction gets the partition of ``__consumer_offsets`` that the group belongs to.  The first
request has a missing topic created, as FindCoordinator does, because a producer before version 2
may send offsets of a group before anybody looks for its coordinator.
"""

from collections.abc import Callable

from sparklog.driver.control_plane.handlers.transactional_requests import (
    OLD_CLIENT_VERSION,
    TransactionalRequests,
)
from sparklog.driver.transactions import AddPartitions, ProducerIdentity
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage
from sparklog.metadata.coordinators import coordinator_partition
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.service.internal_topic_creation import CreateInternalTopic, InternalTopicCreation
from sparklog.service.transaction_error_responses import refuse_add_offsets_to_txn
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

_FENCED_FROM = 2


def handler(
    transactions: TransactionalRequests,
    image: Callable[[], ClusterImage],
    create_internal_topic: CreateInternalTopic,
) -> ApiHandler:
    creation = InternalTopicCreation(CONSUMER_OFFSETS, image, create_internal_topic)

    async def handle(
        context: RequestContext, request: AddOffsetsToTxnRequest
    ) -> AddOffsetsToTxnResponse:
        if creation.topic_is_missing:
            await creation.create_topic()
        number = coordinator_partition(image(), CONSUMER_OFFSETS, request.group_id)
        if number is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{CONSUMER_OFFSETS} is missing: {creation.reason}",
            )
        await transactions.submit(
            context,
            request.transactional_id,
            lambda request_id: AddPartitions(
                request_id=request_id,
                transactional_id=request.transactional_id,
                producer=ProducerIdentity(request.producer_id, request.producer_epoch),
                partitions=frozenset({TopicPartition(CONSUMER_OFFSETS, number)}),
                connection=context.connection.number,
                client_version=OLD_CLIENT_VERSION,
            ),
            fenced_from=_FENCED_FROM,
        )
        return AddOffsetsToTxnResponse()

    return ApiHandler(
        api_key=AddOffsetsToTxnRequest.API_KEY,
        min_version=AddOffsetsToTxnRequest.MIN_VERSION,
        max_version=AddOffsetsToTxnRequest.MAX_VERSION,
        handle=handle,
        error_response=refuse_add_offsets_to_txn,
    )
