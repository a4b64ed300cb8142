"""The deletion of tiered topics: what the remote_dir is to lose, and that it has lost it."""

from uuid import UUID

import pytest

from sparklog.driver.control_plane.controller import RemoteDeletesFinished
from sparklog.metadata import RemoteDeleteFinished, RemoteDeleteMarked, TopicDeleted
from sparklog.types import ResourceType
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparklog.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.unit.driver.control_plane.driver_fakes import WALL_MS, ControllerUnderTest

TIERED = CreatableTopicConfig(name="remote.storage.enable", value="true")
OFF = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}


@pytest.mark.parametrize("leaves", [False, True])
def test_a_tiered_topic_leaves_the_remote_dir_after_its_deletion(leaves: bool) -> None:
    """One that was switched off may have left objects behind."""
    under_test = ControllerUnderTest(remote_dir="memory://bucket/log")
    under_test.register(1)
    topic = CreatableTopic(name="a", num_partitions=1, replication_factor=1, configs=(TIERED,))
    under_test.handle(CreateTopicsRequest(topics=(topic,)))
    if leaves:
        changes = tuple(AlterableConfig(name=name, value=value) for name, value in OFF.items())
        resource = AlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name="a", configs=changes
        )
        under_test.handle(IncrementalAlterConfigsRequest(resources=(resource,)))
        assert under_test.image.topic_overrides("a") == OFF
    topic_id = under_test.image.topics["a"].topic_id
    decision = under_test.handle(DeleteTopicsRequest(topics=(DeleteTopicState(name="a"),)))
    assert decision.records == (
        TopicDeleted(topic="a", topic_id=topic_id),
        RemoteDeleteMarked(topic_id=topic_id, time_ms=WALL_MS),
    )
    other = UUID(int=9)
    assert under_test.handle(RemoteDeletesFinished(frozenset({other}))).records == ()
    assert under_test.image.remote_deletes == {topic_id: WALL_MS}
    decision = under_test.handle(RemoteDeletesFinished(frozenset({topic_id, other})))
    assert decision.records == (RemoteDeleteFinished(topic_id=topic_id),)
    assert under_test.image.remote_deletes == {}
