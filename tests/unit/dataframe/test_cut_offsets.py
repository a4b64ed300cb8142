"""When a read asks for a consistent cut, and what it does without one."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.data_client import DataClient
from sparklog.dataframe.options import Bound, ConsistentCut, ReadOptions
from sparklog.dataframe.read.cut_offsets import CUT_WAIT_MS
from sparklog.dataframe.read.pushdown import Narrowing, narrowing
from sparklog.dataframe.read.read_planner import plan_read
from sparklog.errors import ConnectError, ErrorCode, KafkaError
from sparklog.service.dispatch import ApiHandler
from sparklog.types import Isolation, OffsetSpec, TopicPartition
from sparklog.wire.protocol.private_clients import (
    ConsistentCutRequest,
    ConsistentCutResponse,
    CutPartitionOffset,
    CutTopicOffsets,
)
from tests.support.batches import batch
from tests.unit.client.small_cluster import SmallCluster

CUT = ConsistentCutRequest.API_KEY
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
#: The end of each partition, and a cut that is short of it.
END, CUT_AT = 5, 3
#: What a read plans without and with a cut.
WITHOUT, WITH = {T0: END, T1: END, T2: END}, {T0: CUT_AT, T1: CUT_AT, T2: CUT_AT}
EVERYTHING = Narrowing()
REFUSED = ErrorCode.CONCURRENT_TRANSACTIONS


class CuttingCluster(SmallCluster):
    """Node 0 gives cuts at ``CUT_AT``, after the errors that a test asks for.

    ``None`` closes the connection in place of an answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.errors: deque[ErrorCode | None] = deque()
        self.cuts: list[ConsistentCutRequest] = []

    def further_apis(self, node_id: int) -> list[ApiHandler]:
        if node_id:
            return []
        api = self.api(node_id, CUT, 0, self._cut)
        return [replace(api, advertise=False, advertise_to_own_clients=True)]

    def _cut(self, _node_id: int, request: ConsistentCutRequest, code: ErrorCode) -> Any:
        self.cuts.append(request)
        code = self.errors.popleft() or code if self.errors else code
        if code:
            return ConsistentCutResponse(error_code=code, error_message="'x' is in the way")
        return ConsistentCutResponse(
            topics=tuple(
                CutTopicOffsets(
                    name=topic.name,
                    partitions=tuple(
                        CutPartitionOffset(partition=number, last_stable_offset=CUT_AT)
                        for number in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    def asked_for(self) -> list[dict[str, tuple[int, ...]]]:
        return [{topic.name: topic.partitions for topic in each.topics} for each in self.cuts]


def run(cluster: SmallCluster, story: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        await cluster.start()
        try:
            cluster.add_topic("t", (1, 2, 1))
            for log in cluster.logs.values():
                log.append(memoryview(batch(*[b"v"] * END)), 0)
            await asyncio.wait_for(story(), 30)
        finally:
            await cluster.stop()

    asyncio.run(within())


async def planned(
    cluster: SmallCluster, narrowed: Narrowing = EVERYTHING, **options: Any
) -> dict[TopicPartition, int]:
    """The end offsets of a plan."""
    given = ReadOptions(**{"bootstrap": (), "topics": ("t",), "plan_tries": 1, **options})
    async with ClusterClient(cluster.bootstrap) as client:
        ranges = await plan_read(DataClient(client), given, narrowed)
    return {item.topic_partition: item.end for item in ranges}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize("choice", [ConsistentCut.REQUIRE, ConsistentCut.PREFER])
def test_a_read_of_several_partitions_ends_at_a_cut(
    choice: ConsistentCut, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = CuttingCluster()

    async def story() -> None:
        assert await planned(cluster, consistent_cut=choice) == WITH
        assert cluster.asked_for() == [{"t": (0, 1, 2)}]
        assert cluster.cuts[0].max_wait_ms == CUT_WAIT_MS
        assert warnings(caplog) == []

    run(cluster, story)


def test_only_partitions_that_end_at_their_latest_offset_and_are_read_are_cut() -> None:
    cluster = CuttingCluster()

    async def story() -> None:
        ending = Bound(offsets={T0: int(OffsetSpec.LATEST), T1: 4, T2: int(OffsetSpec.LATEST)})
        assert await planned(cluster, ending=ending) == {T0: CUT_AT, T1: 4, T2: CUT_AT}
        first = narrowing([EqualTo(("partition",), 0)])
        assert await planned(cluster, first) == {T0: END}
        assert cluster.asked_for() == [{"t": (0, 2)}]

    run(cluster, story)


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        ({"consistent_cut": ConsistentCut.OFF}, WITHOUT),
        ({"isolation": Isolation.READ_UNCOMMITTED}, WITHOUT),
        ({"topics": (), "assigned": (T1,)}, {T1: END}),
        ({"ending": Bound(offsets={T0: 5, T1: 4, T2: -1})}, {T0: 5, T1: 4, T2: END}),
        ({"ending": Bound(timestamp_ms=2_000_000_000_000)}, WITHOUT),
    ],
    ids=["off", "read_uncommitted", "one partition", "offsets", "a time"],
)
def test_other_reads_do_not_ask(options: dict[str, Any], ends: dict[TopicPartition, int]) -> None:
    cluster = CuttingCluster()

    async def story() -> None:
        assert await planned(cluster, **options) == ends
        assert cluster.cuts == []

    run(cluster, story)


@pytest.mark.parametrize("choice", list(ConsistentCut))
def test_clusters_that_know_no_cuts_are_read_without(
    choice: ConsistentCut, caplog: pytest.LogCaptureFixture
) -> None:
    """As Kafka's: no such api is advertised, so none is asked for, and nothing is said."""
    cluster = SmallCluster()

    async def story() -> None:
        assert await planned(cluster, consistent_cut=choice) == WITHOUT
        assert CUT not in {key for _, key, _ in cluster.requests}
        assert warnings(caplog) == []

    run(cluster, story)


@pytest.mark.parametrize(
    "code", [REFUSED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.INVALID_REQUEST]
)
def test_without_a_cut_a_read_goes_on_and_warns(
    code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = CuttingCluster()
    cluster.errors.append(code)

    async def story() -> None:
        assert await planned(cluster) == WITHOUT
        (warning,) = warnings(caplog)
        assert warning == (
            "this read may show a transaction in one partition and hide it in another, because "
            f"there was no consistent cut: {code.name}: 'x' is in the way; option "
            "consistentCut=require waits for one"
        )
        assert len(cluster.cuts) == 1

    run(cluster, story)


def test_without_node_0_a_read_goes_on_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    cluster = CuttingCluster()

    async def story() -> None:
        await cluster.stop_node(0)
        assert await planned(cluster) == WITHOUT
        (warning,) = warnings(caplog)
        assert "there was no consistent cut: 127.0.0.1:" in warning

    run(cluster, story)


def test_a_cut_that_is_required_is_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    cluster = CuttingCluster()
    cluster.errors.extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, REFUSED])
    cluster.refuse(CUT, None)

    async def story() -> None:
        assert await planned(cluster, consistent_cut=ConsistentCut.REQUIRE) == WITH
        assert len(cluster.cuts) == 3
        assert warnings(caplog) == []

    run(cluster, story)


def test_a_cut_that_is_required_and_does_not_come_is_an_error() -> None:
    cluster = CuttingCluster()
    cluster.errors.extend([REFUSED] * 100)

    async def story() -> None:
        with pytest.raises(KafkaError) as caught:
            await planned(cluster, consistent_cut=ConsistentCut.REQUIRE, poll_timeout_ms=500)
        assert caught.value.code == REFUSED
        assert caught.value.message == (
            "there was no consistent cut of the partitions to read: 'x' is in the way; "
            "option consistentCut=prefer reads without one"
        )
        assert cluster.cuts[0].max_wait_ms <= 500
        await cluster.stop_node(0)
        with pytest.raises(ConnectError, match="option consistentCut=prefer reads without one"):
            await planned(cluster, consistent_cut=ConsistentCut.REQUIRE, poll_timeout_ms=300)

    run(cluster, story)
