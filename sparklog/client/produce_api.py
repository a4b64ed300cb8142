"""The bodies of Produce, by partition.

Owns: making a request from encoded batches, and offsets and errors from a response.  Must not know
which broker is asked, nor records: batches are bytes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast
from uuid import UUID

from sparklog.client.deadline import kafka_error
from sparklog.client.partition_results import unanswered
from sparklog.errors import ErrorCode, KafkaError
from sparklog.transport import Buffer
from sparklog.types import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from sparklog.wire.protocol.produce import (
    PartitionProduceData,
    ProduceResponse,
    ScatteredRecords,
    TopicProduceData,
)
from sparklog.wire.protocol.schema import Records


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """The place where a batch was written.

    The offset is -1 if the broker did not tell it (acks=0, or an old duplicate).
    """

    base_offset: int = NO_OFFSET
    log_append_time: int = NO_TIMESTAMP
    log_start_offset: int = NO_OFFSET


def produce_topics(
    group: Mapping[TopicPartition, Sequence[Buffer]], topic_id: Callable[[str], UUID | None]
) -> tuple[TopicProduceData, ...]:
    """The topics of a request; several batches of a partition are sent without joining them."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for tp, batches in group.items():
        whole = batches[0] if len(batches) == 1 else ScatteredRecords(tuple(batches))
        records = cast("Records", bytes(whole) if isinstance(whole, bytearray) else whole)
        topics.setdefault(tp.topic, []).append(
            PartitionProduceData(index=tp.partition, records=records)
        )
    return tuple(
        TopicProduceData(name=name, topic_id=topic_id(name), partition_data=tuple(partitions))
        for name, partitions in topics.items()
    )


def produce_results(
    response: ProduceResponse, group: Iterable[TopicPartition], names: Mapping[UUID | None, str]
) -> dict[TopicPartition, Produced | KafkaError]:
    """A result for every partition of the group; ``names`` are topic names by id."""
    results: dict[TopicPartition, Produced | KafkaError] = unanswered(group)
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id, "")
        for part in topic.partition_responses:
            tp = TopicPartition(name, part.index)
            if part.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                results[tp] = Produced()  # written before; the broker no longer knows the offset
            elif part.error_code:
                reason = part.error_message or f"batch for {tp} refused"
                results[tp] = kafka_error(part.error_code, reason)
            else:
                results[tp] = Produced(
                    base_offset=part.base_offset,
                    log_append_time=part.log_append_time_ms,
                    log_start_offset=part.log_start_offset,
                )
    return results
