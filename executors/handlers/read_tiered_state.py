"""ReadTieredState (key 20017): a follower asks which part of the leader's log is in the bucket."""

from sparklog.executors.replica_manager import ReplicaManager
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.types import TopicPartition
from sparklog.wire.protocol.private_replicas import (
    ReadTieredStateRequest,
    ReadTieredStateResponse,
)


def handler(replica_manager: ReplicaManager) -> ApiHandler:
    def handle(_: RequestContext, request: ReadTieredStateRequest) -> ReadTieredStateResponse:
        tp = TopicPartition(replica_manager.topic_name(request.topic_id), request.partition)
        partition = replica_manager.find(tp.topic, tp.partition)
        partition.require_leader(request.current_leader_epoch)
        log = partition.log
        return ReadTieredStateResponse(
            log_start_offset=log.log_start_offset,
            local_log_start_offset=log.local_log_start_offset,
            tiered_end_offset=log.tiered_end_offset,
        )

    return ApiHandler(
        api_key=ReadTieredStateRequest.API_KEY,
        min_version=0,
        max_version=0,
        handle=handle,
        advertise=False,
        members_only=True,
    )
