"""ReportDamage (key 20013): a member got a damaged batch from this broker.

The request is answered at once.  The broker checks the segment later, and each segment only now and
then.
"""

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.types import TopicPartition
from sparklog.wire.protocol.private import ReportDamageRequest, ReportDamageResponse


def handler(replica_manager: ReplicaManager) -> ApiHandler:
    def handle(_context: RequestContext, request: ReportDamageRequest) -> ReportDamageResponse:
        tp = TopicPartition(replica_manager.topic_name(request.topic_id), request.partition)
        partition = replica_manager.find(tp.topic, tp.partition)
        log = partition.log
        if not log.local_log_start_offset <= request.offset < log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, str(log.out_of_range(request.offset)))
        log.damage.suspect(request.offset)
        return ReportDamageResponse()

    return ApiHandler(
        api_key=ReportDamageRequest.API_KEY,
        min_version=0,
        max_version=0,
        handle=handle,
        advertise=False,
        members_only=True,
    )
