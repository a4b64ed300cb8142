"""DescribeConfigs and IncrementalAlterConfigs, as Kafka answers them."""

from typing import Any

import pytest

from sparklog.types import ResourceType
from sparklog.wire.protocol.messages import alter_configs
from sparklog.wire.protocol.messages.alter_configs import AlterConfigsRequest
from sparklog.wire.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from sparklog.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.peers.both import Both
from tests.peers.deviations import (
    BOUNDED_REQUESTS,
    BROKER_REFUSALS,
    CHANGED_WHILE_RUNNING,
    FEWER_SETTINGS,
    LISTS_ARE_NOT_EMPTY,
    MIN_INSYNC_DEFAULT,
    OWN_DEFAULTS,
    OWN_SETTINGS,
    UNKNOWN_SETTING,
    Deviation,
)

DESCRIBE_VERSIONS = range(
    DescribeConfigsRequest.MIN_VERSION, DescribeConfigsRequest.MAX_VERSION + 1
)
ALTER_VERSIONS = range(AlterConfigsRequest.MIN_VERSION, AlterConfigsRequest.MAX_VERSION + 1)
TOPIC, BROKER = int(ResourceType.TOPIC), int(ResourceType.BROKER)
SET, DELETE, APPEND, SUBTRACT = range(4)
#: Said in our own words.
DOCUMENTATION = (r".*\.documentation",)


def describing(kind: int, name: str, keys: Any = None, **more: Any) -> DescribeConfigsRequest:
    wanted = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    return DescribeConfigsRequest(resources=(wanted,), **more)


def altering(
    kind: int, name: str, *changes: tuple[str, int, str | None], **more: Any
) -> IncrementalAlterConfigsRequest:
    configs = tuple(
        AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    )
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=(resource,), **more)


@pytest.fixture(scope="module")
def configured(both: Both) -> str:
    return both.create("configured", retention_ms="86400000", segment_bytes="1048576")


def test_a_topic_s_settings(each_node: Both, configured: str) -> None:
    request = describing(TOPIC, configured)
    each_node.same(request, DESCRIBE_VERSIONS, FEWER_SETTINGS, OWN_SETTINGS, MIN_INSYNC_DEFAULT)


def test_synonyms(each_node: Both, configured: str) -> None:
    request = describing(TOPIC, configured, include_synonyms=True)
    each_node.same(request, DESCRIBE_VERSIONS, FEWER_SETTINGS, OWN_SETTINGS, MIN_INSYNC_DEFAULT)


def test_documentation(each_node: Both, configured: str) -> None:
    request = describing(TOPIC, configured, include_documentation=True)
    each_node.same(
        request, (3, 4), FEWER_SETTINGS, OWN_SETTINGS, MIN_INSYNC_DEFAULT, where=DOCUMENTATION
    )


def test_some_settings(each_node: Both, configured: str) -> None:
    keys = ("retention.ms", "max.message.bytes", "no.such.thing")
    each_node.same(describing(TOPIC, configured, keys), DESCRIBE_VERSIONS)
    nothing = describing(TOPIC, configured, ())
    each_node.same(nothing, DESCRIBE_VERSIONS, FEWER_SETTINGS, OWN_SETTINGS, MIN_INSYNC_DEFAULT)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (TOPIC, "not-there"),
        (TOPIC, ""),
        (TOPIC, "bad name"),
        (BROKER, "99"),
        (BROKER, "one"),
        (0, "x"),
        (77, "x"),
    ],
)
def test_settings_of_what_is_not_there(each_node: Both, kind: int, name: str) -> None:
    each_node.same(describing(kind, name), (1, 4))


MEANT: list[tuple[list[tuple[str, int, str | None]], Deviation]] = [
    ([("no.such.thing", DELETE, None)], UNKNOWN_SETTING),
    ([("cleanup.policy", SUBTRACT, "delete")], LISTS_ARE_NOT_EMPTY),
]


@pytest.mark.parametrize(
    "changes",
    [
        [("retention.ms", SET, "60000")],
        [("retention.ms", SET, "-1"), ("segment.bytes", SET, "2097152")],
        [("retention.ms", DELETE, None)],
        [("retention.ms", DELETE, "60000")],
        [("flush.ms", DELETE, None)],
        [("cleanup.policy", APPEND, "delete")],
        [("cleanup.policy", SUBTRACT, "compact")],
        [("cleanup.policy", SUBTRACT, "delete")],
        [("cleanup.policy", SET, "")],
        [("cleanup.policy", SET, "sometimes")],
        [("retention.ms", APPEND, "1")],
        [("retention.ms", SUBTRACT, "1")],
        [("retention.ms", SET, None)],
        [("retention.ms", SET, "")],
        [("retention.ms", SET, "soon")],
        [("retention.ms", SET, "-2")],
        [("segment.bytes", SET, "99999999999")],
        [("message.timestamp.type", SET, "never")],
        [("unclean.leader.election.enable", SET, "maybe")],
        [("unclean.leader.election.enable", SET, "TRUE")],
        [("no.such.thing", SET, "1")],
        [("no.such.thing", DELETE, None)],
        [("retention.ms", SET, "1000"), ("retention.ms", SET, "2000")],
        [("retention.ms", SET, "1000"), ("no.such.thing", SET, "2000")],
        [],
    ],
    ids=str,
)
def test_changes(each_node: Both, changes: list[tuple[str, int, str | None]]) -> None:
    both = each_node
    if "changed" not in both.ours.ids:
        both.create("changed", retention_ms="1000000")
    meant = [deviation for what, deviation in MEANT if what == changes]
    both.same(altering(TOPIC, "changed", *changes, validate_only=True), (0, 1), *meant)
    both.same(altering(TOPIC, "changed", *changes), 1, *meant)
    both.await_same(describing(TOPIC, "changed", ("retention.ms", "segment.bytes")), 4)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(TOPIC, "not-there"), (TOPIC, ""), (TOPIC, "b d"), (BROKER, "99"), (BROKER, "x"), (77, "x")],
)
def test_changes_of_what_is_not_there(each_node: Both, kind: int, name: str) -> None:
    each_node.same(altering(kind, name, ("retention.ms", SET, "1000")), (0, 1))


