"""Reads of another replica's records, as a consumer reads them.

Owns: which brokers are asked, in which order, and one fetch.  Must not know what the records are
for.

Such a read is below the high watermark of the other replica, from the leader or from a follower
(KIP-392), and fenced by the leader epoch.  It says nothing about this broker's own log, so it does
not change the ISR.
"""

from collections.abc import Iterator
from typing import Final

from sparklog.client.connection import Connection
from sparklog.errors import ConnectError, ErrorCode, KafkaError
from sparklog.executors.partition import Partition
from sparklog.executors.replication.replica_fetcher import FetcherTools
from sparklog.types import NO_NODE, Isolation
from sparklog.wire.protocol.codec import encode_request
from sparklog.wire.protocol.fetch import decode_fetch_response
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)

#: Bytes of one fetch; a larger batch is returned nevertheless.
FETCH_BYTES: Final = 1 << 20
#: Timeout of one request to another replica, in seconds.
ANSWER_TIMEOUT_S: Final = 5.0


class ReplicaReads:
    """The reads of one broker."""

    def __init__(self, tools: FetcherTools) -> None:
        self._tools = tools

    def sources(self, partition: Partition) -> Iterator[int]:
        """Other live brokers with a replica: the leader, the ISR, then the others."""
        state, own, image = partition.state, partition.node_id, self._tools.replica_manager.image
        if state is None:
            return
        for broker_id in dict.fromkeys((state.leader, *state.isr, *state.replicas)):
            if broker_id not in (own, NO_NODE) and image.is_alive(broker_id):
                yield broker_id

    async def connect(self, broker_id: int) -> Connection:
        """A connection of its own.  Raises ConnectError."""
        broker = self._tools.broker(broker_id)
        if broker is None or not broker.registered:
            raise ConnectError(f"it is not known where broker {broker_id} listens")
        return await self._tools.connect(broker.endpoint)

    async def read(
        self, broker_id: int, partition: Partition, offset: int, isolation: Isolation
    ) -> PartitionData:
        """One fetch.  Raises ConnectError, ProtocolError, DecodeError, KafkaError."""
        connection = await self.connect(broker_id)
        try:
            return await fetch(connection, partition, offset, isolation)
        finally:
            connection.close()


async def fetch(
    connection: Connection,
    partition: Partition,
    offset: int,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> PartitionData:
    """Fetch whole batches, from the batch that holds ``offset`` on.

    Raises ConnectError, ProtocolError, DecodeError, KafkaError.
    """
    part = FetchPartition(
        partition=partition.topic_partition.partition,
        current_leader_epoch=partition.leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=FETCH_BYTES,
    )
    topic = FetchTopic(topic_id=partition.topic_id, partitions=(part,))
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=isolation,
        topics=(topic,),
    )
    version = connection.version_for(FetchRequest)
    correlation_id = connection.next_correlation_id()
    payload = encode_request(request, version, correlation_id, connection.client_id)
    answer = await connection.exchange(FetchRequest.API_KEY, (payload,), timeout_s=ANSWER_TIMEOUT_S)
    answered_id, response = decode_fetch_response(version, answer)
    connection.check_correlation(correlation_id, answered_id)
    _check(response.error_code)
    for each in response.responses:
        for data in each.partitions:
            _check(data.error_code)
            return data
    return PartitionData()


def _check(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode.of(code), "the fetch was refused")
