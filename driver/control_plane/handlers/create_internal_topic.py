"""CreateInternalTopic (key 20014): creates an internal topic that a coordinator needs."""

import inspect
from collections.abc import Awaitable, Callable

from sparklog.driver.control_plane.handlers.node import Decide, member_handler
from sparklog.errors import ErrorCode, KafkaError
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.private import CreateInternalTopicRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: CreateInternalTopicRequest) -> Handled:
        return decide(request)

    return member_handler(CreateInternalTopicRequest, handle)


def internal_topic_creator(decide: Decide) -> Callable[[str], Awaitable[None]]:
    """A function that creates an internal topic if it is missing, for FindCoordinator.

    It returns once the topic is durable, and raises KafkaError(COORDINATOR_NOT_AVAILABLE), which
    clients retry, for every refusal.
    """

    async def create(name: str) -> None:
        try:
            decided = decide(CreateInternalTopicRequest(name=name))
            if inspect.isawaitable(decided):
                await decided
        except KafkaError as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} cannot be created now: {error}"
            ) from error

    return create
