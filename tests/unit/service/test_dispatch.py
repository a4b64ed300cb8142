"""Dispatch over loopback: versions, refusals, failures, and errors that end a connection."""

import asyncio
import json
import logging
import struct
from dataclasses import replace

import pytest

from sparklog.client.connection import Connection
from sparklog.errors import ConnectError, ErrorCode, KafkaError, ProtocolError
from sparklog.metadata import ClusterImage
from sparklog.service import find_coordinator, members, status
from sparklog.service.dispatch import ApiHandler, Dispatcher, RequestContext
from sparklog.service.handler import Handled
from sparklog.transport import Server
from sparklog.types import Endpoint
from sparklog.wire.protocol.codec import decode_response, encode_request
from sparklog.wire.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from sparklog.wire.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from sparklog.wire.protocol.messages.produce import ProduceRequest, ProduceResponse
from sparklog.wire.protocol.private import (
    NodeStatusRequest,
    NodeStatusResponse,
    StopNodeRequest,
    StopNodeResponse,
)
from sparklog.wire.protocol.private_clients import CLIENT_SOFTWARE, ConsistentCutRequest
from sparklog.wire.protocol.schema import Request
from tests.unit.service.small_node import HOST, ask, ask_once, run_node

SECRET = b"s" * 32
NAMED = ApiVersionsRequest(client_software_name="tests", client_software_version="1.0-rc.1")


async def not_created(name: str) -> None:
    """No internal topic can be created."""
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, name)


def ids(handle: object) -> ApiHandler:
    """A handler of InitProducerId, as an API with a plain error code."""
    assert callable(handle)
    return ApiHandler(api_key=22, min_version=0, max_version=4, handle=handle)


def produce(handle: object) -> ApiHandler:
    assert callable(handle)
    return ApiHandler(
        api_key=0,
        min_version=3,
        max_version=13,
        advertised_min=0,
        handle=handle,
        error_response=lambda request, error: None if request.acks == 0 else ProduceResponse(),
    )


async def exchange(server: Server, payload: bytes) -> bytes:
    """Send one frame and return the frame of the response."""
    reader, writer = await asyncio.open_connection(HOST, server.port)
    try:
        writer.write(struct.pack(">i", len(payload)) + payload)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)
    finally:
        writer.close()


def test_what_is_advertised_is_what_is_served_except_private_and_old_produce() -> None:
    handlers = [
        produce(lambda context, request: None),
        find_coordinator.handler(ClusterImage, not_created),
        *members.handlers(SECRET),
    ]
    for version in range(5):
        response = ask_once(handlers, NAMED, version)
        assert response.api_keys == (
            ApiVersion(api_key=0, min_version=0, max_version=13),
            ApiVersion(api_key=10, min_version=0, max_version=6),
            ApiVersion(api_key=18, min_version=0, max_version=4),
        )


def test_own_clients_are_told_of_private_apis_for_clients() -> None:
    def for_clients(context: RequestContext, request: ConsistentCutRequest) -> None:
        """Never asked."""

    key = ConsistentCutRequest.API_KEY
    handler = ApiHandler(
        api_key=key,
        min_version=0,
        max_version=0,
        handle=for_clients,
        advertise=False,
        advertise_to_own_clients=True,
    )
    own = replace(NAMED, client_software_name=CLIENT_SOFTWARE)
    for request, version, told in ((own, 4, True), (own, 3, True), (own, 2, False), (NAMED, 4, 0)):
        keys = {api.api_key for api in ask_once([handler], request, version).api_keys}
        assert keys == ({18, key} if told else {18})


def test_transactions_of_version_2_are_a_finalized_feature() -> None:
    for version in (3, 4):
        response = ask_once([], NAMED, version)
        (supported,) = response.supported_features
        (finalized,) = response.finalized_features
        assert (supported.name, supported.max_version) == ("transaction.version", 2)
        assert (finalized.name, finalized.max_version_level) == ("transaction.version", 2)
        assert response.finalized_features_epoch >= 0  # clients ignore features without an epoch
    assert ask_once([], NAMED, 2).finalized_features == ()


