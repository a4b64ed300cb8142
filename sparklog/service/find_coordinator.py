"""FindCoordinator (key 10) v0-6: the node that coordinates a group or a transactional id.

Every node answers from its image.  The coordinator of a group is the leader of the group's
partition of ``__consumer_offsets``; node 0 coordinates all transactional ids.  While the internal
topic is missing, the first request has it created and waits for it, a second at most.  A
group without a live leader is answered with COORDINATOR_NOT_AVAILABLE, which clients retry.  An
empty group id is a key like any other, as in Kafka; an empty transactional id is not.

There is no share coordinator (INVALID_REQUEST, as in Kafka without one).  A key that is named
several times is answered once.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage
from sparklog.metadata.coordinators import find_coordinator
from sparklog.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.service.internal_topic_creation import CreateInternalTopic, InternalTopicCreation
from sparklog.slices import Slices, in_slices
from sparklog.types import CONTROLLER_NODE_ID, NO_NODE
from sparklog.wire.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_KEY_TYPE_GROUP: Final = 0
_KEY_TYPE_TRANSACTION: Final = 1
_KEYS_FROM: Final = 4
_NO_PORT: Final = -1
#: What Kafka sends in place of an error message when there is no error, before v4.
_NO_MESSAGE: Final = "NONE"
#: Units of work for answering one key.
_KEY_UNITS: Final = 5


def handler(
    image: Callable[[], ClusterImage], create_internal_topic: CreateInternalTopic
) -> ApiHandler:
    finders: _Finders = {
        _KEY_TYPE_GROUP: _Groups(image, create_internal_topic),
        _KEY_TYPE_TRANSACTION: _Transactions(image, create_internal_topic),
    }

    def handle(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        answer = partial(_answer, finders, context.version, request)
        finder = finders.get(request.key_type)
        if finder is not None and finder.creation.topic_is_missing:
            return _create_and_answer(finder, answer)
        return answer()

    return ApiHandler(
        api_key=FindCoordinatorRequest.API_KEY,
        min_version=FindCoordinatorRequest.MIN_VERSION,
        max_version=FindCoordinatorRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
    )


class _Node(NamedTuple):
    node_id: int
    host: str
    port: int


class _Finder:
    """The coordinators of one type of key, and the creation of their internal topic."""

    topic: str

    def __init__(self, image: Callable[[], ClusterImage], create: CreateInternalTopic) -> None:
        self._image = image
        self.creation = InternalTopicCreation(self.topic, image, create)

    def find(self, key: str) -> _Node:
        """The coordinator of a key.  Raises KafkaError."""
        raise NotImplementedError

    def _unavailable(self, key: str) -> KafkaError:
        creation = self.creation
        why = f"is missing: {creation.reason}" if creation.topic_is_missing else "has no leader now"
        return KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the partition of {self.topic} for {key!r} {why}"
        )


class _Groups(_Finder):
    topic = CONSUMER_OFFSETS

    def find(self, key: str) -> _Node:
        broker = find_coordinator(self._image(), self.topic, key)
        if broker is None:
            raise self._unavailable(key)
        return _Node(broker.broker_id, broker.host, broker.port)


class _Transactions(_Finder):
    topic = TRANSACTION_STATE

    def find(self, key: str) -> _Node:
        if not key:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if self.creation.topic_is_missing:
            raise self._unavailable(key)
        node = self._image().controller
        return _Node(CONTROLLER_NODE_ID, node.host, node.port)


_Finders: TypeAlias = dict[int, _Finder]


async def _create_and_answer(
    finder: _Finder, answer: Callable[[], Slices[FindCoordinatorResponse]]
) -> Slices[FindCoordinatorResponse]:
    await finder.creation.create_topic()
    return answer()


def _answer(
    finders: _Finders, version: int, request: FindCoordinatorRequest
) -> Slices[FindCoordinatorResponse]:
    def find(key: str) -> Coordinator:
        try:
            node = _find(finders, request.key_type, key)
        except KafkaError as error:
            return Coordinator(
                key=key,
                node_id=NO_NODE,
                port=_NO_PORT,
                error_code=error.code,
                error_message=error.message,
            )
        return Coordinator(
            key=key, node_id=node.node_id, host=node.host, port=node.port, error_message=""
        )

    if version >= _KEYS_FROM:
        keys = dict.fromkeys(request.coordinator_keys)
        coordinators = yield from in_slices(find, keys, _KEY_UNITS)
        return FindCoordinatorResponse(coordinators=tuple(coordinators))
    found = find(request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or _NO_MESSAGE,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(finders: _Finders, key_type: int, key: str) -> _Node:
    """The coordinator of a key.  Raises KafkaError."""
    finder = finders.get(key_type)
    if finder is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {key_type}")
    return finder.find(key)
