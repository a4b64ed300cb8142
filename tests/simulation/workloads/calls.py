"""Single requests of clients, tried once, so that what is known about their outcome is exact.

Owns: the difference between an answer, no answer, and a request that never left.  Must not know
histories.  Topics are named by their ids, so an answer is about that very topic.
"""

from collections.abc import Iterator, Mapping

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.connection import Connection
from sparklog.client.deadline import Deadline
from sparklog.errors import ConnectError, ErrorCode, KafkaError, SparklogError
from sparklog.types import TopicPartition
from sparklog.wire.protocol.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
    decode_produce_response,
    encode_produce_request,
)
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import iter_records
from tests.simulation.events import LogId

#: The first version of Produce that names topics by id.
_TOPIC_IDS = 13


class NotSentError(Exception):
    """The request has not left: nothing can have come of it."""


class NoAnswerError(Exception):
    """Nobody can tell what came of the request."""


async def connect_leader(
    cluster: ClusterClient, log: LogId, deadline: Deadline, lane: str
) -> Connection:
    """Raises NotSentError."""
    tp = TopicPartition(log.topic, log.partition)
    try:
        leader = cluster.view.leader(tp)
        if leader is None:
            await cluster.refresh((log.topic,), deadline)
            leader = cluster.view.leader(tp)
        if leader is None:
            raise NotSentError(f"{log} has no leader")
        return await cluster.connect_node(leader.leader, deadline, lane)
    except SparklogError as error:
        cluster.expire_topics()
        raise NotSentError(str(error)) from error


async def produce_once(
    log: LogId, batch: bytes, *, acks: int, timeout_s: float, connection: Connection
) -> tuple[ErrorCode, int]:
    """``produce_several`` for one batch."""
    answers = await produce_several(
        {log: batch}, acks=acks, timeout_s=timeout_s, connection=connection
    )
    return answers[log]


async def produce_several(
    batches: Mapping[LogId, bytes], *, acks: int, timeout_s: float, connection: Connection
) -> dict[LogId, tuple[ErrorCode, int]]:
    """The leader's answer to batches for partitions of one topic: codes and base offsets.

    Raises NotSentError, NoAnswerError.  Requests that are begun one after the other on a connection
    arrive in that order.
    """
    if connection.closed:
        raise NotSentError("the connection is closed")
    version = connection.version_for(ProduceRequest)
    assert version >= _TOPIC_IDS
    ((name, topic_id),) = {(log.topic, log.topic_id) for log in batches}
    parts = tuple(
        PartitionProduceData(index=log.partition, records=batch) for log, batch in batches.items()
    )
    topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=parts)
    request = ProduceRequest(
        acks=acks, timeout_ms=max(int(timeout_s * 1000), 1), topic_data=(topic,)
    )
    correlation_id = connection.next_correlation_id()
    payload = encode_produce_request(version, correlation_id, connection.client_id, request)
    try:
        answer = await connection.exchange(ProduceRequest.API_KEY, payload, timeout_s=timeout_s)
    except (ConnectError, KafkaError) as error:
        raise NoAnswerError(str(error)) from error
    answered_id, response = decode_produce_response(version, answer)
    connection.check_correlation(correlation_id, answered_id)
    (answered,) = [topic.partition_responses for topic in response.responses]
    found = {part.index: (ErrorCode(part.error_code), part.base_offset) for part in answered}
    assert len(answered) == len(batches), "an answer for every partition"
    return {log: found[log.partition] for log in batches}


def records_of(batches: memoryview) -> Iterator[tuple[int, bytes | None]]:
    """Offset and value of every record.  Raises DecodeError for damage."""
    for header, start in iter_batches(batches, partial_tail=True):
        for record in iter_records(batches, start, header):
            yield record.offset, record.value