@pytest.mark.parametrize("name", ["", "-", "a b", "a.", "ü", "a\n"])
def test_a_client_that_names_itself_badly_is_refused(name: str) -> None:
    refused = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    for request in (
        replace(NAMED, client_software_name=name),
        replace(NAMED, client_software_version=name),
    ):
        assert ask_once([], request, 2).error_code == 0  # which does not say it
        assert ask_once([], request, 3) == refused


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(version: int) -> None:
    async def test(server: Server) -> None:
        body = b"\x00\x0cfrom-tomorrow\x01\x02\x03"
        payload = struct.pack(">hhih", 18, version, 5, 1) + b"c" + b"\x00" + body
        answer = await exchange(server, payload)
        assert decode_response(ApiVersionsResponse, 0, answer) == (
            5,
            ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),),
            ),
        )

    run_node([], test)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00",
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", 0, 2, 1, -1),
        struct.pack(">hhih", 22, 5, 1, -1) + b"\x00",
        encode_request(InitProducerIdRequest(), 4, 1, "c") + b"trailing",
        encode_request(InitProducerIdRequest(), 4, 1, "c")[:-3],
    ],
    ids=["empty", "short", "api", "old produce", "new version", "trailing", "truncated"],
)
def test_what_cannot_be_understood_costs_its_connection_only(payload: bytes) -> None:
    dispatcher = Dispatcher(
        [ids(lambda context, request: InitProducerIdResponse(producer_id=1)), produce(print)]
    )

    async def test(server: Server) -> None:
        with pytest.raises(asyncio.IncompleteReadError):
            await exchange(server, payload)
        assert server.frames_refused == 1
        assert await ask(server, InitProducerIdRequest(), 4) == InitProducerIdResponse(
            producer_id=1
        )

    run_node([], test, dispatcher)


def test_a_refusal_becomes_the_response_with_its_code() -> None:
    def refuse(_context: RequestContext, _request: InitProducerIdRequest) -> Handled:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no")

    assert ask_once([ids(refuse)], InitProducerIdRequest(), 4) == InitProducerIdResponse(
        error_code=ErrorCode.INVALID_REQUEST
    )


def test_an_awaited_refusal_becomes_the_response_with_its_code() -> None:
    async def refuse(_context: RequestContext, _request: InitProducerIdRequest) -> Handled:
        await asyncio.sleep(0)
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    assert ask_once([ids(refuse)], InitProducerIdRequest(), 4) == InitProducerIdResponse(
        error_code=ErrorCode.NOT_CONTROLLER
    )


def test_a_bug_is_logged_counted_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_context: RequestContext, _request: InitProducerIdRequest) -> Handled:
        raise ZeroDivisionError("a bug")

    dispatcher = Dispatcher([ids(fail)])

    async def test(server: Server) -> None:
        assert await ask(server, InitProducerIdRequest(), 4) == InitProducerIdResponse(
            error_code=ErrorCode.UNKNOWN_SERVER_ERROR
        )

    with caplog.at_level(logging.ERROR):
        run_node([], test, dispatcher)
    assert (dispatcher.errors, dispatcher.requests[22]) == (1, 1)
    assert "a bug" in caplog.text


def test_a_cancelled_answer_is_an_error_not_a_hang() -> None:
    def cancelled(_context: RequestContext, _request: InitProducerIdRequest) -> Handled:
        future: asyncio.Future[InitProducerIdResponse] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.cancel)
        return future

    assert ask_once([ids(cancelled)], InitProducerIdRequest(), 4) == InitProducerIdResponse(
        error_code=ErrorCode.UNKNOWN_SERVER_ERROR
    )


