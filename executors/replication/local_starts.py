"""Where the files of all replicas of a partition begin, which decides what may leave the bucket.

Owns: the requests to the other replicas.  Must not know what is deleted, or when.
"""

import asyncio
from collections.abc import Mapping

from sparklog.errors import ConnectError, ErrorCode, KafkaError, SparklogError
from sparklog.executors.partition import Partition
from sparklog.executors.replication.replica_fetcher import FetcherTools
from sparklog.executors.replication.replica_questions import NO_ANSWER, ask_once
from sparklog.wire.protocol.private_replicas import ReadLocalStartRequest, ReadLocalStartResponse


class LocalStarts:
    """Asks the other replicas of a broker's partitions."""

    def __init__(self, tools: FetcherTools) -> None:
        self._tools = tools

    async def ask(self, partition: Partition) -> Mapping[int, int | SparklogError]:
        """The local log start of every other replica, in sync or not, by its broker; or why it is
        not known."""
        state = partition.state
        others = [] if state is None else [b for b in state.replicas if b != partition.node_id]
        answers = await asyncio.gather(*(self._ask(broker_id, partition) for broker_id in others))
        return dict(zip(others, answers, strict=True))

    async def _ask(self, broker_id: int, partition: Partition) -> int | SparklogError:
        broker, state = self._tools.broker(broker_id), partition.state
        if broker is None or not self._tools.replica_manager.image.is_alive(broker_id):
            return ConnectError("it is not alive")
        if state is None:
            return ConnectError("this broker does not lead any more")
        request = ReadLocalStartRequest(
            topic_id=partition.topic_id,
            partition=partition.topic_partition.partition,
            current_leader_epoch=state.leader_epoch,
        )
        try:
            answer = await ask_once(self._tools, broker.endpoint, request)
        except NO_ANSWER as error:
            return error
        assert isinstance(answer, ReadLocalStartResponse)
        if answer.error_code:
            return KafkaError(ErrorCode.of(answer.error_code), answer.error_message or "")
        if answer.partition_epoch > state.partition_epoch:
            return KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH, "it knows of replicas that are not known here yet"
            )
        return answer.local_log_start_offset
