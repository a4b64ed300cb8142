"""The bodies of Fetch, by partition.

Owns: making a request from partitions and offsets, and batches and errors from a response.
Must not know which broker is asked, nor records: batches are views of the response.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from sparklog.client.partition_results import refused_read, unanswered
from sparklog.errors import KafkaError
from sparklog.types import NO_LEADER_EPOCH, NO_NODE, NO_OFFSET, TopicPartition
from sparklog.wire.protocol.fetch import records_view
from sparklog.wire.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchResponse,
    FetchTopic,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFrom:
    """The offset to fetch a partition from, and the most bytes of it to return."""

    offset: int
    max_bytes: int = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The result of one fetch of one partition.

    ``records`` are whole batches in memory of the caller's own.  The first batch may start before
    the wanted offset; without new records there are none.  ``leader_epoch`` is the epoch that the
    leader was known to be in (-1: not known).  Instead of records, a leader may name a replica
    that is closer to this client (``preferred_read_replica``, KIP-392).  ``crc_checked``: the
    checksums of all batches were found to be right.
    """

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    aborted: tuple[AbortedTransaction, ...] = ()
    preferred_read_replica: int = NO_NODE
    crc_checked: bool = False


def fetch_topics(
    group: Mapping[TopicPartition, FetchFrom],
    epochs: Mapping[TopicPartition, int],
    topic_id: Callable[[str], UUID | None],
) -> tuple[FetchTopic, ...]:
    """The topics of a request, with the leader epochs that this client knows."""
    topics: dict[str, list[FetchPartition]] = {}
    for tp, wanted in group.items():
        topics.setdefault(tp.topic, []).append(
            FetchPartition(
                partition=tp.partition,
                current_leader_epoch=epochs[tp],
                fetch_offset=wanted.offset,
                partition_max_bytes=wanted.max_bytes,
            )
        )
    return tuple(
        FetchTopic(topic=name, topic_id=topic_id(name), partitions=tuple(partitions))
        for name, partitions in topics.items()
    )


def fetch_results(
    response: FetchResponse,
    group: Mapping[TopicPartition, FetchFrom],
    epochs: Mapping[TopicPartition, int],
    names: Mapping[UUID | None, str],
) -> dict[TopicPartition, Fetched | KafkaError]:
    """A result for every partition of the group; ``names`` are topic names by id."""
    results: dict[TopicPartition, Fetched | KafkaError] = unanswered(group)
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id, "")
        for part in topic.partitions:
            tp = TopicPartition(name, part.partition_index)
            if part.error_code:
                at = group[tp].offset if tp in group else NO_OFFSET
                results[tp] = refused_read(
                    part.error_code, f"the fetch from {tp} at offset {at} was refused"
                )
            else:
                results[tp] = Fetched(
                    records=records_view(part.records),
                    high_watermark=part.high_watermark,
                    last_stable_offset=part.last_stable_offset,
                    log_start_offset=part.log_start_offset,
                    leader_epoch=epochs[tp],
                    aborted=part.aborted_transactions or (),
                    preferred_read_replica=part.preferred_read_replica,
                )
    return results
