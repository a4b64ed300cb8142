"""ReadRemoteSegments (key 20022): a DataFrame's planner or task asks where it can read segments.

Any client may ask, as any client may fetch the same records.  The URLs open nothing else.
"""

from typing import Final

from sparklog.executors.replica_manager import ReplicaManager
from sparklog.remote_log.remote_segment import TimeBounds
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.types import TopicPartition
from sparklog.wire.protocol.private_clients import (
    ReadRemoteSegmentsRequest,
    ReadRemoteSegmentsResponse,
)

#: Most segments of one response.
SEGMENTS_MAX: Final = 200


def handler(replica_manager: ReplicaManager) -> ApiHandler:
    async def handle(
        _: RequestContext, request: ReadRemoteSegmentsRequest
    ) -> ReadRemoteSegmentsResponse:
        tp = TopicPartition(replica_manager.topic_name(request.topic_id), request.partition)
        partition = replica_manager.find(tp.topic, tp.partition)
        partition.require_leader(request.current_leader_epoch)
        seconds = replica_manager.broker_config.remote_signed_url_lifetime_ms // 1000
        start, end = request.start_offset, request.end_offset
        if seconds == 0 or start >= end or start < partition.log.log_start_offset:
            return ReadRemoteSegmentsResponse()
        expires_at_ms = replica_manager.now_ms() + 1000 * seconds
        found = await replica_manager.remote_reads.signed_segments(
            partition,
            start,
            end,
            TimeBounds(request.min_timestamp, request.max_timestamp),
            seconds=seconds,
            count_max=min(max(request.segments_max, 1), SEGMENTS_MAX),
        )
        return ReadRemoteSegmentsResponse(
            expires_at_ms=expires_at_ms,
            segments=tuple(each.encode() for each in found.segments),
            next_offset=found.next_offset,
            bytes_behind=found.bytes_behind,
        )

    return ApiHandler(
        api_key=ReadRemoteSegmentsRequest.API_KEY,
        min_version=0,
        max_version=0,
        handle=handle,
        advertise=False,
        advertise_to_own_clients=True,
    )
