"""Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch (keys 0, 1, 2, 21, 23) on a node
that leads no partition: NOT_LEADER_OR_FOLLOWER for every one, upon which clients ask for metadata.

They share a file because they share their one answer.  Node 0 serves them, in the brokers' version
ranges, because some clients take the abilities of the first node they meet for the whole cluster's,
and the control plane's address is the one that stays.
"""

from collections.abc import Callable
from typing import Any, Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.service.refusals import (
    refuse_delete_records,
    refuse_list_offsets,
    refuse_offset_for_leader_epoch,
)
from sparklog.types import NO_OFFSET
from sparklog.wire.messages.delete_records import DeleteRecordsRequest
from sparklog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from sparklog.wire.messages.list_offsets import ListOffsetsRequest
from sparklog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from sparklog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from sparklog.wire.produce import ADVERTISED_MIN_VERSION
from sparklog.wire.schema import Request

_NO_ACKS: Final = 0


def handlers() -> tuple[ApiHandler, ...]:
    return (
        _handler(ProduceRequest, _refuse_produce, advertised_min=ADVERTISED_MIN_VERSION),
        _handler(FetchRequest, _refuse_fetch),
        _handler(ListOffsetsRequest, refuse_list_offsets),
        _handler(DeleteRecordsRequest, refuse_delete_records),
        _handler(OffsetForLeaderEpochRequest, refuse_offset_for_leader_epoch),
    )


def _handler(
    request_type: type[Request],
    refuse: Callable[[Any, KafkaError], Any],
    advertised_min: int | None = None,
) -> ApiHandler:
    def handle(context: RequestContext, request: Any) -> Handled:
        if isinstance(request, ProduceRequest) and request.acks == _NO_ACKS:
            context.connection.finish()  # no answer is owed, and this tells the client to look
            return None
        return refuse(request, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    return ApiHandler(
        api_key=request_type.API_KEY,
        min_version=request_type.MIN_VERSION,
        max_version=request_type.MAX_VERSION,
        advertised_min=advertised_min,
        handle=handle,
        error_response=refuse,
    )


def _refuse_produce(request: ProduceRequest, error: KafkaError) -> ProduceResponse:
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple(
                    PartitionProduceResponse(
                        index=partition.index, error_code=error.code, base_offset=NO_OFFSET
                    )
                    for partition in topic.partition_data
                ),
            )
            for topic in request.topic_data
        )
    )


def _refuse_fetch(request: FetchRequest, error: KafkaError) -> FetchResponse:
    return FetchResponse(
        responses=tuple(
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=tuple(
                    PartitionData(
                        partition_index=partition.partition,
                        error_code=error.code,
                        high_watermark=NO_OFFSET,
                        records=b"",
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