def test_a_future_may_answer_and_the_context_tells_who_asks() -> None:
    seen: list[tuple[str, int, bool]] = []

    def later(context: RequestContext, request: InitProducerIdRequest) -> Handled:
        seen.append((context.client_id, context.version, context.member))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[InitProducerIdResponse] = loop.create_future()
        answer = InitProducerIdResponse(producer_id=request.producer_id + 1)
        loop.call_soon(future.set_result, answer)
        return future

    assert ask_once(
        [ids(later)], InitProducerIdRequest(producer_id=41), 4
    ) == InitProducerIdResponse(producer_id=42)
    assert seen == [("test", 4, False)]


def test_no_answer_is_sent_when_none_is_owed_not_even_to_a_refusal() -> None:
    def handle(_context: RequestContext, request: ProduceRequest) -> Handled:
        if request.timeout_ms == 13:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE)
        return None

    async def test(server: Server) -> None:
        connection = await Connection.open(Endpoint(HOST, server.port), timeout_s=30)
        for timeout_ms in (12, 13):
            request = ProduceRequest(acks=0, timeout_ms=timeout_ms)
            await connection.send((encode_request(request, 12, 1, "c"),))
        answer: ApiVersionsResponse = await connection.request(NAMED, timeout_s=30)
        assert answer.error_code == 0
        connection.close()

    run_node([produce(handle)], test)


def test_members_prove_themselves_and_may_ask_what_others_may_not() -> None:
    def stop(_: RequestContext, _request: StopNodeRequest) -> StopNodeResponse:
        return StopNodeResponse()

    key = StopNodeRequest.API_KEY
    handler = ApiHandler(api_key=key, min_version=0, max_version=0, handle=stop, members_only=True)
    handlers = [*members.handlers(SECRET), handler]
    request: Request = StopNodeRequest()
    assert ask_once(handlers, request, 0, SECRET) == StopNodeResponse()
    refused = ask_once(handlers, request, 0)
    assert isinstance(refused, StopNodeResponse)
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_client_gets_the_numbers_of_a_status_and_a_member_gets_all_of_it() -> None:
    told = {"connections": 5, "clean_start": True, "data_dirs": {"/d": ""}, "incarnation": "x"}
    handlers = [*members.handlers(SECRET), status.handler(lambda: told)]
    for secret, found in ((SECRET, told), (None, {"connections": 5})):
        answer = ask_once(handlers, NodeStatusRequest(), 0, secret)
        assert isinstance(answer, NodeStatusResponse)
        assert json.loads(answer.status) == found


def test_a_client_with_another_secret_is_no_member_and_finds_no_member() -> None:
    async def test(server: Server) -> None:
        with pytest.raises(KafkaError, match="does not hold this cluster's secret"):
            await Connection.open(Endpoint(HOST, server.port), secret=b"wrong", timeout_s=30)

    run_node([*members.handlers(SECRET)], test)


def test_a_node_without_members_is_named_as_such() -> None:
    async def test(server: Server) -> None:
        with pytest.raises(ProtocolError, match="knows no members"):
            await Connection.open(Endpoint(HOST, server.port), secret=SECRET, timeout_s=30)

    run_node([], test)


def test_a_peer_that_speaks_another_protocol_is_named() -> None:
    async def main() -> None:
        async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        server = await asyncio.start_server(answer, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises((ConnectError, ProtocolError), match=f"{HOST}:{port}"):
            await Connection.open(Endpoint(HOST, port), timeout_s=30)
        server.close()

    asyncio.run(main())


def test_a_node_that_never_answers_loses_its_connection_at_the_deadline() -> None:
    def never(_context: RequestContext, _request: InitProducerIdRequest) -> Handled:
        return asyncio.get_running_loop().create_future()

    async def test(server: Server) -> None:
        connection = await Connection.open(Endpoint(HOST, server.port), timeout_s=30)
        with pytest.raises(KafkaError) as caught:
            await connection.request(InitProducerIdRequest(), timeout_s=0.02)
        assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert connection.closed

    run_node([ids(never)], test)
