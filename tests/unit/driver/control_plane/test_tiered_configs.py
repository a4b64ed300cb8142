"""Settings of tiered topics, and the defaults of brokers for them."""

import pytest

from sparklog.driver.control_plane.controller import is_tiered
from sparklog.driver.control_plane.controller.configs import ConfigOperation
from sparklog.errors import ErrorCode
from sparklog.types import ResourceType
from sparklog.wire.protocol.messages import alter_configs
from sparklog.wire.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest
from tests.unit.driver.control_plane.test_controller_configs import (
    alter,
    altered,
    refused,
    resource,
    with_topic,
)

SET, DELETE, APPEND, _ = ConfigOperation
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
REMOTE, LEAVES = "remote.storage.enable", "remote.log.delete.on.disable"


def tiered(*settings: str) -> ControllerUnderTest:
    under_test = ControllerUnderTest(remote_dir="memory://bucket/log")
    under_test.register(1)
    under_test.create("a")
    values = [(SET, name, "true") for name in {REMOTE, *settings}]
    under_test.handle(alter(resource(TOPIC, "a", *values)))
    if REMOTE not in settings:
        under_test.handle(alter(resource(TOPIC, "a", (DELETE, REMOTE, None))))
    assert set(under_test.image.topic_overrides("a")) == set(settings)
    return under_test


@pytest.mark.parametrize(
    ("settings", "change", "problem"),
    [
        ((REMOTE,), (SET, REMOTE, "false"), "without deleting remote data"),
        ((REMOTE,), (DELETE, REMOTE, None), "without deleting remote data"),
        ((LEAVES,), (SET, LEAVES, "false"), "Set remote.storage.enable=true"),
        ((LEAVES,), (DELETE, LEAVES, None), "Set remote.storage.enable=true"),
        ((LEAVES,), (SET, "cleanup.policy", "compact"), "does not go with cleanup.policy"),
    ],
)
def test_a_tiered_topic_is_not_switched_off_without_the_deletion_of_its_remote_part(
    settings: tuple[str, ...], change: tuple[ConfigOperation, str, str | None], problem: str
) -> None:
    code, message = refused(tiered(*settings), resource(TOPIC, "a", change))
    assert code == ErrorCode.INVALID_CONFIG
    assert problem in str(message)


@pytest.mark.parametrize("remote", [{}, {"remote_dir": "memory://bucket/log"}])
def test_a_topic_that_was_never_tiered_does_not_count_as_tiered(remote: dict[str, str]) -> None:
    under_test = ControllerUnderTest(**remote)
    under_test.register(1)
    under_test.create("a")
    problem = (
        ErrorCode.INVALID_CONFIG,
        "remote.log.delete.on.disable=true is for topics that are or were tiered; leave it out, or "
        "set remote.storage.enable=true with it",
    )
    off = (SET, REMOTE, "false")
    for changes in ([(SET, LEAVES, "true")], [off, (SET, LEAVES, "true")]):
        assert refused(under_test, resource(TOPIC, "a", *changes)) == problem
    configs = (CreatableTopicConfig(name=LEAVES, value="true"),)
    topic = CreatableTopic(name="b", num_partitions=1, replication_factor=1, configs=configs)
    response = under_test.handle(CreateTopicsRequest(topics=(topic,))).response
    assert isinstance(response, CreateTopicsResponse)
    (result,) = response.topics
    assert (result.error_code, result.error_message) == problem
    under_test.handle(alter(resource(TOPIC, "a", off, (SET, LEAVES, "false"))))
    assert under_test.image.topic_overrides("a") == {REMOTE: "false", LEAVES: "false"}
    assert not is_tiered(under_test.image, "a")


