"""Requests about partitions on node 0: keys 0-2, 21, 23 and 61.

They are Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch and DescribeProducers.
The control plane leads no partition, so every partition is answered with NOT_LEADER_OR_FOLLOWER,
upon which clients refresh their metadata.  The APIs share a file because they share this answer.
Node 0 serves them, in the brokers' version ranges, for two reasons: some clients take the APIs of
the first node that they connect to for those of the whole cluster, and the control plane's address
is the one that does not change.
"""

from collections.abc import Callable
from typing import Any, Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.service.error_responses import (
    REFUSAL_UNITS,
    refuse_delete_records,
    refuse_describe_producers,
    refuse_list_offsets,
    refuse_offset_for_leader_epoch,
)
from sparklog.service.handler import MANY_ITEMS, ApiHandler, Handled, RequestContext
from sparklog.slices import Slices, in_groups
from sparklog.types import NO_OFFSET
from sparklog.wire.protocol.messages.delete_records import DeleteRecordsRequest
from sparklog.wire.protocol.messages.describe_producers import DescribeProducersRequest
from sparklog.wire.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from sparklog.wire.protocol.messages.list_offsets import ListOffsetsRequest
from sparklog.wire.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from sparklog.wire.protocol.produce import ADVERTISED_MIN_VERSION
from sparklog.wire.protocol.schema import Request

_NO_ACKS: Final = 0


def handlers() -> tuple[ApiHandler, ...]:
    return (
        _handler(ProduceRequest, _refuse_produce, advertised_min=ADVERTISED_MIN_VERSION),
        _handler(FetchRequest, _refuse_fetch),
        _handler(ListOffsetsRequest, refuse_list_offsets),
        _handler(DeleteRecordsRequest, refuse_delete_records),
        _handler(OffsetForLeaderEpochRequest, refuse_offset_for_leader_epoch),
        _handler(DescribeProducersRequest, refuse_describe_producers),
    )


def _handler(
    request_type: type[Request],
    refuse: Callable[[Any, KafkaError], Any],
    advertised_min: int | None = None,
) -> ApiHandler:
    def handle(context: RequestContext, request: Any) -> Handled:
        if isinstance(request, ProduceRequest) and request.acks == _NO_ACKS:
            context.connection.finish()  # acks=0 has no response; this makes the client refresh
            return None
        return refuse(request, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    return ApiHandler(
        api_key=request_type.API_KEY,
        min_version=request_type.MIN_VERSION,
        max_version=request_type.MAX_VERSION,
        advertised_min=advertised_min,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse,
    )


def _refuse_produce(request: ProduceRequest, error: KafkaError) -> Slices[ProduceResponse]:
    responses = yield from in_groups(
        request.topic_data,
        lambda topic: topic.partition_data,
        lambda _, partition: PartitionProduceResponse(
            index=partition.index, error_code=error.code, base_offset=NO_OFFSET
        ),
        lambda topic, partitions: TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=partitions
        ),
        REFUSAL_UNITS,
    )
    return ProduceResponse(responses=responses)


def _refuse_fetch(request: FetchRequest, error: KafkaError) -> Slices[FetchResponse]:
    responses = yield from in_groups(
        request.topics,
        lambda topic: topic.partitions,
        lambda _, partition: PartitionData(
            partition_index=partition.partition,
            error_code=error.code,
            high_watermark=NO_OFFSET,
            records=b"",
        ),
        lambda topic, partitions: FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
        ),
        REFUSAL_UNITS,
    )
    return FetchResponse(responses=responses)
