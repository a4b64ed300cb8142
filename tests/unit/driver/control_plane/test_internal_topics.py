"""Internal topics: created once all brokers are there, and closed to clients' changes."""

from collections import Counter
from typing import Any

import pytest

from sparklog.config import TopicConfig
from sparklog.driver.control_plane.controller import Decision
from sparklog.driver.control_plane.controller import internal_topics as internal_topics_module
from sparklog.errors import ErrorCode
from sparklog.metadata import (
    TopicCreated,
)
from sparklog.metadata.topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE
from sparklog.types import ResourceType
from sparklog.wire.protocol.messages.alter_configs import AlterConfigsRequest
from sparklog.wire.protocol.messages.alter_configs import (
    AlterConfigsResource as ReplacedConfigs,
)
from sparklog.wire.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from sparklog.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparklog.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from sparklog.wire.protocol.private import (
    CreateInternalTopicRequest,
    DrainBrokersRequest,
)
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest, topic_id
from tests.unit.driver.control_plane.internal_topic_fakes import (
    CREATE,
    EXISTS,
    OVERRIDES,
    WAIT_MS,
    cluster,
    created,
    join,
    missing,
    on,
    override,
    refused,
    replicas,
)

# -- creation


def test_it_is_created_with_kafkas_settings() -> None:
    assert cluster(3).handle(CREATE) == created(on(1, 2, 3), on(2, 3, 1), on(3, 1, 2))


def test_its_settings_are_those_of_the_cluster() -> None:
    under_test = cluster(
        3,
        offsets_topic_num_partitions="1",
        offsets_topic_replication_factor="2",
        offsets_topic_segment_bytes="4096",
    )
    assert under_test.handle(CREATE) == Decision(
        records=(
            TopicCreated(topic=CONSUMER_OFFSETS, topic_id=topic_id(1), partitions=(on(1, 2),)),
            *OVERRIDES[:2],
            override("segment.bytes", "4096"),
        ),
        response=EXISTS,
    )


def test_brokers_can_read_its_settings_whatever_the_cluster_is_started_with() -> None:
    under_test = cluster(3, offsets_topic_segment_bytes="1")
    under_test.handle(CREATE)
    overrides = under_test.image.topic_overrides(CONSUMER_OFFSETS)
    config = TopicConfig.resolve(overrides, under_test.config)
    assert (config.cleanup_policy, config.segment_bytes) == (("compact",), 14)


def test_a_topic_that_exists_is_no_error() -> None:
    under_test = cluster(3)
    under_test.handle(CREATE)
    assert under_test.handle(CREATE) == Decision(response=EXISTS)
    under_test.lose(1, 2, 3)
    assert under_test.handle(CREATE) == Decision(response=EXISTS)


def test_the_transactions_need_two_replicas_for_a_record() -> None:
    under_test = cluster(3)
    under_test.handle(CreateInternalTopicRequest(name=TRANSACTION_STATE))
    assert under_test.image.topic_overrides(TRANSACTION_STATE) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
        "min.insync.replicas": "2",
    }
    topic = under_test.image.topics[TRANSACTION_STATE]
    assert Counter(len(state.replicas) for state in topic.partitions.values()) == {3: 50}


def test_the_table_has_every_internal_topic_and_no_other() -> None:
    under_test = cluster(3)
    assert internal_topics_module.internal_topics(under_test.config).keys() == INTERNAL_TOPICS
    code, message = refused(under_test, CreateInternalTopicRequest(name="mine"))
    assert (code, message) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "'mine' is not an internal topic",
    )


def test_a_clients_similar_name_does_not_prevent_it() -> None:
    under_test = cluster(3)
    under_test.create("__consumer.offsets")
    under_test.handle(CREATE)
    assert len(replicas(under_test)) == 3


def test_it_waits_for_every_broker_that_was_asked_for() -> None:
    under_test = cluster(0, asked_for=4)
    assert refused(under_test) == missing(4, 0, 0)
    for broker_id in (1, 2, 3):
        join(under_test, broker_id)
    assert refused(under_test) == missing(4, 3, 3)
    join(under_test, 4)
    under_test.handle(CREATE)
    assert {b for chosen in replicas(under_test) for b in chosen} == {1, 2, 3, 4}


