"""The bodies of ListOffsets, by partition.

Owns: making a request from partitions and times, and offsets and errors from a response.
Must not know which broker is asked.
"""

from collections.abc import Mapping

from sparklog.client.partition_results import refused_read, unanswered
from sparklog.errors import KafkaError
from sparklog.types import OffsetTimestamp, TopicPartition
from sparklog.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsResponse,
    ListOffsetsTopic,
)


def list_offsets_topics(
    group: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
) -> tuple[ListOffsetsTopic, ...]:
    """The topics of a request for the offsets of these times (milliseconds, or OffsetSpec)."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for tp, timestamp in group.items():
        topics.setdefault(tp.topic, []).append(
            ListOffsetsPartition(
                partition_index=tp.partition,
                current_leader_epoch=epochs[tp],
                timestamp=timestamp,
            )
        )
    return tuple(
        ListOffsetsTopic(name=name, partitions=tuple(partitions))
        for name, partitions in topics.items()
    )


def list_offsets_results(
    response: ListOffsetsResponse, group: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetTimestamp | KafkaError]:
    """A result for every partition of the group."""
    results: dict[TopicPartition, OffsetTimestamp | KafkaError] = unanswered(group)
    for topic in response.topics:
        for part in topic.partitions:
            tp = TopicPartition(topic.name, part.partition_index)
            if part.error_code:
                results[tp] = refused_read(part.error_code, f"no offsets of {tp}")
            else:
                results[tp] = OffsetTimestamp(
                    offset=part.offset, timestamp=part.timestamp, leader_epoch=part.leader_epoch
                )
    return results