def test_all_settings_of_a_tiered_topic_are_not_replaced_by_others() -> None:
    under_test = tiered(REMOTE, LEAVES)
    request = AlterConfigsRequest(
        resources=(alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="a"),)
    )
    response = under_test.handle(request).response
    assert isinstance(response, AlterConfigsResponse)
    assert [each.error_code for each in response.responses] == [ErrorCode.INVALID_CONFIG]


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ((REMOTE,), [(SET, REMOTE, "false"), (SET, LEAVES, "true")]),
        ((REMOTE, LEAVES), [(SET, REMOTE, "false")]),
        ((REMOTE, LEAVES), [(DELETE, REMOTE, None)]),
        ((REMOTE, LEAVES), [(DELETE, LEAVES, None)]),
        ((LEAVES,), [(SET, REMOTE, "true")]),
        ((LEAVES,), [(SET, REMOTE, "true"), (DELETE, LEAVES, None)]),
    ],
)
def test_a_tiered_topic_leaves_the_remote_dir_and_comes_back(
    settings: tuple[str, ...], changes: list[tuple[ConfigOperation, str, str | None]]
) -> None:
    under_test = tiered(*settings)
    decision = under_test.handle(alter(resource(TOPIC, "a", *changes)))
    assert decision.records == tuple(altered(TOPIC, "a", name, value) for _, name, value in changes)
    assert is_tiered(under_test.image, "a")


POLICY = "log.cleanup.policy"


@pytest.mark.parametrize("settings", [(REMOTE,), (LEAVES, REMOTE)])
@pytest.mark.parametrize("broker", ["", "1"])
def test_a_default_that_would_compact_tiered_topics_is_refused(
    broker: str, settings: tuple[str, ...]
) -> None:
    under_test = tiered(*settings)
    under_test.create("plain")
    wanted = resource(BROKER, broker, (APPEND, POLICY, "compact"))
    assert refused(under_test, resource(BROKER, broker, (SET, POLICY, "compact,delete"))) == (
        ErrorCode.INVALID_CONFIG,
        "log.cleanup.policy=compact does not go with tiered topics that have no cleanup.policy of "
        "their own (a): compacted topics stay on the brokers' disks; set cleanup.policy=delete for "
        "each of these topics first",
    )
    assert refused(under_test, wanted)[0] == ErrorCode.INVALID_CONFIG
    under_test.handle(alter(resource(TOPIC, "a", (SET, "cleanup.policy", "delete"))))
    assert under_test.handle(alter(wanted)).records == (altered(BROKER, broker, POLICY, "compact"),)


def test_a_default_that_hides_a_compacting_one_stays_while_tiered_topics_inherit_it() -> None:
    under_test = ControllerUnderTest(remote_dir="memory://bucket/log", log_cleanup_policy="compact")
    under_test.register(1)
    under_test.handle(alter(resource(BROKER, "", (SET, POLICY, "delete"))))
    under_test.create("a")
    under_test.handle(alter(resource(TOPIC, "a", (SET, REMOTE, "true"))))
    wanted = resource(BROKER, "", (DELETE, POLICY, None))
    assert "does not go with tiered topics" in str(refused(under_test, wanted)[1])
    other = resource(BROKER, "", (SET, "max.connections", "7"))
    assert under_test.handle(alter(other)).records == (altered(BROKER, "", "max.connections", "7"),)


def test_the_settings_of_a_tiered_topic_change_without_the_remote_dir() -> None:
    """Its cluster was started without it."""
    under_test = ControllerUnderTest(tiered(REMOTE).image)
    retention = resource(TOPIC, "a", (SET, "retention.ms", "7"))
    assert under_test.handle(alter(retention)).records == (
        altered(TOPIC, "a", "retention.ms", "7"),
    )


def test_a_topic_that_leaves_is_switched_on_again_without_the_remote_dir() -> None:
    """Otherwise the next start with the remote_dir would delete what is there."""
    under_test = ControllerUnderTest(tiered(LEAVES).image)
    again = resource(TOPIC, "a", (SET, REMOTE, "true"))
    assert under_test.handle(alter(again)).records == (altered(TOPIC, "a", REMOTE, "true"),)
    under_test.create("plain")
    code, message = refused(under_test, resource(TOPIC, "plain", (SET, REMOTE, "true")))
    assert code == ErrorCode.INVALID_CONFIG
    assert "start the cluster with a remote_dir" in str(message)


