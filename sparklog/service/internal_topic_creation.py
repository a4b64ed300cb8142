"""The creation of an internal topic by the first request that needs it.

Owns: the creation that is under way, one for all requests of a handler, and how long they wait for
it.  Must not know the requests or how a topic is created.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage

#: Creates an internal topic, or raises KafkaError or ConnectError.
CreateInternalTopic: TypeAlias = Callable[[str], Awaitable[None]]

#: How long a request waits for the topic that it had created, in seconds.
CREATION_WAIT_S: Final = 1.0
#: The pause between two looks at the image, in seconds.
_LOOK_S: Final = 0.01

logger = logging.getLogger(__name__)


class InternalTopicCreation:
    """Creates one internal topic when a request misses it.

    Args:
        image: returns the committed image.
    """

    def __init__(
        self, topic: str, image: Callable[[], ClusterImage], create: CreateInternalTopic
    ) -> None:
        self.topic = topic
        self._image = image
        self._create = create
        self._creation: asyncio.Task[None] | None = None
        #: Why the last creation has failed.
        self.reason = "it is being created"

    @property
    def topic_is_missing(self) -> bool:
        return self._image().topic(self.topic) is None

    async def create_topic(self) -> None:
        """Have the topic created and wait until the image has it, but not for long.

        All requests share one creation.
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
                self.reason = str(error)
                return
        deadline_s = asyncio.get_running_loop().time() + CREATION_WAIT_S
        while self.topic_is_missing and asyncio.get_running_loop().time() < deadline_s:
            await asyncio.sleep(_LOOK_S)
