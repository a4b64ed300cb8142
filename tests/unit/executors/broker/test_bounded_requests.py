"""No request holds a node's loop: every API with the largest arrays that it admits.

The measure is the CPU time of the loop's thread inside one callback.  ``Holds.max_s`` is several
times what a slice takes; before there were slices, requests like these held the loop for seconds.
A busy machine or a garbage collection can only lengthen a callback.  So a request that takes too
long is sent again, and its shortest measurement counts.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from sparklog.service.dispatch import Dispatcher
from sparklog.wire.protocol.codec import encode_request, request_type
from sparklog.wire.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from sparklog.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from sparklog.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from sparklog.wire.protocol.private import StopNodeRequest
from sparklog.wire.protocol.schema import Request
from tests.support.full_arrays import ITEMS, full_arrays, without_arrays
from tests.support.loop_holds import Holds
from tests.support.raw_wire import RawWire, framed
from tests.unit.executors.broker.broker_rig import SETTINGS, Rig

#: Measurements of a request that takes too long.
ATTEMPTS = 4
#: Items of the walk over all APIs, in their last versions.  ``SPARKLOG_FULL_WALK=1`` takes the
#: largest arrays, and every version.
FULL_WALK = bool(os.environ.get("SPARKLOG_FULL_WALK"))
WALK_ITEMS = ITEMS if FULL_WALK else 12_000
PARTITIONS = 50


def run(test: Callable[[Rig], Awaitable[None]]) -> None:
    """Run a test with a fresh rig, as long as it takes."""

    async def within() -> None:
        async with Rig.open(SETTINGS) as rig:
            await test(rig)

    asyncio.run(within())


def exchanged(address: str, frame: bytes) -> bytes | None:
    """The answer to a frame; None when it costs the connection."""
    with RawWire(address) as wire:
        wire.send(framed(frame))
        return wire.frame()


async def hold_of(holds: Holds, address: str, request: Request, version: int) -> tuple[float, int]:
    """The longest hold while a request is answered, in seconds, and the size of the answer."""
    frame = await asyncio.to_thread(encode_request, request, version, 1, "walk")
    measured: list[float] = []
    while True:
        holds.longest_s = 0.0
        answer = await asyncio.to_thread(exchanged, address, frame)
        measured.append(holds.longest_s)
        if measured[-1] <= holds.max_s or len(measured) == ATTEMPTS:
            return min(measured), len(answer or b"")


def nodes_of(rig: Rig) -> dict[str, tuple[str, Dispatcher]]:
    broker = rig.brokers[1]
    assert broker._dispatcher is not None
    assert rig.control._dispatcher is not None
    return {
        "broker": (f"127.0.0.1:{broker.port}", broker._dispatcher),
        "control plane": (f"127.0.0.1:{rig.control.port}", rig.control._dispatcher),
    }


def named_cases(topic_id: UUID) -> dict[str, tuple[Request, int]]:
    """The attacks that froze nodes for seconds."""
    resource = DescribeConfigsResource(resource_type=2, resource_name="t")
    batches = tuple(PartitionProduceData(index=0, records=b"x" * 62) for _ in range(ITEMS))
    produced = TopicProduceData(name="t", partition_data=batches)
    unknown = tuple(
        FetchTopic(topic=f"unknown-{n}", partitions=(FetchPartition(),)) for n in range(ITEMS // 2)
    )
    wanted = tuple(MetadataRequestTopic(name="t") for _ in range(ITEMS))
    return {
        "one resource many times": (DescribeConfigsRequest(resources=(resource,) * ITEMS), 1),
        "many batches of one partition": (ProduceRequest(acks=1, topic_data=(produced,)), 9),
        "many unknown topics in a fetch": (FetchRequest(topics=unknown), 12),
        "one name many times": (MetadataRequest(topics=wanted), 9),
    }


@pytest.mark.timeout(600)
def test_what_froze_nodes_before() -> None:
    async def test(rig: Rig) -> None:
        _, topic_id = await rig.with_topic(partitions=PARTITIONS)
        holds = Holds()
        found: dict[str, float] = {}
        with holds.measured():
            for node, (address, _) in nodes_of(rig).items():
                for label, (request, version) in named_cases(topic_id).items():
                    hold_s, size = await hold_of(holds, address, request, version)
                    assert size, (node, label)
                    assert size < 16_000_000, (node, label)
                    found[f"{node}: {label}"] = hold_s
        too_long = {label: hold_s for label, hold_s in found.items() if hold_s > holds.max_s}
        assert not too_long, found

    run(test)


@pytest.mark.timeout(3600 if FULL_WALK else 600)
@pytest.mark.parametrize("node", ["broker", "control plane"])
def test_every_api_with_full_arrays(node: str) -> None:
    async def test(rig: Rig) -> None:
        _, topic_id = await rig.with_topic(partitions=PARTITIONS)
        holds = Holds()
        found: dict[str, float] = {}
        with holds.measured():
            address, dispatcher = nodes_of(rig)[node]
            for handler in list(dispatcher._handlers.values()):
                kind = request_type(handler.api_key)
                if kind is StopNodeRequest:
                    continue
                versions = range(handler.min_version, handler.max_version + 1)
                for version in versions if FULL_WALK else versions[-1:]:
                    named = {"topic": "t", "topic_id": topic_id}
                    cases = {
                        each.label: each.request
                        for each in full_arrays(kind, version, items=WALK_ITEMS, **named)
                    }
                    cases["everything"] = without_arrays(kind, version, **named)
                    for label, request in cases.items():
                        hold_s, _ = await hold_of(holds, address, request, version)
                        found[f"{kind.__name__} v{version}: {label}"] = hold_s
        worst = dict(sorted(found.items(), key=lambda each: -each[1])[:10])
        print(worst)
        assert len(found) > 50
        assert max(worst.values()) < holds.max_s, worst

    run(test)
