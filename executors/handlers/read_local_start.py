"""ReadLocalStart (key 20019): a leader asks where the files of a replica begin (KIP-950).

The leader of a topic that leaves the bucket deletes what lies below the highest answer.  So the
files must not begin later afterwards, whatever happens to this broker:

* A replica that does not know yet that its topic leaves the bucket gives no answer, because its
  local retention may go on.  Neither does a replica in another leader epoch, whose settings may be
  older than those of the leader.
* A log that is about to be truncated may begin elsewhere afterwards.
* The checkpoint must not tell a later local log start than the log has.
"""

from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.types import TopicPartition
from sparklog.wire.protocol.private_replicas import ReadLocalStartRequest, ReadLocalStartResponse


def handler(replica_manager: ReplicaManager) -> ApiHandler:
    async def handle(_: RequestContext, request: ReadLocalStartRequest) -> ReadLocalStartResponse:
        partition = _require_replica(replica_manager, request)
        if not replica_manager.checkpoints.allow(partition.log):
            # Local retention has planned a later start, and gave the plan up.
            try:
                await replica_manager.checkpoints.write()
            except StorageError as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            is_same = _require_replica(replica_manager, request) is partition
            if not is_same or not replica_manager.checkpoints.allow(partition.log):
                raise _not_at_rest(partition)
        assert partition.state is not None
        return ReadLocalStartResponse(
            local_log_start_offset=partition.log.local_log_start_offset,
            partition_epoch=partition.state.partition_epoch,
        )

    return ApiHandler(
        api_key=ReadLocalStartRequest.API_KEY,
        min_version=0,
        max_version=0,
        handle=handle,
        advertise=False,
        members_only=True,
    )


def _require_replica(replica_manager: ReplicaManager, request: ReadLocalStartRequest) -> Partition:
    """The replica, if it may answer now.  Raises KafkaError."""
    tp = TopicPartition(replica_manager.topic_name(request.topic_id), request.partition)
    partition = replica_manager.find(tp.topic, tp.partition)
    partition.require_role(request.current_leader_epoch)
    if partition.state is None or partition.log.truncating:
        raise _not_at_rest(partition)
    if not partition.config.leaves_remote_storage:
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"it has not arrived here yet that {tp} leaves the remote_dir",
        )
    return partition


def _not_at_rest(partition: Partition) -> KafkaError:
    return KafkaError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"{partition.topic_partition} has no replica at rest on this broker",
    )
