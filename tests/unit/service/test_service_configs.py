"""DescribeConfigs: the source of each setting."""

from sparklog.config import BROKER_SETTING_BY_NAME, TOPIC_SETTINGS
from sparklog.errors import ErrorCode
from sparklog.metadata import ClusterImage, ConfigChanged
from sparklog.service import describe_configs
from sparklog.types import ResourceType
from sparklog.wire.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from tests.unit.service.small_node import ask_once, image

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


def configured() -> ClusterImage:
    cluster = image()
    for kind, name, key, value in (
        (TOPIC, "flights", "retention.ms", "1000"),
        (BROKER, "", "producer.id.expiration.ms", "77"),
        (BROKER, "1", "log.retention.ms", "5000"),
    ):
        cluster.replay(
            ConfigChanged(resource_type=int(kind), resource_name=name, name=key, value=value)
        )
    return cluster


def describe(
    kind: int,
    name: str,
    keys: tuple[str, ...] | None = None,
    *,
    settings: dict[str, str] | None = None,
    **options: bool,
) -> DescribeConfigsResult:
    cluster = configured()
    handler = describe_configs.handler(
        lambda: cluster,
        node_id=1,
        settings=settings or {"num.partitions": "6", "log.segment.bytes": "4096"},
    )
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=(resource,), **options)
    response = ask_once([handler], request, 4)
    assert isinstance(response, DescribeConfigsResponse)
    return response.results[0]


def test_a_topic_s_override_is_above_the_broker_s_values_and_the_default() -> None:
    found = describe(TOPIC, "flights", ("retention.ms",), include_synonyms=True)
    assert found.configs == (
        DescribeConfigsResourceResult(
            name="retention.ms",
            value="1000",
            config_source=1,
            config_type=5,
            synonyms=(
                DescribeConfigsSynonym(name="retention.ms", value="1000", source=1),
                DescribeConfigsSynonym(name="log.retention.ms", value="5000", source=2),
                DescribeConfigsSynonym(name="log.retention.hours", value="168", source=5),
            ),
        ),
    )


def test_a_topic_without_overrides_shows_what_the_broker_was_started_with() -> None:
    found = describe(TOPIC, "half", ("segment.bytes", "cleanup.policy"))
    assert [(c.name, c.value, c.config_source, c.config_type) for c in found.configs] == [
        ("cleanup.policy", "delete", 5, 7),
        ("segment.bytes", "4096", 4, 3),
    ]


def test_a_default_told_in_hours_is_shown_in_milliseconds() -> None:
    cluster = image()
    for settings, value, synonyms in (
        ({}, "604800000", []),
        (
            {"log.roll.hours": "2"},
            "7200000",
            [("log.roll.hours", "2", 4), ("log.roll.hours", "168", 5)],
        ),
        (
            {"log.roll.hours": "2", "log.roll.ms": "7"},
            "7",
            [("log.roll.ms", "7", 4), ("log.roll.hours", "2", 4), ("log.roll.hours", "168", 5)],
        ),
    ):
        handler = describe_configs.handler(lambda: cluster, node_id=1, settings=settings)
        resource = DescribeConfigsResource(
            resource_type=TOPIC, resource_name="half", configuration_keys=("segment.ms",)
        )
        request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True)
        response = ask_once([handler], request, 4)
        assert isinstance(response, DescribeConfigsResponse)
        (found,) = response.results[0].configs
        assert found.value == value
        assert [(s.name, s.value, s.source) for s in found.synonyms] == synonyms


def test_all_settings_are_listed_when_none_is_named_with_documentation_on_request() -> None:
    found = describe(TOPIC, "flights", include_documentation=True)
    assert [(c.name, c.documentation) for c in found.configs] == [
        (setting.name, setting.doc) for setting in TOPIC_SETTINGS
    ]
    plain = describe(TOPIC, "flights", ())
    assert len(plain.configs) == len(TOPIC_SETTINGS)
    assert {c.documentation for c in plain.configs} == {None}


def test_a_broker_answers_for_itself() -> None:
    found = describe(BROKER, "1")
    assert [c.name for c in found.configs] == sorted(BROKER_SETTING_BY_NAME)
    by_name = {c.name: (c.value, c.config_source, c.read_only) for c in found.configs}
    assert by_name["num.partitions"] == ("6", 4, True)
    assert by_name["log.retention.ms"] == ("5000", 2, False)
    assert by_name["log.retention.hours"] == ("168", 5, True)
    assert by_name["log.roll.ms"] == (None, 5, False)
    assert by_name["producer.id.expiration.ms"] == ("77", 3, False)
    assert by_name["auto.create.topics.enable"] == ("true", 5, True)


def test_an_empty_broker_name_means_what_all_brokers_were_given() -> None:
    found = describe(BROKER, "")
    assert [(c.name, c.value, c.config_source) for c in found.configs] == [
        ("producer.id.expiration.ms", "77", 3)
    ]


def test_resources_that_cannot_be_described_are_refused_one_by_one() -> None:
    refused = [
        describe(TOPIC, "missing"),
        describe(TOPIC, "bad name"),
        describe(BROKER, "2"),
        describe(ResourceType.UNKNOWN, "x"),
    ]
    assert [result.error_code for result in refused] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert all(result.error_message for result in refused)


def test_a_default_is_described_that_is_allowed_with_another_one_only() -> None:
    """The default of retention.ms is a week."""
    month = str(30 * 86_400_000)
    settings = {"log.local.retention.ms": month, "log.retention.ms": month}
    found = describe(TOPIC, "flights", ("local.retention.ms",), settings=settings)
    assert [(each.name, each.value) for each in found.configs] == [("local.retention.ms", month)]
