"""FindCoordinator (key 10) v0-6: there are no coordinators yet.

Groups are answered with COORDINATOR_NOT_AVAILABLE, which clients retry.  Transactional ids are
answered with an error that clients take as final.  The API is served because librdkafka sends lz4
only to brokers that advertise it.
"""

from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.service.transactions import transactions_refused
from sparklog.slices import Slices, in_slices
from sparklog.types import NO_NODE
from sparklog.wire.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_KEY_TYPE_TRANSACTION: Final = 1
_NO_GROUPS: Final = KafkaError(
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "consumer groups are not available yet; assign partitions instead",
)
_NO_PORT: Final = -1
#: Units of work for answering one key.
_KEY_UNITS: Final = 3


def handler() -> ApiHandler:
    return ApiHandler(
        api_key=FindCoordinatorRequest.API_KEY,
        min_version=FindCoordinatorRequest.MIN_VERSION,
        max_version=FindCoordinatorRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=_handle,
    )


def _handle(
    _context: RequestContext, request: FindCoordinatorRequest
) -> Slices[FindCoordinatorResponse]:
    """A key that is named several times is answered once."""

    def answer(key: str) -> Coordinator:
        return _no_coordinator(key, _refusal(request.key_type, key))

    single = _refusal(request.key_type, request.key)
    keys = dict.fromkeys(request.coordinator_keys)
    coordinators = yield from in_slices(answer, keys, _KEY_UNITS)
    return FindCoordinatorResponse(
        error_code=single.code,
        error_message=single.message,
        node_id=NO_NODE,
        port=_NO_PORT,
        coordinators=tuple(coordinators),
    )


def _refusal(key_type: int, key: str) -> KafkaError:
    return transactions_refused(key) if key_type == _KEY_TYPE_TRANSACTION else _NO_GROUPS


def _no_coordinator(key: str, refusal: KafkaError) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=NO_NODE,
        port=_NO_PORT,
        error_code=refusal.code,
        error_message=refusal.message,
    )
