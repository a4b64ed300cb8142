"""The segments of tiered partitions in the bucket, and the URLs with which a client reads them.

Owns: the requests, their order and their pages, and which clusters have such segments.  Must not
know what the segments are for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from uuid import UUID

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.connection import Connection
from sparklog.client.deadline import Deadline, check
from sparklog.client.list_offsets_api import list_offsets_results, list_offsets_topics
from sparklog.errors import ClosedError, ConnectError, DecodeError, ErrorCode, KafkaError
from sparklog.remote_log.remote_segment import UNBOUNDED, TimeBounds
from sparklog.remote_log.signed_segments import SignedSegment
from sparklog.types import (
    MAX_INT32,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    OffsetSpec,
    TopicPartition,
)
from sparklog.wire.protocol.messages.list_offsets import ListOffsetsRequest
from sparklog.wire.protocol.private_clients import (
    ReadRemoteSegmentsRequest,
    ReadRemoteSegmentsResponse,
)

_CONSUMER: Final = -1
#: The first version of ListOffsets that knows where the local log starts.
_FIRST_LOCAL_VERSION: Final = 8

#: Offsets [start, end) of a partition.
Span: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is wanted of a partition: the offsets of a span with timestamps within bounds.

    ``topic_id`` is that of the topic; another one of the same name is an error.
    """

    span: Span
    topic_id: UUID | None
    times: TimeBounds = UNBOUNDED


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegments:
    """Segments, oldest first, and until when their URLs are good.

    They are known up to ``end_offset``: other offsets below it, from the start of the span on, have
    no records within the bounds of time.  Segments behind it have ``bytes_behind`` bytes of records
    that may be within.  Below ``local_start_offset`` the records are in the bucket only (NO_OFFSET:
    not asked for).  ``expires_at_ms`` is the leader's time of day.
    """

    segments: tuple[SignedSegment, ...] = ()
    end_offset: int = NO_OFFSET
    bytes_behind: int = 0
    expires_at_ms: int = 0
    local_start_offset: int = NO_OFFSET


async def remote_segments(
    cluster: ClusterClient,
    wanted: Mapping[TopicPartition, Wanted],
    deadline: Deadline,
    *,
    count_max: int,
) -> dict[TopicPartition, RemoteSegments | KafkaError]:
    """The segments of each partition that are needed for what is wanted and only in the bucket.

    There are none where everything is on the leader's disk, where clients cannot read the bucket,
    and in a cluster that has no such segments, as Kafka.  Segments that have come before the
    deadline count, though those behind them are late.

    Args:
        count_max: the most segments of all partitions together, about.  Each partition has its
            share, and the segments beyond are left out.
    """

    async def call(
        node_id: int, group: dict[TopicPartition, Wanted], until: Deadline
    ) -> dict[TopicPartition, RemoteSegments | KafkaError]:
        connection = await cluster.connect_node(node_id, until)
        if not _has_segments(connection):
            return dict.fromkeys(group, RemoteSegments())
        epochs = {tp: _leader_epoch(cluster, tp) for tp in group}
        results = await _local_starts(connection, group, epochs, until)
        remote = {
            tp: result
            for tp, result in results.items()
            if isinstance(result, RemoteSegments) and result.local_start_offset > group[tp].span[0]
        }
        share = count_max * len(group) // (len(wanted) * max(1, len(remote)))
        for tp, result in remote.items():
            start, end = group[tp].span
            span = start, min(end, result.local_start_offset)
            part = replace(group[tp], span=span)
            try:
                told = await _pages(connection, tp, epochs[tp], part, until, max(1, share))
            except ClosedError:
                raise
            except KafkaError as error:
                results[tp] = error
                continue
            except ConnectError as error:  # what other partitions have is kept
                results[tp] = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
                continue
            results[tp] = replace(told, local_start_offset=result.local_start_offset)
        return results

    return await cluster.ask_leaders(wanted, call, deadline)


