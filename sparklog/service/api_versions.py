"""ApiVersions (key 18) v0-4: the APIs and versions that this node serves.

An unknown version is answered with a v0 body, UNSUPPORTED_VERSION and only the version range of
ApiVersions (KIP-511), so that every client can try again.  From v3 on clients send their software's
name and version; malformed ones are refused (INVALID_REQUEST).

Clients that call themselves sparklog are told of the private APIs for clients, too.

One feature is announced: ``transaction.version`` 2, with which the producer epoch is bumped by each
transaction (KIP-890).  Features are constants of this release, so their epoch never changes.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.transport import EncodedResponse
from sparklog.wire.protocol.codec import RequestHeader, encode_response
from sparklog.wire.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from sparklog.wire.protocol.private_clients import CLIENT_SOFTWARE

_MAX_VERSION: Final = ApiVersionsResponse.MAX_VERSION
_NAMED_FROM: Final = 3
_TRANSACTION_VERSION: Final = "transaction.version"
#: Versions with a minimum of 0 are left out before ApiVersions v4, which old clients rely on.
_SUPPORTED: Final = (SupportedFeatureKey(name=_TRANSACTION_VERSION, min_version=1, max_version=2),)
_FINALIZED: Final = (
    FinalizedFeatureKey(name=_TRANSACTION_VERSION, min_version_level=2, max_version_level=2),
)
_FEATURES_EPOCH: Final = 1
_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handler(advertised: Callable[[bool], Mapping[int, tuple[int, int]]]) -> ApiHandler:
    """``advertised`` returns the version ranges to report by api key, to an own client or not."""

    def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
        if context.version >= _NAMED_FROM:
            _check_name(request.client_software_name)
            _check_name(request.client_software_version)
        to_own_client = request.client_software_name == CLIENT_SOFTWARE
        if to_own_client:
            context.mark_own_client()
        return ApiVersionsResponse(
            api_keys=tuple(
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in advertised(to_own_client).items()
            ),
            supported_features=_SUPPORTED,
            finalized_features_epoch=_FEATURES_EPOCH,
            finalized_features=_FINALIZED,
        )

    return ApiHandler(
        api_key=ApiVersionsRequest.API_KEY,
        min_version=0,
        max_version=_MAX_VERSION,
        handle=handle,
        unsupported=_unsupported,
    )


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name!r} is no name of client software")


def _unsupported(header: RequestHeader) -> EncodedResponse:
    own = ApiVersion(api_key=ApiVersionsRequest.API_KEY, min_version=0, max_version=_MAX_VERSION)
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(own,))
    return (encode_response(ApiVersionsResponse, 0, response, header.correlation_id),)
