"""Random and damaged requests: each gets a response, or an error that ends the connection."""

import asyncio
import struct
from collections import deque
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DecodeError, FrameError
from sparklog.metadata import ClusterImage, PartitionImage, TopicCreated
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from sparklog.service import (
    describe_cluster,
    describe_configs,
    find_coordinator,
    members,
    metadata,
)
from sparklog.service.dispatch import Dispatcher
from sparklog.slices import run_through
from sparklog.transport import (
    ParkedResponse,
    Server,
    ServerConnection,
    ServerLimits,
    SlicedResponse,
)
from sparklog.wire.protocol.codec import encode_request
from sparklog.wire.protocol.messages.api_versions import ApiVersionsRequest
from sparklog.wire.protocol.messages.describe_cluster import DescribeClusterRequest
from sparklog.wire.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from sparklog.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from sparklog.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from sparklog.wire.protocol.private import MemberHelloRequest, MemberProofRequest
from sparklog.wire.protocol.schema import Request
from tests.unit.service.small_node import FLIGHTS, image

REQUESTS: tuple[Request, ...] = (
    ApiVersionsRequest(client_software_name="c", client_software_version="1"),
    MetadataRequest(
        topics=(MetadataRequestTopic(name="flights"), MetadataRequestTopic(topic_id=FLIGHTS))
    ),
    DescribeClusterRequest(),
    DescribeConfigsRequest(
        resources=(DescribeConfigsResource(resource_type=2, resource_name="flights"),)
    ),
    FindCoordinatorRequest(key="k", coordinator_keys=("a",)),
    MemberHelloRequest(nonce=bytes(32)),
    MemberProofRequest(proof=bytes(32)),
)
HEADERS = st.builds(
    lambda request, version: struct.pack(">hhih", request.API_KEY, version, 1, -1),
    st.sampled_from(REQUESTS),
    st.integers(0, 14),
)


NOT_LED = PartitionImage(replicas=(3,), isr=(), last_known=(3,), leader=-1, leader_epoch=2)


def image_with_groups() -> ClusterImage:
    """An image that has the topic of the group coordinators, so that nobody waits for it."""
    found = image()
    found.replay(TopicCreated(topic=CONSUMER_OFFSETS, topic_id=UUID(int=99), partitions=(NOT_LED,)))
    return found


async def not_asked(name: str) -> None:
    raise AssertionError(f"{name} exists")


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid request with some of its bytes changed or removed."""
    request = draw(st.sampled_from([r for r in REQUESTS if r.MAX_VERSION >= 0]))
    version = draw(st.integers(request.MIN_VERSION, request.MAX_VERSION))
    if isinstance(request, MetadataRequest) and version < 10:
        request = MetadataRequest(topics=(MetadataRequestTopic(name="flights"),))
    frame = bytearray(encode_request(request, version, 7, "client"))
    for _ in range(draw(st.integers(0, 3))):
        frame[draw(st.integers(0, len(frame) - 1))] = draw(st.integers(0, 255))
    return bytes(frame[: draw(st.integers(0, len(frame)))]) if draw(st.booleans()) else bytes(frame)


@given(
    st.lists(st.binary(max_size=80) | st.builds(bytes.__add__, HEADERS, st.binary()) | damaged())
)
def test_whatever_comes_in_is_answered_or_refused(frames: list[bytes]) -> None:
    async def main() -> None:
        dispatcher = Dispatcher(
            [
                metadata.handler(image),
                describe_cluster.handler(image),
                describe_configs.handler(image, node_id=1, settings={}),
                find_coordinator.handler(image_with_groups, not_asked),
                *members.handlers(b"secret"),
            ]
        )
        connection = ServerConnection(Server(dispatcher, ServerLimits(frame_bytes_max=1000), None))
        for frame in frames:
            try:
                (reply,) = dispatcher(connection, deque([memoryview(frame)]))
                if isinstance(reply, SlicedResponse):
                    reply = run_through(reply.slices)
            except (DecodeError, FrameError):
                continue
            assert reply is not None
            assert not isinstance(reply, ParkedResponse)
            assert all(isinstance(part, bytes | bytearray) for part in reply)
        assert dispatcher.errors == 0
        assert not connection.member

    asyncio.run(main())
