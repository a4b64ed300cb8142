"""Private messages go through the same codec, and only members can prove membership."""

import hashlib
import hmac
from typing import Any
from uuid import UUID

import pytest

from sparklog.errors import DecodeError
from sparklog.wire.protocol.codec import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    knows,
)
from sparklog.wire.protocol.private import (
    CLIENT_ROLE,
    FIRST_PRIVATE_KEY,
    PRIVATE_MESSAGES,
    SERVER_ROLE,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AssignBrokersRequest,
    AssignBrokersResponse,
    AssignedBroker,
    AwaitWorkRequest,
    AwaitWorkResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreateInternalTopicRequest,
    CreateInternalTopicResponse,
    DrainBrokersRequest,
    DrainBrokersResponse,
    DrainedBroker,
    ForwardRequestRequest,
    ForwardRequestResponse,
    GiveWorkRequest,
    GiveWorkResponse,
    LogEnd,
    LostBroker,
    MemberHelloRequest,
    MemberHelloResponse,
    MemberProofRequest,
    MemberProofResponse,
    NodeStatusRequest,
    NodeStatusResponse,
    OfflineReplica,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    ReportDamageRequest,
    ReportDamageResponse,
    ReportLogEndsRequest,
    ReportLogEndsResponse,
    ReportLossRequest,
    ReportLossResponse,
    StopNodeRequest,
    StopNodeResponse,
    WatchMetadataRequest,
    WatchMetadataResponse,
    is_member_proof,
    member_proof,
)
from sparklog.wire.protocol.private_clients import (
    ConsistentCutRequest,
    ConsistentCutResponse,
    CutPartitionOffset,
    CutTopic,
    CutTopicOffsets,
    ReadRemoteSegmentsRequest,
    ReadRemoteSegmentsResponse,
)
from sparklog.wire.protocol.private_replicas import (
    ReadCleanOffsetRequest,
    ReadCleanOffsetResponse,
    ReadLocalStartRequest,
    ReadLocalStartResponse,
    ReadTieredStateRequest,
    ReadTieredStateResponse,
)

A, B = UUID(int=1), UUID(int=2**127 + 5)

REQUESTS = [
    MemberHelloRequest(nonce=bytes(range(32))),
    MemberProofRequest(proof=b"p" * 32),
    RegisterBrokerRequest(
        cluster_id="c",
        broker_id=3,
        directory_id=A,
        incarnation=B,
        host="h",
        port=9092,
        executor_host="e",
        executor_id="7",
        job="sparklog-3",
        clean_stop=True,
    ),
    BrokerHeartbeatRequest(
        broker_id=3,
        broker_epoch=2**40,
        metadata_version=9,
        has_stopped=True,
        offline=(OfflineReplica(topic_id=A, partition=2),),
    ),
    WatchMetadataRequest(since=2**40, max_wait_ms=500),
    AllocateProducerIdsRequest(broker_id=3, broker_epoch=5),
    AssignBrokersRequest(count=3),
    ReportLossRequest(brokers=(LostBroker(broker_id=1, incarnation=A), LostBroker(broker_id=2))),
    StopNodeRequest(reason="done"),
    NodeStatusRequest(),
    ForwardRequestRequest(principal="User:ada", api_version=7, request=b"bytes"),
    ReportLogEndsRequest(
        broker_id=3,
        broker_epoch=9,
        ends=(
            LogEnd(
                topic_id=A,
                partition=2,
                current_leader_epoch=7,
                leader_epoch=5,
                log_end_offset=2**40,
            ),
        ),
    ),
    DrainBrokersRequest(broker_ids=(3, 4), cancel=True),
    ReportDamageRequest(topic_id=UUID(int=5), partition=3, offset=1 << 40),
    ReadCleanOffsetRequest(topic_id=UUID(int=6), partition=4),
    ReadTieredStateRequest(topic_id=UUID(int=7), partition=5, current_leader_epoch=2),
    ReadLocalStartRequest(topic_id=UUID(int=8), partition=6, current_leader_epoch=3),
    CreateInternalTopicRequest(name="__consumer_offsets"),
    AwaitWorkRequest(spare="spare-1", max_wait_ms=10_000),
    GiveWorkRequest(spare="spare-1", work=b'{"broker": {}}'),
    ConsistentCutRequest(max_wait_ms=2000, topics=(CutTopic(name="t", partitions=(0, 2)),)),
    ReadRemoteSegmentsRequest(
        topic_id=UUID(int=8), partition=6, current_leader_epoch=3, start_offset=1, end_offset=2**40
    ),
]

