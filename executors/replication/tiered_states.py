"""Which part of a tiered log is in the bucket, as its leader says.

Owns: the requests to leaders.  Must not know what is done with the answers.
"""

from collections.abc import Iterable, Mapping

from sparklog.errors import ConnectError, ErrorCode, KafkaError, SparklogError
from sparklog.executors.partition import (
    Partition,
    ProducerStateManager,
    TieredStart,
    TieredState,
)
from sparklog.executors.replication.replica_fetcher import FetcherTools
from sparklog.executors.replication.replica_questions import ANSWER_TIMEOUT_S, NO_ANSWER
from sparklog.storage_backends.blocking import run_blocking
from sparklog.wire.protocol.private_replicas import (
    ReadTieredStateRequest,
    ReadTieredStateResponse,
)


class TieredStates:
    """Asks the leaders of a broker's partitions."""

    def __init__(self, tools: FetcherTools) -> None:
        self._tools = tools

    async def ask(
        self, leader_id: int, partitions: Iterable[Partition]
    ) -> Mapping[Partition, TieredState | SparklogError]:
        """The state of each partition that the broker leads, or why it is not known."""
        found: dict[Partition, TieredState | SparklogError] = {}
        leader = self._tools.broker(leader_id)
        if leader is None or not leader.registered:
            error = ConnectError(f"broker {leader_id} is not known")
            return dict.fromkeys(partitions, error)
        asked = list(partitions)
        try:
            connection = await self._tools.connect(leader.endpoint)
        except NO_ANSWER as error:
            return dict.fromkeys(asked, error)
        try:
            for partition in asked:
                request = ReadTieredStateRequest(
                    topic_id=partition.topic_id,
                    partition=partition.topic_partition.partition,
                    current_leader_epoch=partition.leader_epoch,
                )
                try:
                    answer = await connection.request(request, timeout_s=ANSWER_TIMEOUT_S)
                except NO_ANSWER as error:
                    found.update(dict.fromkeys(asked[len(found) :], error))
                    break
                found[partition] = _read(answer, partition)
        finally:
            connection.close()
        return found

    async def find_start(self, partition: Partition) -> TieredStart:
        """Where a follower starts whose leader has the next records only in the bucket.

        Raises SparklogError, also for a damaged producer snapshot: without the producer state the
        follower could lead later and take duplicates.  Raises it too for a topic that leaves the
        bucket, and while the leader does not vouch for what is in the bucket below its files.
        """
        if partition.config.leaves_remote_storage:
            raise _leaves(partition)
        state = (await self.ask(partition.leader, (partition,)))[partition]
        if isinstance(state, SparklogError):
            raise state
        if state.tiered_end_offset < state.local_log_start_offset:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the leader has not found out yet what the remote_dir has of "
                f"{partition.topic_partition}",
            )
        start = await self._tools.remote_start(
            partition, state.log_start_offset, state.local_log_start_offset
        )
        if start.producer_snapshot is not None:
            producers = ProducerStateManager(partition.topic_partition)
            await run_blocking(producers.load_snapshot, start.producer_snapshot)
        return start


def _leaves(partition: Partition) -> KafkaError:
    return KafkaError(
        ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
        f"{partition.topic_partition} leaves the remote_dir; a replica begins where the files of "
        "its leader do, once the log starts there",
    )


def _read(answer: object, partition: Partition) -> TieredState | SparklogError:
    assert isinstance(answer, ReadTieredStateResponse)
    if answer.error_code:
        return KafkaError(
            ErrorCode.of(answer.error_code), f"{partition.topic_partition}: {answer.error_message}"
        )
    return TieredState(
        answer.log_start_offset, answer.local_log_start_offset, answer.tiered_end_offset
    )
