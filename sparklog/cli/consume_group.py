"""``sparklog consume --group``: records of the partitions that a group gives this member.

Owns: when offsets are committed, and where reading ends.  Must not know how records are printed,
nor how a member works.

Records are committed once they are printed, one poll at a time; an interruption waits for that.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from sparklog.cli.unreadable import UnreadablePartitions
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.client.fetched_records import ConsumedRecord
    from sparklog.client.groups import AsyncConsumer

_POLL_S: Final = 0.5
_RECORDS_MAX: Final = 1000
#: The group rebalances: other members may read these records again, and ``poll`` goes on.
_REBALANCED: Final = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)


async def consume_with_group(
    consumer: "AsyncConsumer",
    topic: str,
    show: "Callable[[list[ConsumedRecord]], None]",
    *,
    maximum: int | None = None,
    ends: Mapping[TopicPartition, int] | None = None,
) -> None:
    """Show and commit records of a topic, ``maximum`` of them or up to the offsets ``ends``.

    ``consumer`` commits nothing of its own accord.  With ``ends``, only the partitions that the
    group gives this member count.  Raises KafkaError, ConnectError.
    """
    consumer.subscribe([topic])
    left = maximum
    unreadable = UnreadablePartitions()
    while left != 0:
        if ends is not None and await _is_at(consumer, ends):
            return
        records = await consumer.poll(_POLL_S, min(left or _RECORDS_MAX, _RECORDS_MAX))
        unreadable.tell(consumer.unreadable)
        if ends is not None:
            records = [
                each
                for each in records
                if each.offset < ends.get(TopicPartition(each.topic, each.partition), 0)
            ]
        if not records:
            continue
        show(records)
        await _commit_even_if_cancelled(consumer, records)
        left = None if left is None else left - len(records)


async def _is_at(consumer: "AsyncConsumer", ends: Mapping[TopicPartition, int]) -> bool:
    """Whether there are partitions, and all have been read to the end."""
    assigned = consumer.assignment
    for tp in assigned:
        if await consumer.position(tp) < ends.get(tp, 0):
            return False
    return bool(assigned)


async def _commit_even_if_cancelled(
    consumer: "AsyncConsumer", records: "list[ConsumedRecord]"
) -> None:
    task = asyncio.ensure_future(_commit(consumer, records))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task  # a second Ctrl-C ends this, too
        raise


async def _commit(consumer: "AsyncConsumer", records: "list[ConsumedRecord]") -> None:
    offsets = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
    try:
        await consumer.commit(offsets)
    except KafkaError as error:
        if error.code not in _REBALANCED:
            raise
        sys.stderr.write(f"sparklog: {len(records)} records may be read again: {error}\n")
