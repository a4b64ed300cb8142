"""ReadCleanOffset (key 20015): another replica asks for this log's clean offset.

A log that is offline or about to be truncated is refused: its clean offset may be lowered.
"""

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.types import NO_OFFSET, TopicPartition
from sparklog.wire.protocol.private_replicas import ReadCleanOffsetRequest, ReadCleanOffsetResponse


def handler(replica_manager: ReplicaManager) -> ApiHandler:
    def handle(_: RequestContext, request: ReadCleanOffsetRequest) -> ReadCleanOffsetResponse:
        tp = TopicPartition(replica_manager.topic_name(request.topic_id), request.partition)
        partition = replica_manager.find(tp.topic, tp.partition)
        log, state = partition.log, partition.state
        if state is None or log.offline is not None or log.truncating:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{tp} has no replica at rest on this broker"
            )
        clean_offset = log.clean_offset
        return ReadCleanOffsetResponse(
            clean_offset=NO_OFFSET if clean_offset is None else clean_offset,
            partition_epoch=state.partition_epoch,
        )

    return ApiHandler(
        api_key=ReadCleanOffsetRequest.API_KEY,
        min_version=0,
        max_version=0,
        handle=handle,
        advertise=False,
        members_only=True,
    )
