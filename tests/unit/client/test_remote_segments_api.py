"""The segments in the bucket for a plan: those that came in time count."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from sparklog.client import remote_segments_api
from sparklog.client.deadline import Deadline
from sparklog.client.remote_segments_api import RemoteSegments, Wanted, remote_segments
from sparklog.errors import ConnectError, ErrorCode, KafkaError
from sparklog.remote_log.signed_segments import SignedSegment
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.list_offsets import ListOffsetsRequest
from sparklog.wire.protocol.private_clients import ReadRemoteSegmentsRequest
from tests.unit.remote_log.segments import segment

FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))
#: It has nothing that is in the bucket only.
LOCAL = TopicPartition("t", 3)


class Leader:
    """A leader of all partitions with pages of two segments; ``errors`` come by page number."""

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        self.errors = errors
        self.pages = 0
        self.view = SimpleNamespace(topics={}, leader=lambda tp: None)

    async def ask_leaders(self, items: Any, call: Any, deadline: Any) -> Any:
        return await call(1, dict(items), deadline)

    async def connect_node(self, node_id: int, deadline: Any) -> Any:
        return SimpleNamespace(
            versions={ReadRemoteSegmentsRequest.API_KEY: (0, 0), ListOffsetsRequest.API_KEY: (0, 9)}
        )

    async def page(  # type: ignore[no-untyped-def]
        self, connection: Any, tp: Any, epoch: int, wanted: Wanted, deadline: Any, count_max: int
    ):
        assert wanted.topic_id == UUID(int=tp.partition)
        span, size = wanted.span, min(2, count_max)
        number, self.pages = self.pages, self.pages + 1
        if number in self.errors:
            raise self.errors[number]
        return RemoteSegments(
            segments=tuple(
                SignedSegment(segment=segment(at, at + 1), log_url="l", indexes_url="i")
                for at in range(span[0], min(span[0] + size, span[1]))
            ),
            end_offset=min(span[0] + size, span[1]),
            bytes_behind=100 * max(0, span[1] - span[0] - size),
            expires_at_ms=5,
        )

    def ask(
        self, *partitions: TopicPartition, count_max: int = 100
    ) -> dict[TopicPartition, RemoteSegments | KafkaError]:
        async def starts(connection: Any, group: Any, epochs: Any, deadline: Any) -> Any:
            return {tp: RemoteSegments(local_start_offset=0 if tp == LOCAL else 6) for tp in group}

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(remote_segments_api, "_local_starts", starts)
            patch.setattr(remote_segments_api, "_page", self.page)
            wanted = {tp: Wanted(span=(0, 9), topic_id=UUID(int=tp.partition)) for tp in partitions}
            call = remote_segments(
                self,  # type: ignore[arg-type]
                wanted,
                Deadline(10),
                count_max=count_max,
            )
            return asyncio.run(call)


def test_every_partition_has_a_share_of_the_segments() -> None:
    """Those with nothing in the bucket leave theirs to the others; each has one at least."""
    found = Leader({}).ask(FIRST, SECOND, THIRD, LOCAL, count_max=9)
    assert ends(found) == [3, 3, 3, 0]
    assert [each.bytes_behind for each in found.values() if isinstance(each, RemoteSegments)] == [
        300,
        300,
        300,
        0,
    ]
    assert ends(Leader({}).ask(FIRST, SECOND, count_max=1)) == [1, 1]


def test_segments_that_are_ruled_out_count_as_known() -> None:
    """The first page has nothing to name, the second is late."""
    leader = Leader({1: KafkaError(ErrorCode.REQUEST_TIMED_OUT, "late")})
    page = leader.page

    async def empty(*wanted: Any) -> Any:
        return replace(await page(*wanted), segments=())

    leader.page = empty  # type: ignore[method-assign]
    found = leader.ask(FIRST)[FIRST]
    assert isinstance(found, RemoteSegments)
    assert (found.segments, found.end_offset) == ((), 2)


def ends(found: Mapping[TopicPartition, RemoteSegments | KafkaError]) -> list[int | ErrorCode]:
    return [
        each.code
        if isinstance(each, KafkaError)
        else sum(1 for _ in each.segments) and each.segments[-1].segment.next_offset
        for each in found.values()
    ]


def test_all_pages_count() -> None:
    assert ends(Leader({}).ask(FIRST, SECOND)) == [6, 6]


def test_a_late_page_loses_no_page_before_it() -> None:
    late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "late")
    closed = ConnectError("the connection is closed")
    found = Leader({5: late, 6: closed}).ask(FIRST, SECOND, THIRD)
    assert ends(found) == [6, 4, ErrorCode.NETWORK_EXCEPTION]
    second = found[SECOND]
    assert isinstance(second, RemoteSegments)
    assert (second.expires_at_ms, second.local_start_offset) == (5, 6)
    assert ends(Leader({0: late}).ask(FIRST)) == [ErrorCode.REQUEST_TIMED_OUT]


def test_another_leader_is_asked_again_for_everything() -> None:
    moved = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")
    assert ends(Leader({1: moved}).ask(FIRST)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