RESPONSES = [
    MemberHelloResponse(nonce=b"n" * 32, proof=b"p" * 32),
    MemberProofResponse(error_code=58, error_message="wrong secret"),
    RegisterBrokerResponse(broker_epoch=2**40, controller_epoch=4),
    BrokerHeartbeatResponse(fenced=True),
    WatchMetadataResponse(
        controller_epoch=2, snapshot=True, version=77, commits=(b"[]", b'[{"a":1}]' * 1000)
    ),
    AllocateProducerIdsResponse(first_producer_id=1000, count=1000),
    AssignBrokersResponse(
        brokers=(
            AssignedBroker(broker_id=1, directory_id=A, host="h"),
            AssignedBroker(broker_id=2, new=True),
        )
    ),
    ReportLossResponse(),
    StopNodeResponse(),
    NodeStatusResponse(status=b'{"recovered_bytes": 0}'),
    ForwardRequestResponse(response=b"answer"),
    ReportLogEndsResponse(error_code=77, error_message="stale"),
    DrainBrokersResponse(
        brokers=(DrainedBroker(broker_id=3, partitions_left=7, partitions_stuck=1),)
    ),
    ReportDamageResponse(error_code=1, error_message="no such offset"),
    ReadCleanOffsetResponse(clean_offset=1 << 41, partition_epoch=12),
    ReadTieredStateResponse(
        log_start_offset=1, local_log_start_offset=1 << 33, tiered_end_offset=1 << 34
    ),
    ReadLocalStartResponse(local_log_start_offset=1 << 42, partition_epoch=13),
    CreateInternalTopicResponse(error_code=15, error_message="no brokers yet"),
    AwaitWorkResponse(work=b'{"broker": {}}'),
    GiveWorkResponse(asking=True),
    ConsistentCutResponse(
        topics=(
            CutTopicOffsets(
                name="t", partitions=(CutPartitionOffset(partition=2, last_stable_offset=2**40),)
            ),
        )
    ),
    ReadRemoteSegmentsResponse(expires_at_ms=2**41, segments=(b"{}", b'{"log":"http://x"}')),
]


def test_every_private_message_is_in_these_tests() -> None:
    pairs = zip(map(type, REQUESTS), map(type, RESPONSES), strict=True)
    assert {pair[0].API_KEY: pair for pair in pairs} == PRIVATE_MESSAGES
    assert min(PRIVATE_MESSAGES) == FIRST_PRIVATE_KEY


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda found: type(found).__name__)
def test_a_request_comes_back_as_it_was(request_: Any) -> None:
    frame = encode_request(request_, 0, 5, "broker-3")
    header, offset = decode_request_header(frame)
    assert header == RequestHeader(
        api_key=request_.API_KEY, api_version=0, correlation_id=5, client_id="broker-3"
    )
    assert decode_request(header, memoryview(frame)[offset:]) == request_
    assert knows(request_.API_KEY, 0)
    assert not knows(request_.API_KEY, 1)


@pytest.mark.parametrize("response", RESPONSES, ids=lambda found: type(found).__name__)
def test_a_response_comes_back_as_it_was(response: Any) -> None:
    payload = encode_response(response.API_KEY, 0, response, 6)
    assert decode_response(type(response), 0, payload) == (6, response)


@pytest.mark.parametrize("response", RESPONSES, ids=lambda found: type(found).__name__)
def test_every_response_can_say_what_went_wrong(response: Any) -> None:
    refusal = type(response)(error_code=41, error_message="ask another node")
    payload = encode_response(response.API_KEY, 0, refusal, 6)
    assert decode_response(type(response), 0, payload) == (6, refusal)


def test_another_version_is_refused() -> None:
    header = RequestHeader(api_key=20002, api_version=1, correlation_id=1)
    with pytest.raises(DecodeError, match="RegisterBrokerRequest v1 is unknown"):
        decode_request(header, b"")


SECRET, CLIENT_NONCE, SERVER_NONCE = b"s" * 32, b"c" * 32, b"v" * 32


def test_a_proof_is_an_hmac_over_role_and_nonces() -> None:
    message = b"".join(
        len(part).to_bytes(4, "big") + part
        for part in (b"sparklog member", b"client", CLIENT_NONCE, SERVER_NONCE)
    )
    assert member_proof(SECRET, CLIENT_NONCE, SERVER_NONCE, CLIENT_ROLE) == hmac.digest(
        SECRET, message, hashlib.sha256
    )


def test_only_the_right_proof_is_accepted() -> None:
    proof = member_proof(SECRET, CLIENT_NONCE, SERVER_NONCE, SERVER_ROLE)
    assert is_member_proof(proof, SECRET, CLIENT_NONCE, SERVER_NONCE, SERVER_ROLE)
    wrong = [
        (proof, b"other secret", CLIENT_NONCE, SERVER_NONCE, SERVER_ROLE),
        (proof, SECRET, b"old nonce", SERVER_NONCE, SERVER_ROLE),
        (proof, SECRET, CLIENT_NONCE, b"old nonce", SERVER_ROLE),
        (proof, SECRET, SERVER_NONCE, CLIENT_NONCE, SERVER_ROLE),
        (proof, SECRET, CLIENT_NONCE, SERVER_NONCE, CLIENT_ROLE),
        (b"", SECRET, CLIENT_NONCE, SERVER_NONCE, SERVER_ROLE),
        (proof[:-1], SECRET, CLIENT_NONCE, SERVER_NONCE, SERVER_ROLE),
    ]
    assert [is_member_proof(*arguments) for arguments in wrong] == [False] * len(wrong)