def test_the_same_resource_twice(each_node: Both, configured: str) -> None:
    [once] = altering(TOPIC, configured, ("flush.ms", SET, "1000")).resources
    each_node.same(IncrementalAlterConfigsRequest(resources=(once, once)), 1)


# -- brokers


def test_a_broker_s_settings(both: Both) -> None:
    request = describing(BROKER, "1", include_synonyms=True)
    ours = (OWN_SETTINGS, OWN_DEFAULTS, BOUNDED_REQUESTS, CHANGED_WHILE_RUNNING)
    both.same(request, (1, 4), FEWER_SETTINGS, MIN_INSYNC_DEFAULT, *ours)


def test_what_all_brokers_were_given(each_node: Both) -> None:
    each_node.same(describing(BROKER, ""), (1, 4), MIN_INSYNC_DEFAULT)


CHANGES = [("producer.id.expiration.ms", "1000000"), ("log.retention.ms", "1000000")]


@pytest.mark.parametrize(("name", "value"), CHANGES)
def test_changes_of_all_brokers(each_node: Both, name: str, value: str) -> None:
    both, shown = each_node, describing(BROKER, "", (name,))
    both.same(altering(BROKER, "", (name, SET, value)), 1)
    both.await_same(shown, 4)
    both.at("broker").await_same(describing(BROKER, "1", (name,), include_synonyms=True), 4)
    both.same(altering(BROKER, "", (name, DELETE, None)), 1)
    both.await_same(shown, 4)


@pytest.mark.parametrize(("name", "value"), CHANGES)
def test_changes_of_one_broker(each_node: Both, name: str, value: str) -> None:
    both, shown = each_node, describing(BROKER, "1", (name,), include_synonyms=True)
    both.same(altering(BROKER, "1", (name, SET, value)), 1)
    both.at("broker").await_same(shown, 4)
    both.same(altering(BROKER, "1", (name, DELETE, None)), 1)
    both.at("broker").await_same(shown, 4)


@pytest.mark.parametrize(
    ("change", "meant"),
    [
        (("node.id", SET, "7"), BROKER_REFUSALS),
        (("num.partitions", SET, "3"), BROKER_REFUSALS),
        (("log.retention.ms", SET, "soon"), BROKER_REFUSALS),
        (("no.such.thing", SET, "1"), UNKNOWN_SETTING),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "refused",
)
def test_changes_of_a_broker_that_are_refused(
    each_node: Both, change: tuple[str, int, str], meant: Deviation
) -> None:
    each_node.same(altering(BROKER, "1", change), 1, meant)


# -- AlterConfigs, which replaces all settings


def replacing(kind: int, name: str, *configs: tuple[str, str | None]) -> AlterConfigsRequest:
    resource = alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(alter_configs.AlterableConfig(name=k, value=v) for k, v in configs),
    )
    return AlterConfigsRequest(resources=(resource,))


@pytest.mark.parametrize(
    "configs",
    [
        [("retention.ms", "70000"), ("flush.ms", "9")],
        [("retention.ms", "80000")],
        [("retention.ms", "never")],
        [("retention.ms", None)],
        [("no.such.thing", "1")],
        [("retention.ms", "1"), ("retention.ms", "2")],
        [],
    ],
    ids=str,
)
def test_replaced_settings(each_node: Both, configs: list[tuple[str, str | None]]) -> None:
    both = each_node
    if "replaced" not in both.ours.ids:
        both.create("replaced", flush_ms="1000000")
    both.same(replacing(TOPIC, "replaced", *configs), ALTER_VERSIONS)
    both.await_same(describing(TOPIC, "replaced", ("retention.ms", "flush.ms")), 4)


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "not-there"), (TOPIC, ""), (77, "x")])
def test_replaced_settings_of_what_is_not_there(each_node: Both, kind: int, name: str) -> None:
    each_node.same(replacing(kind, name, ("retention.ms", "1000")), ALTER_VERSIONS)