async def remote_segments_at(
    cluster: ClusterClient,
    tp: TopicPartition,
    wanted: Wanted,
    deadline: Deadline,
) -> RemoteSegments:
    """The first segments that have what is wanted, wherever else these offsets are.

    Raises KafkaError, also when the topic of this name has another id.
    """

    async def call(
        node_id: int, group: dict[TopicPartition, Wanted], until: Deadline
    ) -> dict[TopicPartition, RemoteSegments | KafkaError]:
        connection = await cluster.connect_node(node_id, until)
        if not _has_segments(connection):
            return dict.fromkeys(group, RemoteSegments())
        epoch = _leader_epoch(cluster, tp)
        return {tp: await _page(connection, tp, epoch, wanted, until, MAX_INT32)}

    result = (await cluster.ask_leaders({tp: wanted}, call, deadline))[tp]
    if isinstance(result, KafkaError):
        raise result
    return result


def _has_segments(connection: Connection) -> bool:
    list_offsets = connection.versions.get(ListOffsetsRequest.API_KEY, (0, 0))
    return (
        ReadRemoteSegmentsRequest.API_KEY in connection.versions
        and list_offsets[1] >= _FIRST_LOCAL_VERSION
    )


async def _local_starts(
    connection: Connection,
    group: Mapping[TopicPartition, Wanted],
    epochs: Mapping[TopicPartition, int],
    deadline: Deadline,
) -> dict[TopicPartition, RemoteSegments | KafkaError]:
    wanted = dict.fromkeys(group, int(OffsetSpec.EARLIEST_LOCAL))
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        topics=list_offsets_topics(wanted, epochs),
        timeout_ms=deadline.left_ms,
    )
    response = await connection.request(request, timeout_s=max(deadline.left_s, 0.001))
    return {
        tp: at if isinstance(at, KafkaError) else RemoteSegments(local_start_offset=at.offset)
        for tp, at in list_offsets_results(response, wanted).items()
    }


async def _pages(
    connection: Connection,
    tp: TopicPartition,
    leader_epoch: int,
    wanted: Wanted,
    deadline: Deadline,
    count_max: int,
) -> RemoteSegments:
    """The first ``count_max`` segments that are wanted, as far as no page is late.

    All pages are of one leader epoch: a later leader may have cut the log and written on.
    """
    start, end = wanted.span
    segments: tuple[SignedSegment, ...] = ()
    expires_at_ms = bytes_behind = 0
    while start < end and len(segments) < count_max:
        try:
            part, count = replace(wanted, span=(start, end)), count_max - len(segments)
            page = await _page(connection, tp, leader_epoch, part, deadline, count)
        except KafkaError as error:
            if start > wanted.span[0] and error.code is ErrorCode.REQUEST_TIMED_OUT:
                break
            raise
        if page.end_offset <= start:
            break
        segments += page.segments
        expires_at_ms = expires_at_ms or page.expires_at_ms
        start, bytes_behind = page.end_offset, page.bytes_behind
    return RemoteSegments(
        segments=segments,
        end_offset=start,
        bytes_behind=bytes_behind,
        expires_at_ms=expires_at_ms,
    )


async def _page(
    connection: Connection,
    tp: TopicPartition,
    leader_epoch: int,
    wanted: Wanted,
    deadline: Deadline,
    count_max: int,
) -> RemoteSegments:
    start, end = wanted.span
    request = ReadRemoteSegmentsRequest(
        topic_id=wanted.topic_id,
        partition=tp.partition,
        current_leader_epoch=leader_epoch,
        start_offset=start,
        end_offset=end,
        min_timestamp=wanted.times.lowest_ms,
        max_timestamp=wanted.times.highest_ms,
        segments_max=count_max,
    )
    response: ReadRemoteSegmentsResponse = await connection.request(
        request, timeout_s=max(deadline.left_s, 0.001)
    )
    check(response.error_code, response.error_message)
    try:
        segments = tuple(map(SignedSegment.decode, response.segments))
    except DecodeError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{tp}: {error}") from error
    return RemoteSegments(
        segments=segments,
        end_offset=response.next_offset,
        bytes_behind=response.bytes_behind,
        expires_at_ms=response.expires_at_ms,
    )


def _leader_epoch(cluster: ClusterClient, tp: TopicPartition) -> int:
    leader = cluster.view.leader(tp)
    return NO_LEADER_EPOCH if leader is None else leader.leader_epoch
