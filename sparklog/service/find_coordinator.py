"""FindCoordinator (key 10) v0-6: the node that coordinates a group or a transactional id.

Every node answers from its image.  The coordinator of a group is the leader of the group's
partition of ``__consumer_offsets``; node 0 coordinates all transactional ids.  While the internal
topic is missing, the first request has it created and waits for it, ``CREATION_WAIT_S`` at most.  A
group without a live leader is answered with COORDINATOR_NOT_AVAILABLE, which clients retry.  An
empty group id is a key like any other, as in Kafka; an empty transactional id is not.

There is no share coordinator (INVALID_REQUEST, as in Kafka without one).  A key that is named
several times is answered once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage
from sparklog.metadata.coordinators import find_coordinator
from sparklog.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import Slices, in_slices
from sparklog.types import CONTROLLER_NODE_ID, NO_NODE
from sparklog.wire.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

#: Creates an internal topic, or raises KafkaError or ConnectError.
CreateInternalTopic: TypeAlias = Callable[[str], Awaitable[None]]

#: How long a request waits for the topic that it had created.
CREATION_WAIT_S: Final = 1.0
#: The pause between two looks at the image.
_LOOK_S: Final = 0.01
_KEY_TYPE_GROUP: Final = 0
_KEY_TYPE_TRANSACTION: Final = 1
_KEYS_FROM: Final = 4
_NO_PORT: Final = -1
#: What Kafka sends in place of an error message when there is no error, before v4.
_NO_MESSAGE: Final = "NONE"
#: Units of work for answering one key.
_KEY_UNITS: Final = 5

logger = logging.getLogger(__name__)


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
        if finder is not None and finder.topic_is_missing:
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
        self._create = create
        self._creation: asyncio.Task[None] | None = None
        #: Why the last creation has failed.
        self._reason = "it is being created"

    def find(self, key: str) -> _Node:
        """The coordinator of a key.  Raises KafkaError."""
        raise NotImplementedError

    @property
    def topic_is_missing(self) -> bool:
        return self._image().topic(self.topic) is None

    async def create_topic(self) -> None:
        """Have the topic created and wait until the image has it, but not for long.

        All requests of a node share one creation.
        """
        if self._creation is None or self._creation.done():
            self._creation = asyncio.get_running_loop().create_task(self._create_topic())
        await asyncio.wait([self._creation], timeout=CREATION_WAIT_S)

    async def _create_topic(self) -> None:
        try:
            await self._create(self.topic)
        except Exception as error:  # a request that is repeated asks for the topic again
            if not isinstance(error, KafkaError) or error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                logger.warning("%s was not created: %s", self.topic, error)
                self._reason = str(error)
                return
        deadline_s = asyncio.get_running_loop().time() + CREATION_WAIT_S
        while self.topic_is_missing and asyncio.get_running_loop().time() < deadline_s:
            await asyncio.sleep(_LOOK_S)

    def _unavailable(self, key: str) -> KafkaError:
        why = f"is missing: {self._reason}" if self.topic_is_missing else "has no leader now"
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
        if self.topic_is_missing:
            raise self._unavailable(key)
        node = self._image().controller
        return _Node(CONTROLLER_NODE_ID, node.host, node.port)


_Finders: TypeAlias = dict[int, _Finder]


async def _create_and_answer(
    finder: _Finder, answer: Callable[[], Slices[FindCoordinatorResponse]]
) -> Slices[FindCoordinatorResponse]:
    await finder.create_topic()
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
