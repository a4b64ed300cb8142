"""OffsetForLeaderEpoch (key 23) v2-4: the end offset of a leader epoch.

Followers use it to truncate, consumers to detect truncation (KIP-101, KIP-279, KIP-320).
"""

from typing import Final

from sparklog.errors import KafkaError
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.service.error_responses import refuse_offset_for_leader_epoch
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import Slices, in_groups
from sparklog.wire.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

#: Units of answering one partition.
_PARTITION_UNITS: Final = 6


def handler(replica_manager: ReplicaManager) -> ApiHandler:
    def handle(
        _context: RequestContext, request: OffsetForLeaderEpochRequest
    ) -> Slices[OffsetForLeaderEpochResponse]:
        topics = yield from in_groups(
            request.topics,
            lambda topic: topic.partitions,
            lambda topic, part: _end(replica_manager, topic.topic, part),
            lambda topic, ends: OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends),
            _PARTITION_UNITS,
        )
        return OffsetForLeaderEpochResponse(topics=topics)

    return ApiHandler(
        api_key=OffsetForLeaderEpochRequest.API_KEY,
        min_version=OffsetForLeaderEpochRequest.MIN_VERSION,
        max_version=OffsetForLeaderEpochRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_offset_for_leader_epoch,
    )


def _end(
    replica_manager: ReplicaManager, topic: str, part: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        partition = replica_manager.find(topic, part.partition)
        partition.require_leader(part.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=part.partition, error_code=int(error.code))
    epoch, end_offset = partition.end_of_epoch(part.leader_epoch)
    return EpochEndOffset(partition=part.partition, leader_epoch=epoch, end_offset=end_offset)
