"""Automatic creation of topics for which a client has requested metadata.

Owns: the translation into CreateTopics with the cluster's defaults.  Must not know what makes a
topic missing.
"""

import inspect

from sparklog.driver.control_plane.handlers.node import Decide
from sparklog.errors import ErrorCode, KafkaError
from sparklog.service.metadata import CreateTopic
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


def topic_creator(decide: Decide) -> CreateTopic:
    async def create(name: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
        response = decide(CreateTopicsRequest(topics=(topic,)))
        if inspect.isawaitable(response):
            response = await response
        assert isinstance(response, CreateTopicsResponse)
        (result,) = response.topics
        if result.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(result.error_code), result.error_message)

    return create
