"""A broker's connection to the control plane.

Owns: connecting, the proof of membership, and one call at a time's errors.  A connection answers in
request order, so a long poll and heartbeats need a link each.  Must not know what is asked.
"""

import asyncio
import os
from typing import TypeVar

from sparklog.client.deadline import check
from sparklog.errors import ConnectError, DecodeError, ErrorCode, KafkaError
from sparklog.transport import ClientConnection, connect
from sparklog.types import Endpoint
from sparklog.wire.codec import decode_response, encode_request, response_type
from sparklog.wire.private import (
    CLIENT_ROLE,
    NONCE_BYTES,
    SERVER_ROLE,
    MemberHelloRequest,
    MemberHelloResponse,
    MemberProofRequest,
    MemberProofResponse,
    is_member_proof,
    member_proof,
)
from sparklog.wire.schema import Request, Response

ResponseT = TypeVar("ResponseT", bound=Response)

CONNECT_TIMEOUT_S = 5.0
#: Private messages have one version.
_VERSION = 0


class ControlLink:
    """A member's connection that is opened when it is needed and again when it was lost."""

    def __init__(self, endpoint: Endpoint, secret: bytes, *, client_id: str) -> None:
        self.endpoint = endpoint
        self._secret = secret
        self._client_id = client_id
        self._connection: ClientConnection | None = None
        self._connecting = asyncio.Lock()
        self._correlation_id = 0

    async def call(self, request: Request, answer: type[ResponseT], timeout_s: float) -> ResponseT:
        """Ask the control plane.

        Raises ConnectError when it cannot be reached or does not answer in time, KafkaError when it
        refuses.
        """
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._open()
                response = await self._ask(connection, request, answer)
        except TimeoutError:
            # Answers come in order: behind one that is late, nothing else would be on time.
            self.close()
            raise ConnectError(f"{self.endpoint} did not answer within {timeout_s:g} s") from None
        _check(response)
        return response

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _open(self) -> ClientConnection:
        async with self._connecting:
            if self._connection is None or self._connection.closed:
                connection = await connect(self.endpoint, CONNECT_TIMEOUT_S)
                try:
                    await self._prove_membership(connection)
                except BaseException:
                    connection.close()
                    raise
                self._connection = connection
            return self._connection

    async def _prove_membership(self, connection: ClientConnection) -> None:
        """Both sides show that they hold the cluster secret."""
        nonce = os.urandom(NONCE_BYTES)
        hello = await self._ask(connection, MemberHelloRequest(nonce=nonce), MemberHelloResponse)
        _check(hello)
        if not is_member_proof(hello.proof, self._secret, nonce, hello.nonce, SERVER_ROLE):
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                f"{self.endpoint} does not hold this cluster's secret",
            )
        proof = member_proof(self._secret, nonce, hello.nonce, CLIENT_ROLE)
        _check(await self._ask(connection, MemberProofRequest(proof=proof), MemberProofResponse))

    async def _ask(
        self, connection: ClientConnection, request: Request, answer: type[ResponseT]
    ) -> ResponseT:
        self._correlation_id = (self._correlation_id + 1) % 2**31
        expected = self._correlation_id
        frame = encode_request(request, _VERSION, expected, self._client_id)
        payload = await connection.request([frame])
        try:
            correlation_id, response = decode_response(
                response_type(request.API_KEY), _VERSION, payload
            )
        except DecodeError as error:
            connection.close()
            raise ConnectError(f"{self.endpoint} sent an unreadable answer: {error}") from error
        if correlation_id != expected or not isinstance(response, answer):
            connection.close()
            raise ConnectError(f"{self.endpoint} sent an answer to something else")
        return response


def _check(response: Response) -> None:
    """Every private response starts with an error code and a message."""
    check(getattr(response, "error_code", 0), getattr(response, "error_message", None))
