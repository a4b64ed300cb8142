"""DescribeConfigs and IncrementalAlterConfigs, as Kafka answers them."""

from typing import Any

import pytest
from both import Both
from deviations import (
    FEWER_SETTINGS,
    KAFKA_BREAKS,
    LISTS_ARE_NOT_EMPTY,
    MIN_INSYNC_DEFAULT,
    UNKNOWN_SETTING,
    Deviation,
)

from sparklog.types import ResourceType
from sparklog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from sparklog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

DESCRIBE_VERSIONS = range(
    DescribeConfigsRequest.MIN_VERSION, DescribeConfigsRequest.MAX_VERSION + 1
)
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
    each_node.same(request, DESCRIBE_VERSIONS, FEWER_SETTINGS, MIN_INSYNC_DEFAULT)


def test_synonyms(each_node: Both, configured: str) -> None:
    request = describing(TOPIC, configured, include_synonyms=True)
    each_node.same(request, DESCRIBE_VERSIONS, FEWER_SETTINGS, MIN_INSYNC_DEFAULT)


def test_documentation(each_node: Both, configured: str) -> None:
    request = describing(TOPIC, configured, include_documentation=True)
    each_node.same(request, (3, 4), FEWER_SETTINGS, MIN_INSYNC_DEFAULT, where=DOCUMENTATION)


def test_some_settings(each_node: Both, configured: str) -> None:
    keys = ("retention.ms", "max.message.bytes", "no.such.thing")
    each_node.same(describing(TOPIC, configured, keys), DESCRIBE_VERSIONS)
    nothing = describing(TOPIC, configured, ())
    each_node.same(nothing, DESCRIBE_VERSIONS, FEWER_SETTINGS, MIN_INSYNC_DEFAULT)


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
    ([("retention.ms", 9, "1000")], KAFKA_BREAKS),
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
        [("retention.ms", 9, "1000")],
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
