"""IncrementalAlterConfigs, and producer ids."""

import pytest

from sparklog.driver.control_plane.controller import Decision
from sparklog.driver.control_plane.controller.configs import ConfigOperation
from sparklog.errors import ErrorCode
from sparklog.metadata import ConfigChanged, ProducerIdsAllocated
from sparklog.types import COORDINATOR_PRODUCER_ID_BASE, ConfigSource, ResourceType
from sparklog.wire.protocol.messages import alter_configs
from sparklog.wire.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from sparklog.wire.protocol.messages.create_topics import CreateTopicsResponse
from sparklog.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog.wire.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from sparklog.wire.protocol.private import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


def with_topic() -> ControllerUnderTest:
    under_test = ControllerUnderTest()
    under_test.register(1)
    under_test.create("a")
    return under_test


def resource(
    kind: int, name: str, *changes: tuple[ConfigOperation, str, str | None]
) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            AlterableConfig(name=key, config_operation=operation, value=value)
            for operation, key, value in changes
        ),
    )


def altered(kind: int, name: str, key: str, value: str | None) -> ConfigChanged:
    return ConfigChanged(resource_type=kind, resource_name=name, name=key, value=value)


def granted(kind: int, name: str) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(resource_type=kind, resource_name=name)


def alter(*resources: AlterConfigsResource, only: bool = False) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=only)


def refused(
    under_test: ControllerUnderTest, wanted: AlterConfigsResource
) -> tuple[ErrorCode, str | None]:
    decision = under_test.handle(alter(wanted))
    assert decision.records == ()
    assert isinstance(decision.response, IncrementalAlterConfigsResponse)
    (response,) = decision.response.responses
    return ErrorCode(response.error_code), response.error_message


def test_settings_are_set_and_deleted() -> None:
    under_test = with_topic()
    topic = resource(TOPIC, "a", (SET, "retention.ms", "5"), (DELETE, "segment.ms", None))
    brokers = resource(BROKER, "", (SET, "producer.id.expiration.ms", "6"))
    broker = resource(BROKER, "1", (SET, "producer.id.expiration.ms", "7"))
    assert under_test.handle(alter(topic, brokers, broker)) == Decision(
        records=(
            altered(TOPIC, "a", "retention.ms", "5"),
            altered(TOPIC, "a", "segment.ms", None),
            altered(BROKER, "", "producer.id.expiration.ms", "6"),
            altered(BROKER, "1", "producer.id.expiration.ms", "7"),
        ),
        response=IncrementalAlterConfigsResponse(
            responses=(granted(TOPIC, "a"), granted(BROKER, ""), granted(BROKER, "1"))
        ),
    )
    under_test.handle(alter(resource(TOPIC, "a", (DELETE, "retention.ms", None))))
    assert under_test.image.topic_overrides("a") == {}
    assert under_test.image.broker_overrides(1) == {"producer.id.expiration.ms": "7"}


def test_validate_only_changes_nothing() -> None:
    under_test = with_topic()
    wanted = resource(TOPIC, "a", (SET, "retention.ms", "5"))
    assert under_test.handle(alter(wanted, only=True)) == Decision(
        response=IncrementalAlterConfigsResponse(responses=(granted(TOPIC, "a"),))
    )


def test_a_resource_is_changed_as_a_whole_or_not_at_all() -> None:
    under_test = with_topic()
    under_test.create("b")
    half = resource(TOPIC, "a", (SET, "retention.ms", "5"), (SET, "segment.ms", "never"))
    whole = resource(TOPIC, "b", (SET, "retention.ms", "5"))
    assert under_test.handle(alter(half, whole)).records == (
        altered(TOPIC, "b", "retention.ms", "5"),
    )


def test_lists_are_appended_to_starting_from_the_default() -> None:
    under_test = with_topic()
    wanted = resource(TOPIC, "a", (APPEND, "cleanup.policy", "delete"))
    assert under_test.handle(alter(wanted)).records == (
        altered(TOPIC, "a", "cleanup.policy", "delete"),
    )
    code, message = refused(
        under_test, resource(TOPIC, "a", (SUBTRACT, "cleanup.policy", "delete"))
    )
    assert (code, message) == (
        ErrorCode.INVALID_CONFIG,
        "cleanup.policy would be empty; delete the setting instead",
    )
    unknown_item = resource(TOPIC, "a", (APPEND, "cleanup.policy", "shred"))
    assert refused(under_test, unknown_item)[0] == ErrorCode.INVALID_CONFIG


