"""The effects of changed settings on partitions, in the commit of the change."""

from dataclasses import replace

import pytest

from sparklog.driver.control_plane.controller import Decision
from sparklog.errors import ErrorCode
from sparklog.metadata import ConfigChanged, PartitionImage
from sparklog.types import ResourceType
from sparklog.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest, changed, partition

MIN_ISR = "min.insync.replicas"
SHRUNK = partition(1, 2, isr=(1,), eligible=(2,))


def configured(*states: PartitionImage, **overrides: str) -> ControllerUnderTest:
    under_test = ControllerUnderTest()
    under_test.register_all(3)
    under_test.place("a", *states, **overrides)
    return under_test


def of_broker(under_test: ControllerUnderTest, broker: str, name: str, value: str) -> Decision:
    setting = AlterableConfig(name=name, value=value)
    resource = AlterConfigsResource(
        resource_type=ResourceType.BROKER, resource_name=broker, configs=(setting,)
    )
    return under_test.handle(IncrementalAlterConfigsRequest(resources=(resource,)))


def test_a_smaller_minimum_ends_who_was_eligible_at_once() -> None:
    under_test = configured(SHRUNK, partition(1, 2), min_insync_replicas="2")
    decision = under_test.configure("a", min_insync_replicas="1")
    assert decision.records == (
        ConfigChanged(resource_type=ResourceType.TOPIC, resource_name="a", name=MIN_ISR, value="1"),
        changed("a", replace(SHRUNK, eligible=(), last_known=(1,), partition_epoch=1)),
    )
    under_test.lose(1)
    assert under_test.leaders() == {"a-0": -1, "a-1": 2}


def test_so_does_one_for_all_brokers() -> None:
    under_test = configured(SHRUNK)
    under_test.place("own", SHRUNK, min_insync_replicas="2")
    assert len(of_broker(under_test, "", MIN_ISR, "2").records) == 1
    of_broker(under_test, "", MIN_ISR, "1")
    assert under_test.state("a") == replace(SHRUNK, eligible=(), last_known=(1,), partition_epoch=1)
    assert under_test.state("own") == SHRUNK


def test_it_may_complete_a_reassignment() -> None:
    moving = partition(1, 2, 3, isr=(2,), leader=2, adding=(2,), removing=(3,))
    under_test = configured(moving, min_insync_replicas="2")
    under_test.configure("a", min_insync_replicas="1")
    assert under_test.state("a") == replace(
        moving, replicas=(1, 2), adding=(), removing=(), leader_epoch=1, partition_epoch=1
    )


def test_no_broker_that_is_about_to_stop_leads_when_it_does() -> None:
    under_test = ControllerUnderTest()
    under_test.register_all(4)
    under_test.heartbeat(1, wants_stop=True)
    moving = partition(1, 2, 4, 3, isr=(1, 4, 3), leader=3, adding=(4,), removing=(3,))
    under_test.place("a", moving, min_insync_replicas="3")
    under_test.configure("a", min_insync_replicas="2")
    assert under_test.state("a").replicas == (1, 2, 4)
    assert under_test.leaders() == {"a-0": 4}


@pytest.mark.parametrize("name", [MIN_ISR, "unclean.leader.election.enable"])
def test_no_single_broker_may_see_it_differently(name: str) -> None:
    under_test = configured(SHRUNK)
    decision = of_broker(under_test, "1", name, "true" if "unclean" in name else "1")
    assert isinstance(decision.response, IncrementalAlterConfigsResponse)
    (result,) = decision.response.responses
    assert (decision.records, result.error_code, result.error_message) == (
        (),
        ErrorCode.INVALID_CONFIG,
        f"{name} must be the same for all brokers; use '' instead of one broker's id",
    )


def test_other_settings_touch_no_partition() -> None:
    under_test = configured(SHRUNK, min_insync_replicas="2")
    assert len(under_test.configure("a", retention_ms="1000").records) == 1
