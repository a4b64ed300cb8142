"""Creation and deletion of topics, and additional partitions."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from sparklog.config import TOPIC_SETTINGS
from sparklog.driver.control_plane.controller import Decision, WarnOperator
from sparklog.errors import ErrorCode
from sparklog.metadata import (
    ConfigChanged,
    PartitionImage,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from sparklog.types import ResourceType
from sparklog.wire.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from sparklog.wire.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest, topic_id

ONE = CreatableTopic(name="a", num_partitions=1, replication_factor=1)


def led_by(broker_id: int) -> PartitionImage:
    return PartitionImage(
        replicas=(broker_id,), isr=(broker_id,), last_known=(broker_id,), leader=broker_id
    )


def three_brokers(**settings: str) -> ControllerUnderTest:
    under_test = ControllerUnderTest(None, **settings)
    under_test.register_all(3)
    return under_test


def results(decision: Decision) -> list[CreatableTopicResult]:
    """The results without the list of settings, which has a test of its own."""
    assert isinstance(decision.response, CreateTopicsResponse)
    return [replace(topic, configs=None) for topic in decision.response.topics]


def refusal(under_test: ControllerUnderTest, topic: CreatableTopic) -> tuple[int, str | None]:
    decision = under_test.handle(CreateTopicsRequest(topics=(topic,)))
    assert decision.records == ()
    (result,) = results(decision)
    return result.error_code, result.error_message


# -- creating


def test_a_topic_is_one_record_and_its_settings() -> None:
    under_test = three_brokers()
    settings = (
        CreatableTopicConfig(name="retention.ms", value=" 1000 "),
        CreatableTopicConfig(name="cleanup.policy", value="delete"),
    )
    topic = CreatableTopic(name="flights", num_partitions=6, replication_factor=1, configs=settings)
    decision = under_test.handle(CreateTopicsRequest(topics=(topic,)))
    assert decision.records == (
        TopicCreated(
            topic="flights",
            topic_id=topic_id(1),
            partitions=tuple(led_by(n) for n in (1, 2, 3, 1, 2, 3)),
        ),
        ConfigChanged(resource_type=2, resource_name="flights", name="retention.ms", value="1000"),
        ConfigChanged(
            resource_type=2, resource_name="flights", name="cleanup.policy", value="delete"
        ),
    )
    assert results(decision) == [
        CreatableTopicResult(
            name="flights", topic_id=topic_id(1), num_partitions=6, replication_factor=1
        )
    ]


def test_the_answer_shows_every_setting_and_its_source() -> None:
    under_test = three_brokers(log_retention_bytes="77")
    topic = replace(ONE, configs=(CreatableTopicConfig(name="retention.ms", value="5"),))
    response = under_test.handle(CreateTopicsRequest(topics=(topic,))).response
    assert isinstance(response, CreateTopicsResponse)
    configs = {c.name: (c.value, c.config_source) for c in response.topics[0].configs or ()}
    assert len(configs) == len(TOPIC_SETTINGS)
    assert {
        name: configs[name] for name in ("retention.ms", "retention.bytes", "segment.bytes")
    } == {
        "retention.ms": ("5", 1),
        "retention.bytes": ("77", 4),
        "segment.bytes": ("1073741824", 5),
    }


def test_defaults_are_the_clusters() -> None:
    under_test = three_brokers(num_partitions="4")
    topic = CreatableTopic(name="a", num_partitions=-1, replication_factor=-1)
    (result,) = results(under_test.handle(CreateTopicsRequest(topics=(topic,))))
    assert (result.num_partitions, result.replication_factor) == (4, 1)


def test_validate_only_answers_the_same_and_changes_nothing() -> None:
    under_test = three_brokers()
    request = CreateTopicsRequest(topics=(ONE,), validate_only=True)
    decision = under_test.handle(request)
    assert (decision.records, results(decision)[0].error_code) == ((), 0)
    assert under_test.image.topics == {}


def test_topics_of_one_request_are_granted_one_by_one() -> None:
    under_test = three_brokers()
    under_test.create("old")
    decision = under_test.create("new", "old", "twice", "twice", "a.b", "a_b")
    assert [(r.name, ErrorCode(r.error_code)) for r in results(decision)] == [
        ("new", ErrorCode.NONE),
        ("old", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("a.b", ErrorCode.NONE),
        ("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    assert list(under_test.image.topics) == ["old", "new", "a.b"]


def test_many_small_topics_spread_over_the_brokers() -> None:
    under_test = three_brokers()
    under_test.create("a", "b")
    under_test.create("c", "d", "e", "f")
    assert sorted(under_test.leaders().values()) == [1, 1, 2, 2, 3, 3]


def test_fenced_brokers_get_nothing() -> None:
    under_test = three_brokers()
    under_test.heartbeat(2, has_stopped=True)
    under_test.create("a", partitions=4)
    assert sorted(under_test.leaders().values()) == [1, 1, 3, 3]


def test_without_a_living_broker_no_topic_is_created() -> None:
    code, message = refusal(ControllerUnderTest(), ONE)
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert message == (
        "no broker is alive to take a partition; start brokers, or wait for their return"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "topic name is empty"),
        (".", "topic name cannot be '.'"),
        ("..", "topic name cannot be '..'"),
        ("a" * 250, "topic name is 250 characters long; 249 is the limit"),
        *(
            (
                name,
                f"topic name {name!r} contains a character other than ASCII letters, digits, '.', "
                "'_' and '-'",
            )
            for name in ("a b", "a/b", "ä", "a\n", "٣")
        ),
    ],
)
def test_names_follow_kafkas_rules(name: str, message: str) -> None:
    topic = replace(ONE, name=name)
    assert refusal(three_brokers(), topic) == (ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def test_the_longest_name_is_accepted() -> None:
    under_test = three_brokers()
    under_test.create("a" * 249, "A-z_0.9")
    assert len(under_test.image.topics) == 2


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": 10_001}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 9}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"configs": [("retention.ms", "soon")]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [("retention.ms", None)]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [("retention.mss", "1")]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [("retention.ms", "1")] * 2}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], code: ErrorCode) -> None:
    configs = tuple(
        CreatableTopicConfig(name=name, value=value) for name, value in changes.pop("configs", ())
    )
    assert refusal(three_brokers(), replace(ONE, configs=configs, **changes))[0] == code


def test_the_refusals_name_limit_and_remedy() -> None:
    under_test = three_brokers()
    assert refusal(under_test, replace(ONE, num_partitions=20_000))[1] == (
        "20000 partitions are too many; a topic has at most 10000"
    )
    assert refusal(under_test, replace(ONE, replication_factor=4))[1] == (
        "replication factor 4 is larger than the number of brokers, 3: each replica needs a broker "
        "of its own"
    )


def test_the_cluster_has_a_limit_too() -> None:
    under_test = three_brokers()
    for number in range(10):
        under_test.controller.handle(
            CreateTopicsRequest(topics=(replace(ONE, name=f"t{number}", num_partitions=10_000),)),
            0,
        )
    assert refusal(under_test, ONE) == (
        ErrorCode.INVALID_PARTITIONS,
        "the cluster has 100000 partitions and takes at most 100000; 1 more are too many",
    )


# -- manual assignments


def assigned(*replicas: tuple[int, tuple[int, ...]], **changes: int) -> CreatableTopic:
    values = {"num_partitions": -1, "replication_factor": -1, **changes}
    return CreatableTopic(
        name="a",
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in replicas
        ),
        **values,  # type: ignore[arg-type]
    )


def test_a_manual_assignment_is_followed() -> None:
    under_test = three_brokers()
    topic = assigned((1, (2,)), (0, (3,)), (2, (2,)))
    decision = under_test.handle(CreateTopicsRequest(topics=(topic,)))
    assert decision.records == (
        TopicCreated(topic="a", topic_id=topic_id(1), partitions=(led_by(3), led_by(2), led_by(2))),
    )


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (assigned((0, (1,)), num_partitions=1), ErrorCode.INVALID_REQUEST),
        (assigned((0, (1,)), replication_factor=1), ErrorCode.INVALID_REQUEST),
        (assigned((0, (1,)), (0, (2,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((1, (1,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, ())), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, (1, 1))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, (9,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, (3,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, (1, 2)), (1, (1,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_wrong_assignment_is_refused(topic: CreatableTopic, code: ErrorCode) -> None:
    under_test = three_brokers()
    under_test.heartbeat(3, has_stopped=True)
    assert refusal(under_test, topic)[0] == code


# -- replication


def replicated(*replicas: int, isr: tuple[int, ...] = ()) -> PartitionImage:
    members = isr or replicas
    return PartitionImage(replicas=replicas, isr=members, last_known=members, leader=members[0])


def created(decision: Decision) -> tuple[PartitionImage, ...]:
    (record, *_) = decision.records
    assert isinstance(record, TopicCreated | PartitionsAdded)
    return record.partitions


def test_replicas_go_round_the_brokers_and_so_do_their_seconds() -> None:
    topic = replace(ONE, num_partitions=6, replication_factor=2)
    decision = three_brokers().handle(CreateTopicsRequest(topics=(topic,)))
    assert results(decision)[0].replication_factor == 2
    assert created(decision) == tuple(
        replicated(*brokers) for brokers in ((1, 2), (2, 3), (3, 1), (1, 3), (2, 1), (3, 2))
    )


def test_the_default_may_be_several_replicas() -> None:
    under_test = three_brokers(default_replication_factor="3")
    topic = CreatableTopic(name="a", num_partitions=1, replication_factor=-1)
    decision = under_test.handle(CreateTopicsRequest(topics=(topic,)))
    assert created(decision) == (replicated(1, 2, 3),)


def test_a_fenced_broker_takes_a_replica_only_when_the_others_are_not_enough() -> None:
    under_test = three_brokers()
    under_test.heartbeat(1, has_stopped=True)
    two = under_test.handle(CreateTopicsRequest(topics=(replace(ONE, replication_factor=2),)))
    assert created(two) == (replicated(2, 3),)
    topic = replace(ONE, name="b", replication_factor=3)
    three = under_test.handle(CreateTopicsRequest(topics=(topic,)))
    assert created(three) == (replicated(3, 2, 1, isr=(3, 2)),)


def test_added_partitions_have_as_many_replicas_as_the_others() -> None:
    under_test = three_brokers()
    under_test.handle(CreateTopicsRequest(topics=(replace(ONE, replication_factor=2),)))
    decision = under_test.handle(CreatePartitionsRequest(topics=(add(3),)))
    assert created(decision) == (replicated(2, 3), replicated(3, 1))
    wrong = under_test.handle(CreatePartitionsRequest(topics=(add(4, (1,)),)))
    assert isinstance(wrong.response, CreatePartitionsResponse)
    assert wrong.response.results[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_an_assignment_of_replicas_is_followed_in_its_order() -> None:
    under_test = three_brokers()
    under_test.heartbeat(3, has_stopped=True)
    topic = assigned((0, (3, 1)), (1, (2, 1)))
    decision = under_test.handle(CreateTopicsRequest(topics=(topic,)))
    assert created(decision) == (replicated(3, 1, isr=(1,)), replicated(2, 1))


def test_replicas_that_fall_together_are_named_in_a_warning() -> None:
    under_test = ControllerUnderTest()
    for broker_id, host in ((1, "host-a"), (2, "host-b"), (3, "host-b")):
        under_test.register(broker_id, executor_host=host)
    apart = under_test.handle(CreateTopicsRequest(topics=(replace(ONE, replication_factor=2),)))
    assert (created(apart), apart.effects) == ((replicated(1, 2),), ())
    topic = replace(ONE, name="b", replication_factor=3)
    together = under_test.handle(CreateTopicsRequest(topics=(topic,)))
    assert together.effects == (
        WarnOperator(
            message="topic 'b': replicas of a partition stand on the same host (host-b); its loss "
            "takes them together"
        ),
    )
    only_asked = CreateTopicsRequest(topics=(replace(topic, name="c"),), validate_only=True)
    assert under_test.handle(only_asked).effects == ()


def test_more_in_sync_replicas_than_there_are_is_granted_and_told() -> None:
    wanted = CreatableTopicConfig(name="min.insync.replicas", value="3")
    topic = replace(ONE, replication_factor=2, configs=(wanted,))
    under_test = ControllerUnderTest()
    for broker_id in (1, 2):
        under_test.register(broker_id, executor_host=f"host-{broker_id}")
    decision = under_test.handle(CreateTopicsRequest(topics=(topic,)))
    assert decision.effects == (
        WarnOperator(
            message="topic 'a': min.insync.replicas=3 is more than its 2 replicas; it counts as 2"
        ),
    )
    assert under_test.image.topic("a") is not None


# -- deleting


def test_topics_are_deleted_by_name_and_by_id_with_their_settings() -> None:
    under_test = three_brokers()
    under_test.create("a", "b", "c")
    wanted = (DeleteTopicState(name="a"), DeleteTopicState(topic_id=topic_id(2)))
    assert under_test.handle(DeleteTopicsRequest(topics=wanted)) == Decision(
        records=(
            TopicDeleted(topic="a", topic_id=topic_id(1)),
            TopicDeleted(topic="b", topic_id=topic_id(2)),
        ),
        response=DeleteTopicsResponse(
            responses=(
                DeletableTopicResult(name="a", topic_id=topic_id(1)),
                DeletableTopicResult(name="b", topic_id=topic_id(2)),
            )
        ),
    )
    assert list(under_test.image.topics) == ["c"]


def test_what_is_not_there_cannot_be_deleted() -> None:
    under_test = three_brokers()
    under_test.create("a")
    wanted = (
        DeleteTopicState(name="x"),
        DeleteTopicState(topic_id=UUID(int=99)),
        DeleteTopicState(),
        DeleteTopicState(name="a", topic_id=topic_id(1)),
        DeleteTopicState(name="a"),
        DeleteTopicState(topic_id=topic_id(1)),
    )
    decision = under_test.handle(DeleteTopicsRequest(topics=wanted))
    assert isinstance(decision.response, DeleteTopicsResponse)
    assert decision.records == ()
    assert [(r.name, r.topic_id, ErrorCode(r.error_code)) for r in decision.response.responses] == [
        ("x", None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, UUID(int=99), ErrorCode.UNKNOWN_TOPIC_ID),
        (None, None, ErrorCode.INVALID_REQUEST),
        ("a", topic_id(1), ErrorCode.INVALID_REQUEST),
        ("a", topic_id(1), ErrorCode.INVALID_REQUEST),
    ]


def test_a_topic_of_the_same_name_is_another_topic() -> None:
    under_test = three_brokers()
    under_test.handle(
        CreateTopicsRequest(
            topics=(replace(ONE, configs=(CreatableTopicConfig(name="segment.ms", value="1"),)),)
        )
    )
    under_test.handle(DeleteTopicsRequest(topics=(DeleteTopicState(name="a"),)))
    under_test.create("a")
    topic = under_test.image.topic("a")
    assert topic is not None
    assert topic.topic_id == topic_id(2)
    assert under_test.image.configs.get((ResourceType.TOPIC, "a")) is None


# -- adding partitions


def add(count: int, *brokers: tuple[int, ...], name: str = "a") -> CreatePartitionsTopic:
    assignments = tuple(CreatePartitionsAssignment(broker_ids=ids) for ids in brokers)
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments or None)


def test_partitions_are_added_where_there_are_fewest() -> None:
    under_test = three_brokers()
    under_test.create("a", partitions=2)
    decision = under_test.handle(CreatePartitionsRequest(topics=(add(4),)))
    assert decision == Decision(
        records=(PartitionsAdded(topic="a", partitions=(led_by(3), led_by(1))),),
        response=CreatePartitionsResponse(results=(CreatePartitionsTopicResult(name="a"),)),
    )
    assert under_test.leaders() == {"a-0": 1, "a-1": 2, "a-2": 3, "a-3": 1}


def test_partitions_may_be_assigned_or_only_be_checked() -> None:
    under_test = three_brokers()
    under_test.create("a")
    request = CreatePartitionsRequest(topics=(add(3, (2,), (2,)),), validate_only=True)
    assert under_test.handle(request).records == ()
    under_test.handle(replace(request, validate_only=False))
    assert under_test.leaders() == {"a-0": 1, "a-1": 2, "a-2": 2}


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (add(1), ErrorCode.INVALID_PARTITIONS),
        (add(2), ErrorCode.INVALID_PARTITIONS),
        (add(10_001), ErrorCode.INVALID_PARTITIONS),
        (add(3, name="x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (add(3, (1,), (2,)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (add(3, (9,)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_that_cannot_be_added(wanted: CreatePartitionsTopic, code: ErrorCode) -> None:
    under_test = three_brokers()
    under_test.create("a", partitions=2)
    decision = under_test.handle(CreatePartitionsRequest(topics=(wanted,)))
    assert isinstance(decision.response, CreatePartitionsResponse)
    assert decision.records == ()
    assert decision.response.results[0].error_code == code


def test_a_topic_that_is_named_twice_is_refused() -> None:
    under_test = three_brokers()
    under_test.create("a")
    decision = under_test.handle(CreatePartitionsRequest(topics=(add(2), add(3))))
    assert isinstance(decision.response, CreatePartitionsResponse)
    codes = [result.error_code for result in decision.response.results]
    assert (decision.records, codes) == ((), [ErrorCode.INVALID_REQUEST])


def test_topics_stay_where_their_deletion_is_disabled() -> None:
    under_test = ControllerUnderTest(delete_topic_enable="false")
    under_test.register(1)
    under_test.create("a")
    decision = under_test.handle(DeleteTopicsRequest(topics=(DeleteTopicState(name="a"),)))
    assert isinstance(decision.response, DeleteTopicsResponse)
    codes = [response.error_code for response in decision.response.responses]
    assert (decision.records, codes) == ((), [ErrorCode.TOPIC_DELETION_DISABLED])
