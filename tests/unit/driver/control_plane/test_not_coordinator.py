"""Node 0 coordinates no group: it lists none, and sends clients to look for the coordinator."""

import asyncio

import pytest

from sparklog.driver.control_plane.handlers import not_coordinator
from sparklog.errors import ErrorCode
from sparklog.service.dispatch import Dispatcher
from sparklog.transport import connect, serve
from sparklog.types import Endpoint
from sparklog.wire.protocol.codec import decode_response, encode_request, response_type
from sparklog.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from sparklog.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest
from sparklog.wire.protocol.messages.join_group import JoinGroupRequest
from sparklog.wire.protocol.messages.leave_group import LeaveGroupRequest
from sparklog.wire.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from sparklog.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sparklog.wire.protocol.messages.offset_delete import OffsetDeleteRequest
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from sparklog.wire.protocol.messages.sync_group import SyncGroupRequest
from sparklog.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from sparklog.wire.protocol.schema import Request, Response


def ask_all_versions(request: Request) -> list[Response]:
    async def main() -> list[Response]:
        server = await serve("127.0.0.1", 0, Dispatcher(not_coordinator.handlers()))
        client = await connect(Endpoint("127.0.0.1", server.port), 20)
        found: list[Response] = []
        for version in range(type(request).MIN_VERSION, type(request).MAX_VERSION + 1):
            answer = await client.request([encode_request(request, version, 1, "t")])
            found.append(decode_response(response_type(request.API_KEY), version, answer)[1])
        client.close()
        await server.close(1.0)
        return found

    return asyncio.run(main())


@pytest.mark.parametrize(
    "request_",
    [
        JoinGroupRequest(group_id="g"),
        SyncGroupRequest(group_id="g"),
        HeartbeatRequest(group_id="g"),
        LeaveGroupRequest(group_id="g"),
        OffsetDeleteRequest(group_id="g"),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_request_of_one_group(request_: Request) -> None:
    for response in ask_all_versions(request_):
        assert response.error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]


def test_requests_of_several_groups() -> None:
    code = ErrorCode.NOT_COORDINATOR
    for response in ask_all_versions(DescribeGroupsRequest(groups=("a", "b"))):
        groups = response.groups  # type: ignore[attr-defined]
        assert [(each.group_id, each.error_code) for each in groups] == [("a", code), ("b", code)]
    for response in ask_all_versions(DeleteGroupsRequest(groups_names=("a",))):
        (result,) = response.results  # type: ignore[attr-defined]
        assert (result.group_id, result.error_code) == ("a", code)


def test_offsets() -> None:
    code = ErrorCode.NOT_COORDINATOR
    parts = (OffsetCommitRequestPartition(partition_index=3),)
    commit = OffsetCommitRequest(
        group_id="g", topics=(OffsetCommitRequestTopic(name="t", partitions=parts),)
    )
    for response in ask_all_versions(commit):
        ((part,),) = [topic.partitions for topic in response.topics]  # type: ignore[attr-defined]
        assert (part.partition_index, part.error_code) == (3, code)
    txn_part = TxnOffsetCommitRequestPartition(partition_index=3)
    txn_commit = TxnOffsetCommitRequest(
        group_id="g", topics=(TxnOffsetCommitRequestTopic(name="t", partitions=(txn_part,)),)
    )
    for response in ask_all_versions(txn_commit):
        ((part,),) = [topic.partitions for topic in response.topics]  # type: ignore[attr-defined]
        assert (part.partition_index, part.error_code) == (3, code)
    fetch = OffsetFetchRequest(
        group_id="g",
        topics=(OffsetFetchRequestTopic(name="t", partition_indexes=(3,)),),
        groups=(OffsetFetchRequestGroup(group_id="g"),),
    )
    for version, response in enumerate(ask_all_versions(fetch), start=1):
        if version == 1:
            ((part,),) = [t.partitions for t in response.topics]  # type: ignore[attr-defined]
            assert (part.partition_index, part.error_code) == (3, code)
        elif version < 8:
            assert response.error_code == code  # type: ignore[attr-defined]
        else:
            (group,) = response.groups  # type: ignore[attr-defined]
            assert (group.group_id, group.error_code) == ("g", code)


def test_no_groups_are_listed() -> None:
    assert ask_all_versions(ListGroupsRequest()) == [ListGroupsResponse()] * 6
