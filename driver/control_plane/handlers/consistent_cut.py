"""ConsistentCut (key 20016): last stable offsets at which no transaction is torn.

Any client may ask, as DataFrames are read by clients.  What a cut may hold back, and for how long,
is bounded whoever asks (see ``driver.transactions.consistent_cuts``).
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from sparklog.driver.transaction_coordinator import TransactionCoordinator
from sparklog.driver.transactions import CUT_WAIT_MS_MAX
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage
from sparklog.service.gone_clients import cancel_with_client
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import Slices, in_groups
from sparklog.types import TopicPartition
from sparklog.wire.protocol.private_clients import (
    ConsistentCutRequest,
    ConsistentCutResponse,
    CutPartitionOffset,
    CutTopic,
    CutTopicOffsets,
)

#: Most partitions of one cut, because a cut looks at all of them at once.
PARTITIONS_MAX: Final = 5_000
_UNITS: Final = 3


def handler(coordinator: TransactionCoordinator, image: Callable[[], ClusterImage]) -> ApiHandler:
    async def handle(
        context: RequestContext, request: ConsistentCutRequest
    ) -> Slices[ConsistentCutResponse]:
        wanted = _wanted(request.topics, image())
        max_wait_ms = min(max(request.max_wait_ms, 0), CUT_WAIT_MS_MAX)
        taking = asyncio.ensure_future(coordinator.consistent_cut(wanted, max_wait_ms))
        cancel_with_client(context.connection, taking)
        return _response(request.topics, await taking)

    return ApiHandler(
        api_key=ConsistentCutRequest.API_KEY,
        min_version=0,
        max_version=0,
        items_max=MANY_ITEMS,
        handle=handle,
        advertise=False,
        advertise_to_own_clients=True,
    )


def _wanted(topics: tuple[CutTopic, ...], image: ClusterImage) -> frozenset[TopicPartition]:
    """Raises INVALID_REQUEST for too many partitions, and UNKNOWN_TOPIC_OR_PARTITION."""
    if sum(len(topic.partitions) for topic in topics) > PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"a consistent cut has at most {PARTITIONS_MAX} partitions",
        )
    wanted = frozenset(TopicPartition(t.name, number) for t in topics for number in t.partitions)
    unknown = min((tp for tp in wanted if image.partition(tp) is None), default=None)
    if unknown is not None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{unknown} does not exist")
    return wanted


def _response(
    topics: tuple[CutTopic, ...], offsets: Mapping[TopicPartition, int]
) -> Slices[ConsistentCutResponse]:
    found = yield from in_groups(
        topics,
        lambda topic: topic.partitions,
        lambda topic, number: CutPartitionOffset(
            partition=number, last_stable_offset=offsets[TopicPartition(topic.name, number)]
        ),
        lambda topic, parts: CutTopicOffsets(name=topic.name, partitions=parts),
        _UNITS,
    )
    return ConsistentCutResponse(topics=found)