LOCAL, RETENTION = "log.local.retention.ms", "log.retention.ms"


@pytest.mark.parametrize("broker", ["", "1"])
def test_defaults_of_topics_that_contradict_each_other_are_refused(broker: str) -> None:
    under_test = with_topic()
    assert refused(under_test, resource(BROKER, broker, (SET, LOCAL, "99999999999"))) == (
        ErrorCode.INVALID_CONFIG,
        "log.local.retention.ms=99999999999 is more than log.retention.ms=604800000; expected at "
        "most that, or -2 for the same",
    )
    both = resource(BROKER, broker, (SET, LOCAL, "9000000000"), (SET, RETENTION, "9000000000"))
    assert len(under_test.handle(alter(both)).records) == 2
    for change in ((SET, RETENTION, "8999999999"), (DELETE, RETENTION, None)):
        code, message = refused(under_test, resource(BROKER, broker, change))
        assert code == ErrorCode.INVALID_CONFIG
        assert "log.local.retention.ms=9000000000 is more than" in str(message)


def test_a_default_must_suit_each_broker_that_has_another_one() -> None:
    under_test = with_topic()
    under_test.handle(alter(resource(BROKER, "1", (SET, RETENTION, "5"))))
    assert "log.local.retention.ms=6 is more than log.retention.ms=5" in str(
        refused(under_test, resource(BROKER, "", (SET, LOCAL, "6")))[1]
    )


def test_what_a_tiered_topic_has_from_brokers_is_named_and_hinders_no_other_change() -> None:
    under_test = tiered(REMOTE)
    under_test.handle(alter(resource(TOPIC, "a", (SET, "retention.ms", "7"))))
    under_test.handle(alter(resource(BROKER, "", (SET, LOCAL, "8"))))
    problem = (
        "the brokers' default log.local.retention.ms=8 is more than retention.ms={}; expected at "
        "most that, or -2 for the same"
    )
    topic = CreatableTopic(
        name="b",
        num_partitions=1,
        replication_factor=1,
        configs=(
            CreatableTopicConfig(name=REMOTE, value="true"),
            CreatableTopicConfig(name="retention.ms", value="7"),
        ),
    )
    response = under_test.handle(CreateTopicsRequest(topics=(topic,))).response
    assert isinstance(response, CreateTopicsResponse)
    assert response.topics[0].error_message == problem.format(7)
    assert refused(under_test, resource(TOPIC, "a", (SET, "retention.ms", "6"))) == (
        ErrorCode.INVALID_CONFIG,
        problem.format(6),
    )
    other = resource(TOPIC, "a", (SET, "segment.ms", "5"))
    assert under_test.handle(alter(other)).records == (altered(TOPIC, "a", "segment.ms", "5"),)
    remedy = resource(TOPIC, "a", (SET, "local.retention.ms", "6"))
    assert len(under_test.handle(alter(remedy)).records) == 1


def test_a_tiered_topic_on_brokers_that_compact_by_default_names_them() -> None:
    under_test = ControllerUnderTest(remote_dir="memory://bucket/log", log_cleanup_policy="compact")
    under_test.register(1)
    under_test.create("a")
    assert refused(under_test, resource(TOPIC, "a", (SET, REMOTE, "true"))) == (
        ErrorCode.INVALID_CONFIG,
        "remote.storage.enable=true does not go with the brokers' default log.cleanup.policy="
        "compact: compacted topics stay on the brokers' disks; set cleanup.policy=delete",
    )
    both = resource(TOPIC, "a", (SET, REMOTE, "true"), (SET, "cleanup.policy", "delete"))
    assert len(under_test.handle(alter(both)).records) == 2
    assert "log.cleanup.policy=compact" in str(
        refused(under_test, resource(TOPIC, "a", (DELETE, "cleanup.policy", None)))[1]
    )
