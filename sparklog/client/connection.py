"""One connection to one node: version negotiation, proof of membership, requests and responses.

Owns: ApiVersions, the choice of the highest common version, correlation ids, and the rule that a
node which misses a deadline loses its connection.  Must not know which node a request is for.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

from sparklog import __version__
from sparklog.client.deadline import Deadline, check
from sparklog.errors import ConnectError, DecodeError, ErrorCode, KafkaError, ProtocolError
from sparklog.runtime_environment import SYSTEM, RuntimeEnvironment
from sparklog.transport import Buffer, ClientConnection, connect
from sparklog.types import Endpoint
from sparklog.wire.protocol.codec import (
    decode_response,
    encode_request,
    read_response_header,
    response_type,
)
from sparklog.wire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.protocol.private import (
    CLIENT_ROLE,
    FIRST_PRIVATE_KEY,
    NONCE_BYTES,
    SERVER_ROLE,
    MemberHelloRequest,
    MemberHelloResponse,
    MemberProofRequest,
    MemberProofResponse,
    is_member_proof,
    member_proof,
)
from sparklog.wire.protocol.private_clients import CLIENT_SOFTWARE
from sparklog.wire.protocol.schema import Request

DEFAULT_FRAME_BYTES_MAX: Final = 256 * 1024 * 1024


class Connection:
    """An open connection, made by ``open``."""

    def __init__(self, channel: ClientConnection, client_id: str) -> None:
        self.client_id = client_id
        #: The version ranges that the node advertises, by api key.
        self.versions: dict[int, tuple[int, int]] = {}
        #: The levels of the cluster's finalized features, such as ``transaction.version``.
        self.features: dict[str, int] = {}
        self._channel = channel
        self._next_correlation_id = 0

    @classmethod
    async def open(
        cls,
        endpoint: Endpoint,
        *,
        client_id: str = "sparklog",
        secret: bytes | None = None,
        timeout_s: float = 10.0,
        max_frame_bytes: int = DEFAULT_FRAME_BYTES_MAX,
        runtime: RuntimeEnvironment = SYSTEM,
    ) -> Self:
        """Connect, negotiate versions, and prove membership if there is a secret.

        Raises ConnectError; ProtocolError for a peer that does not speak the protocol;
        KafkaError(CLUSTER_AUTHORIZATION_FAILED) for a peer with another secret.
        """
        deadline = Deadline(timeout_s)
        channel = await connect(endpoint, timeout_s, max_frame_bytes=max_frame_bytes)
        connection = cls(channel, client_id)
        try:
            await connection._negotiate(deadline)
            if secret is not None:
                nonce = runtime.random_bytes(NONCE_BYTES)
                await connection._prove_membership(secret, nonce, deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def endpoint(self) -> Endpoint:
        return self._channel.endpoint

    @property
    def closed(self) -> bool:
        return self._channel.closed

    @property
    def in_flight(self) -> int:
        return self._channel.in_flight

    def call_on_loss(self, callback: Callable[[], None]) -> None:
        """Call back at once when the peer closes the connection."""
        self._channel.call_on_loss(callback)

    def close(self) -> None:
        self._channel.close()

    def version_for(self, message: type[Request], *, at_most: int | None = None) -> int:
        """The highest version that both sides know.  Raises ProtocolError if there is none."""
        if message.API_KEY >= FIRST_PRIVATE_KEY:
            return 0
        low, high = self.versions.get(message.API_KEY, (0, -1))
        version = min(high, message.MAX_VERSION if at_most is None else at_most)
        if version < max(low, message.MIN_VERSION):
            raise ProtocolError(
                f"{self.endpoint} serves {message.__name__} v{low} to v{high}, "
                f"v{message.MIN_VERSION} to v{message.MAX_VERSION} are known here"
                if high >= 0
                else f"{self.endpoint} does not serve {message.__name__}"
            )
        return version

    async def request(
        self, message: Request, *, timeout_s: float = 30.0, at_most: int | None = None
    ) -> Any:
        """Send a message in the highest common version and return its response.

        ``at_most`` is the highest version to use, where a later one needs what the message lacks.
        Raises ConnectError, ProtocolError, DecodeError, or KafkaError(REQUEST_TIMED_OUT), which
        closes the connection.  The caller checks error codes inside the response.
        """
        version = self.version_for(type(message), at_most=at_most)
        return await self._request(message, version, timeout_s)

    async def exchange(
        self, api_key: int, payload: Sequence[Buffer], *, timeout_s: float = 30.0
    ) -> memoryview:
        """Send an encoded request and return the bytes of its response, header included.

        For callers with their own codec; the correlation id is from ``next_correlation_id``.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._channel.request(payload)
        except TimeoutError:
            self.close()
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self.endpoint} did not answer api key {api_key} within {timeout_s:.1f} s",
            ) from None

    def ask(
        self, payload: Sequence[Buffer], on_response: Callable[[memoryview | ConnectError], None]
    ) -> None:
        """Send an encoded request; ``on_response`` gets the bytes of the response at receipt,
        or the error.  ``on_response`` must not raise; the caller keeps the deadline.

        Raises ConnectError.
        """
        self._channel.ask(payload, on_response)

    def give_back(self, answer: memoryview) -> None:
        """Reuse the memory of a response: neither it nor a view of it is used any more."""
        self._channel.give_back(answer)

    async def send(self, payload: Sequence[Buffer]) -> None:
        """Send an encoded request that gets no response (Produce with acks=0)."""
        await self._channel.send(payload)

    def next_correlation_id(self) -> int:
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        return self._next_correlation_id

    async def _request(self, message: Request, version: int, timeout_s: float) -> Any:
        correlation_id = self.next_correlation_id()
        payload = encode_request(message, version, correlation_id, self.client_id)
        answer = await self.exchange(message.API_KEY, (payload,), timeout_s=timeout_s)
        answered_id, response = decode_response(response_type(message.API_KEY), version, answer)
        self.check_correlation(correlation_id, answered_id)
        return response

    def check_correlation(self, sent: int, answered: int) -> None:
        """Raises ProtocolError, and closes, when a response belongs to another request."""
        if sent != answered:
            self.close()
            raise ProtocolError(f"{self.endpoint} answered request {answered} instead of {sent}")

    async def _negotiate(self, deadline: Deadline) -> None:
        try:
            response = await self._ask_versions(ApiVersionsRequest.MAX_VERSION, deadline)
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
                response = await self._ask_versions(0, deadline)
        except DecodeError as error:
            raise ProtocolError(f"{self.endpoint} is no Kafka node: {error}") from error
        check(response.error_code)
        self.versions = {
            api.api_key: (api.min_version, api.max_version) for api in response.api_keys
        }
        self.features = {
            feature.name: feature.max_version_level for feature in response.finalized_features
        }

    async def _ask_versions(self, version: int, deadline: Deadline) -> ApiVersionsResponse:
        message = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE, client_software_version=__version__
        )
        correlation_id = self.next_correlation_id()
        payload = encode_request(message, version, correlation_id, self.client_id)
        answer = await self.exchange(
            message.API_KEY, (payload,), timeout_s=max(deadline.left_s, 0.001)
        )
        answered_id, offset = read_response_header(message.API_KEY, version, answer)
        self.check_correlation(correlation_id, answered_id)
        code = int.from_bytes(answer[offset : offset + 2], "big", signed=True)
        if code == ErrorCode.UNSUPPORTED_VERSION:  # the body is always of version 0
            return ApiVersionsResponse(error_code=code)
        return decode_response(ApiVersionsResponse, version, answer)[1]

    async def _prove_membership(self, secret: bytes, nonce: bytes, deadline: Deadline) -> None:
        try:
            hello: MemberHelloResponse = await self._request(
                MemberHelloRequest(nonce=nonce), 0, deadline.left_s
            )
        except ConnectError as error:
            raise ProtocolError(f"{self.endpoint} knows no members: {error}") from error
        check(hello.error_code, hello.error_message)
        if not is_member_proof(hello.proof, secret, nonce, hello.nonce, SERVER_ROLE):
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                f"{self.endpoint} does not hold this cluster's secret",
            )
        proof = member_proof(secret, nonce, hello.nonce, CLIENT_ROLE)
        answer: MemberProofResponse = await self._request(
            MemberProofRequest(proof=proof), 0, deadline.left_s
        )
        check(answer.error_code, answer.error_message)
