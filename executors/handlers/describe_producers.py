"""DescribeProducers (key 61) v0: the producers that a partition knows, with their transactions.

Any replica answers, as in Kafka, so that tools can compare them.  A partition that is named twice
is answered once.
"""

from collections.abc import Iterable
from typing import Final

from sparklog.errors import KafkaError
from sparklog.executors.partition import ProducerEntry
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.metadata.topic_names import check_topic_name
from sparklog.service.error_responses import refuse_describe_producers
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import Slices, in_slices
from sparklog.wire.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

#: Units of answering one partition, and of one producer.
_PARTITION_UNITS: Final = 6
_PRODUCER_UNITS: Final = 3


def handler(replica_manager: ReplicaManager) -> ApiHandler:
    def handle(
        _context: RequestContext, request: DescribeProducersRequest
    ) -> Slices[DescribeProducersResponse]:
        asked: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
            yield 1 + len(topic.partition_indexes) // 8
        topics: list[TopicResponse] = []
        for name, numbers in asked.items():
            partitions = yield from _describe_topic(replica_manager, name, numbers)
            topics.append(TopicResponse(name=name, partitions=partitions))
        return DescribeProducersResponse(topics=tuple(topics))

    return ApiHandler(
        api_key=DescribeProducersRequest.API_KEY,
        min_version=DescribeProducersRequest.MIN_VERSION,
        max_version=DescribeProducersRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_describe_producers,
    )


def _describe_topic(
    replica_manager: ReplicaManager, name: str, numbers: Iterable[int]
) -> Slices[tuple[PartitionResponse, ...]]:
    described: list[PartitionResponse] = []
    for number in numbers:
        yield _PARTITION_UNITS
        try:
            check_topic_name(name)
            partition = replica_manager.find(name, number)
            partition.require_online()
        except KafkaError as error:
            described.append(
                PartitionResponse(
                    partition_index=number,
                    error_code=int(error.code),
                    error_message=error.message,
                )
            )
            continue
        entries = tuple(partition.producers.entries.values())
        producers = yield from in_slices(_describe, entries, _PRODUCER_UNITS)
        described.append(
            PartitionResponse(partition_index=number, active_producers=tuple(producers))
        )
    return tuple(described)


def _describe(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.current_txn_first_offset,
    )
