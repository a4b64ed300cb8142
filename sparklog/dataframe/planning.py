"""Asks the cluster what a batch read needs to know, and plans it.

Owns: the questions (metadata, offsets, offsets by time) and their order.  Must not know Spark; what
follows from the answers is decided in ``plan``.
"""

from collections.abc import Sequence

from sparklog.client.deadline import Deadline
from sparklog.client.raw import RawClient
from sparklog.dataframe.options import ReadOptions
from sparklog.dataframe.plan import (
    OffsetRange,
    PartitionOffsets,
    check_names,
    narrow,
    resolve_end,
    resolve_start,
    split,
)
from sparklog.errors import ConfigError, ErrorCode, KafkaError
from sparklog.types import NO_OFFSET, OffsetSpec, TopicPartition


async def plan_read(
    client: RawClient, options: ReadOptions, lower_bound_ms: int | None
) -> list[OffsetRange]:
    """The ranges that one batch read covers, pinned now.

    Raises ConfigError for bounds that the partitions do not hold, KafkaError for unknown topics.
    """
    timeout_s = options.poll_timeout_ms / 1000
    partitions = await _partitions(client, options, Deadline(timeout_s))
    check_names(options.starting, partitions, "startingOffsets")
    check_names(options.ending, partitions, "endingOffsets")
    held = await _held(client, partitions, timeout_s)
    starts = await _by_time(client, partitions, options.starting.timestamp_ms, timeout_s)
    ends = await _by_time(client, partitions, options.ending.timestamp_ms, timeout_s)
    ranges = [
        OffsetRange(
            topic_partition=tp,
            start=resolve_start(options.starting, tp, held[tp], starts[tp]),
            end=resolve_end(options.ending, tp, held[tp], ends[tp]),
        )
        for tp in partitions
    ]
    if lower_bound_ms is not None:
        firsts = await _by_time(client, partitions, max(lower_bound_ms, 0), timeout_s)
        ranges = narrow(ranges, firsts, lower_bound_ms)
    return split(ranges, options.min_partitions)


async def _partitions(
    client: RawClient, options: ReadOptions, deadline: Deadline
) -> list[TopicPartition]:
    wanted = options.topics or tuple(dict.fromkeys(tp.topic for tp in options.assigned))
    known = {}
    for name in wanted:
        try:
            known[name] = (await client.cluster.topic(name, deadline)).partitions
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise KafkaError(error.code, f"topic {name!r} does not exist") from None
            raise
    if not options.assigned:
        return [TopicPartition(name, number) for name in wanted for number in sorted(known[name])]
    for tp in options.assigned:
        if tp.partition not in known[tp.topic]:
            count = len(known[tp.topic])
            raise ConfigError(f"assign names {tp}, but topic {tp.topic} has {count} partitions")
    return list(options.assigned)


async def _held(
    client: RawClient, partitions: Sequence[TopicPartition], timeout_s: float
) -> dict[TopicPartition, PartitionOffsets]:
    earliest = await client.list_offsets(
        dict.fromkeys(partitions, int(OffsetSpec.EARLIEST)), timeout_s=timeout_s
    )
    latest = await client.list_offsets(
        dict.fromkeys(partitions, int(OffsetSpec.LATEST)), timeout_s=timeout_s
    )
    return {
        tp: PartitionOffsets(
            earliest=earliest[tp].offset, latest=max(latest[tp].offset, earliest[tp].offset)
        )
        for tp in partitions
    }


async def _by_time(
    client: RawClient,
    partitions: Sequence[TopicPartition],
    timestamp_ms: int | None,
    timeout_s: float,
) -> dict[TopicPartition, int | None]:
    """The first offset with a timestamp at or after the given one; None: no such record."""
    if timestamp_ms is None:
        return dict.fromkeys(partitions, None)
    found = await client.list_offsets(dict.fromkeys(partitions, timestamp_ms), timeout_s=timeout_s)
    return {tp: None if found[tp].offset == NO_OFFSET else found[tp].offset for tp in partitions}