def test_lists_of_throttled_replicas_may_become_empty_but_not_senseless() -> None:
    under_test = with_topic()
    name = "leader.replication.throttled.replicas"
    for operation, value, left in (
        (APPEND, "0:1, 2:13", "0:1,2:13"),
        (SUBTRACT, "0:1", "2:13"),
        (SUBTRACT, "2:13", ""),
        (SET, "*", "*"),
    ):
        decision = under_test.handle(alter(resource(TOPIC, "a", (operation, name, value))))
        assert decision.records == (altered(TOPIC, "a", name, left),)
    for wrong in ("all", "1", "1:", ":1", "1:2:3", "-1:2", "*,0:1"):
        assert refused(under_test, resource(TOPIC, "a", (SET, name, wrong))) == (
            ErrorCode.INVALID_CONFIG,
            f"{name}={wrong!r}: expected *, or a list of partition:broker",
        )


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (resource(TOPIC, "x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (resource(TOPIC, ""), ErrorCode.INVALID_REQUEST),
        (resource(TOPIC, "x y"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (resource(BROKER, "9"), ErrorCode.INVALID_REQUEST),
        (resource(BROKER, "one"), ErrorCode.INVALID_REQUEST),
        (resource(BROKER, "²"), ErrorCode.INVALID_REQUEST),
        (resource(8, "a"), ErrorCode.INVALID_REQUEST),
        (resource(TOPIC, "a", (SET, "retention.mss", "1")), ErrorCode.INVALID_CONFIG),
        (resource(TOPIC, "a", (SET, "retention.ms", "x")), ErrorCode.INVALID_CONFIG),
        (resource(TOPIC, "a", (SET, "retention.ms", None)), ErrorCode.INVALID_REQUEST),
        (resource(TOPIC, "a", (APPEND, "retention.ms", "1")), ErrorCode.INVALID_CONFIG),
        (resource(BROKER, "", (SET, "log.retention.hours", "1")), ErrorCode.INVALID_CONFIG),
        (resource(BROKER, "", (SET, "log.retention.ms", "0")), ErrorCode.INVALID_CONFIG),
        (resource(BROKER, "", (SET, "max.connections.per.ip", "0")), ErrorCode.INVALID_CONFIG),
        (resource(BROKER, "", (SET, "ssl.keystore.location", "/k")), ErrorCode.INVALID_CONFIG),
        (resource(TOPIC, "a", (SET, "remote.storage.enable", "true")), ErrorCode.INVALID_CONFIG),
        (
            resource(
                TOPIC,
                "a",
                (SET, "min.compaction.lag.ms", "2"),
                (SET, "max.compaction.lag.ms", "1"),
            ),
            ErrorCode.INVALID_CONFIG,
        ),
        (
            resource(TOPIC, "a", *[(SET, "retention.ms", "1")] * 2),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_what_cannot_be_set_is_refused(wanted: AlterConfigsResource, code: ErrorCode) -> None:
    assert refused(with_topic(), wanted)[0] == code


def test_the_control_plane_is_a_broker_with_settings_of_its_own() -> None:
    under_test = with_topic()
    name = "max.connections"
    under_test.handle(alter(resource(BROKER, "0", (SET, name, "7"))))
    assert under_test.image.broker_overrides(0) == {name: "7"}
    assert under_test.image.broker_overrides(1) == {}


def test_what_kafka_has_and_cannot_be_set_here_can_be_deleted() -> None:
    """Kafka's tool for reassignments deletes all of its throttles, on every node."""
    under_test = with_topic()
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    assert refused(under_test, resource(BROKER, "1", (SET, rate, "7")))[0] == (
        ErrorCode.INVALID_CONFIG
    )
    for node in ("0", "1", ""):
        assert under_test.handle(alter(resource(BROKER, node, (DELETE, rate, None)))).records == ()
    assert refused(under_test, resource(BROKER, "1", (DELETE, "no.such.thing", None)))[0] == (
        ErrorCode.INVALID_CONFIG
    )


def test_settings_must_fit_together_for_every_broker_that_they_hold_for() -> None:
    under_test = with_topic()
    none, some = "max.connections.per.ip", "max.connections.per.ip.overrides"
    assert under_test.handle(
        alter(resource(BROKER, "1", (SET, none, "0"), (SET, some, "127.0.0.1:5")))
    ).records == (
        altered(BROKER, "1", none, "0"),
        altered(BROKER, "1", some, "127.0.0.1:5"),
    )
    code, message = refused(under_test, resource(BROKER, "1", (DELETE, some, None)))
    assert (code, message) == (
        ErrorCode.INVALID_CONFIG,
        "max.connections.per.ip=0 refuses everybody; give max.connections.per.ip.overrides too, or "
        "a number from 1",
    )
    assert refused(under_test, resource(BROKER, "", (SET, some, "nobody:x")))[0] == code
    assert refused(under_test, resource(BROKER, "", (SET, none, "0")))[0] == code


def test_what_brokers_were_told_at_run_time_decides_for_topics_too() -> None:
    under_test = with_topic()
    under_test.handle(alter(resource(BROKER, "", (SET, "log.retention.ms", "77"))))
    response = under_test.create("b").response
    assert isinstance(response, CreateTopicsResponse)
    by_name = {c.name: (c.value, c.config_source) for c in response.topics[0].configs or ()}
    assert by_name["retention.ms"] == ("77", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)


def test_an_unknown_operation_is_refused() -> None:
    change = AlterableConfig(name="retention.ms", config_operation=7, value="1")
    wanted = AlterConfigsResource(resource_type=TOPIC, resource_name="a", configs=(change,))
    assert refused(with_topic(), wanted) == (
        ErrorCode.INVALID_REQUEST,
        "unknown config operation 7",
    )


def test_the_refusal_of_a_setting_read_at_start_says_so() -> None:
    wanted = resource(BROKER, "1", (SET, "num.partitions", "3"))
    assert refused(with_topic(), wanted) == (
        ErrorCode.INVALID_CONFIG,
        "num.partitions is read when a broker starts; give it to the cluster's start instead",
    )


def test_replacing_deletes_what_is_not_named() -> None:
    under_test = with_topic()
    under_test.handle(
        alter(resource(TOPIC, "a", (SET, "retention.ms", "5"), (SET, "segment.ms", "6")))
    )

    def replacement(*pairs: tuple[str, str | None]) -> AlterConfigsRequest:
        configs = tuple(alter_configs.AlterableConfig(name=n, value=v) for n, v in pairs)
        wanted = alter_configs.AlterConfigsResource(
            resource_type=TOPIC, resource_name="a", configs=configs
        )
        return AlterConfigsRequest(resources=(wanted,))

    assert under_test.handle(replacement(("segment.ms", "7"), ("flush.ms", "8"))) == Decision(
        records=(
            altered(TOPIC, "a", "retention.ms", None),
            altered(TOPIC, "a", "segment.ms", "7"),
            altered(TOPIC, "a", "flush.ms", "8"),
        ),
        response=AlterConfigsResponse(
            responses=(
                alter_configs.AlterConfigsResourceResponse(resource_type=TOPIC, resource_name="a"),
            )
        ),
    )
    for refused_pair, code in (
        (("segment.ms", None), ErrorCode.INVALID_REQUEST),
        (("segment.ms", "x"), ErrorCode.INVALID_CONFIG),
        (("nothing", "1"), ErrorCode.INVALID_CONFIG),
    ):
        decision = under_test.handle(replacement(refused_pair))
        assert isinstance(decision.response, AlterConfigsResponse)
        assert decision.records == ()
        assert decision.response.responses[0].error_code == code
    assert under_test.image.topic_overrides("a") == {"segment.ms": "7", "flush.ms": "8"}


def test_a_resource_that_is_named_twice_is_refused() -> None:
    under_test = with_topic()
    wanted = resource(TOPIC, "a", (SET, "retention.ms", "5"))
    decision = under_test.handle(alter(wanted, wanted))
    assert isinstance(decision.response, IncrementalAlterConfigsResponse)
    codes = [response.error_code for response in decision.response.responses]
    assert (decision.records, codes) == ((), [ErrorCode.INVALID_REQUEST] * 2)


# -- producer ids


def test_blocks_of_producer_ids_never_overlap() -> None:
    under_test = with_topic()
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=0)
    assert [under_test.handle(request) for _ in range(2)] == [
        Decision(
            records=(ProducerIdsAllocated(broker_id=1, first_producer_id=first, count=1000),),
            response=AllocateProducerIdsResponse(first_producer_id=first, count=1000),
        )
        for first in (0, 1000)
    ]


def test_a_stale_broker_gets_no_block() -> None:
    under_test = with_topic()
    stale = AllocateProducerIdsRequest(broker_id=1, broker_epoch=5)
    assert under_test.refusal(stale) == ErrorCode.STALE_BROKER_EPOCH


def test_the_ids_of_coordinators_are_never_given_out() -> None:
    under_test = with_topic()
    used = COORDINATOR_PRODUCER_ID_BASE - 1000
    under_test.image.replay(ProducerIdsAllocated(broker_id=1, first_producer_id=0, count=used))
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=0)
    last = under_test.handle(request).response
    assert last == AllocateProducerIdsResponse(first_producer_id=used, count=1000)
    assert under_test.refusal(request) == ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_control_plane_serves_producers_from_its_own_blocks() -> None:
    under_test = with_topic()
    under_test.handle(AllocateProducerIdsRequest(broker_id=1, broker_epoch=0))
    decisions = [under_test.handle(InitProducerIdRequest()) for _ in range(1001)]
    responses = [decision.response for decision in decisions]
    assert responses == [InitProducerIdResponse(producer_id=1000 + n) for n in range(1001)]
    blocks = [record for decision in decisions for record in decision.records]
    assert blocks == [
        ProducerIdsAllocated(broker_id=0, first_producer_id=first, count=1000)
        for first in (1000, 2000)
    ]


def test_after_a_restart_a_new_block_is_begun() -> None:
    under_test = with_topic()
    under_test.handle(InitProducerIdRequest())
    after = ControllerUnderTest(under_test.image.copy())
    assert after.handle(InitProducerIdRequest()).response == InitProducerIdResponse(
        producer_id=1000
    )