def test_after_a_restart_it_waits_for_enough_brokers_only() -> None:
    under_test = cluster(4)
    under_test.lose(1, 2)
    assert refused(under_test) == missing(4, 4, 2)
    under_test.crash(2, executor_host="host-2")
    under_test.handle(CREATE)
    assert sorted(map(sorted, replicas(under_test))) == [[2, 3, 4]] * 3
    assert under_test.image.deferred_factors == set()


def test_it_does_not_wait_for_a_dead_broker_for_ever() -> None:
    under_test = cluster(2, asked_for=3)
    assert refused(under_test) == missing(3, 2, 2)
    under_test.now_ms = WAIT_MS - 1
    assert refused(under_test) == missing(3, 2, 2)
    under_test.now_ms = WAIT_MS
    assert under_test.handle(CREATE) == created(on(1, 2), on(2, 1), on(1, 2), deferred=True)


def test_a_wait_that_nobody_continued_begins_anew() -> None:
    under_test = cluster(2, asked_for=3)
    refused(under_test)
    under_test.now_ms = WAIT_MS + 1
    assert refused(under_test) == missing(3, 2, 2)
    under_test.now_ms = 2 * WAIT_MS
    assert refused(under_test) == missing(3, 2, 2)
    under_test.now_ms = 2 * WAIT_MS + 1
    under_test.handle(CREATE)


def test_without_any_broker_it_waits_for_ever() -> None:
    under_test = cluster(1)
    under_test.lose(1)
    for now_ms in (0, WAIT_MS, 2 * WAIT_MS):
        under_test.now_ms = now_ms
        assert refused(under_test) == missing(1, 1, 0)


def test_a_draining_broker_is_not_waited_for_and_gets_nothing() -> None:
    under_test = cluster(3)
    under_test.handle(DrainBrokersRequest(broker_ids=(3,)))
    assert under_test.handle(CREATE) == created(on(1, 2), on(2, 1), on(1, 2), deferred=True)


# -- clients


def with_internal_topic() -> ControllerUnderTest:
    under_test = cluster(3)
    under_test.handle(CREATE)
    return under_test


def outcome(under_test: ControllerUnderTest, event: Any) -> tuple[int, str | None]:
    """The error of a request about one resource, which changes nothing."""
    before = under_test.image.copy()
    response: Any = under_test.handle(event).response
    assert under_test.image == before
    (result,) = next(
        found
        for name in ("topics", "responses", "results")
        if (found := getattr(response, name, None)) is not None
    )
    return result.error_code, result.error_message


def cannot(operation: str) -> tuple[int, str]:
    return (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"'__consumer_offsets' is an internal topic; clients cannot {operation}",
    )


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_clients_cannot_create_internal_topics(name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    assert outcome(cluster(3), CreateTopicsRequest(topics=(topic,))) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"'{name}' is an internal topic; clients cannot create it",
    )


def test_clients_cannot_delete_internal_topics() -> None:
    under_test = with_internal_topic()
    by_id = DeleteTopicState(topic_id=topic_id(1))
    for wanted in (DeleteTopicState(name=CONSUMER_OFFSETS), by_id):
        request = DeleteTopicsRequest(topics=(wanted,))
        assert outcome(under_test, request) == cannot("delete it")


def test_clients_cannot_add_partitions_to_internal_topics() -> None:
    topic = CreatePartitionsTopic(name=CONSUMER_OFFSETS, count=60)
    request = CreatePartitionsRequest(topics=(topic,))
    assert outcome(with_internal_topic(), request) == cannot("add partitions to it")


def test_clients_cannot_configure_internal_topics() -> None:
    under_test = with_internal_topic()
    change = AlterConfigsResource(
        resource_type=ResourceType.TOPIC,
        resource_name=CONSUMER_OFFSETS,
        configs=(AlterableConfig(name="cleanup.policy", value="delete"),),
    )
    replaced = ReplacedConfigs(
        resource_type=ResourceType.TOPIC, resource_name=CONSUMER_OFFSETS, configs=()
    )
    for request in (
        IncrementalAlterConfigsRequest(resources=(change,)),
        AlterConfigsRequest(resources=(replaced,)),
    ):
        assert outcome(under_test, request) == cannot("change its settings")
