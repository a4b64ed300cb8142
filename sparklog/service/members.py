"""MemberHello and MemberProof (keys 20000, 20001): a peer proves that it belongs to the cluster.

Both sides prove that they hold the cluster secret, by an HMAC over two fresh nonces; see
``wire.protocol.private``.  After a failed proof the connection remains that of a client.
"""

from collections.abc import Callable
from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.runtime_environment import SYSTEM
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.wire.protocol.private import (
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

_NONCES: Final = "member nonces"


def handlers(
    secret: bytes, random_bytes: Callable[[int], bytes] = SYSTEM.random_bytes
) -> tuple[ApiHandler, ApiHandler]:
    """The handlers of both steps of the proof."""

    def hello(context: RequestContext, request: MemberHelloRequest) -> MemberHelloResponse:
        if len(request.nonce) != NONCE_BYTES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a nonce has {NONCE_BYTES} bytes")
        nonce = random_bytes(NONCE_BYTES)
        context.connection.state[_NONCES] = (request.nonce, nonce)
        proof = member_proof(secret, request.nonce, nonce, SERVER_ROLE)
        return MemberHelloResponse(nonce=nonce, proof=proof)

    def prove(context: RequestContext, request: MemberProofRequest) -> MemberProofResponse:
        client, server = context.connection.state.pop(_NONCES, (b"", b""))
        if not client or not is_member_proof(request.proof, secret, client, server, CLIENT_ROLE):
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "the proof does not fit this cluster's secret",
            )
        context.connection.member = True
        return MemberProofResponse()

    return _private(MemberHelloRequest.API_KEY, hello), _private(MemberProofRequest.API_KEY, prove)


def _private(api_key: int, handle: object) -> ApiHandler:
    assert callable(handle)
    return ApiHandler(api_key=api_key, min_version=0, max_version=0, handle=handle, advertise=False)
