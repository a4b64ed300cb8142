"""A broker that stops answers the commits that wait to be replicated."""

import asyncio

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from sparklog.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Rig, run

SETTINGS = {"offsets_topic_num_partitions": "1", "offsets_topic_replication_factor": "2"}
#: The client looks for the coordinator again, and repeats its commit.
REPEATED = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


def commit() -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequestTopic(name="t", partitions=(part,))
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=(topic,))


@pytest.mark.parametrize("is_controlled", [True, False])
def test_a_commit_that_waits_is_answered_when_its_broker_stops(is_controlled: bool) -> None:
    """With a control plane the follower leads; without it the commit can only be refused."""

    async def test(rig: Rig) -> None:
        for broker_id in (1, 2):
            await rig.start_broker(broker_id)
        client = await rig.client()
        await client.create_topic("t")
        found = await client.ask(FindCoordinatorRequest(coordinator_keys=("g",)))
        here = found.coordinators[0].node_id
        runtime = rig.brokers[here].group_runtime
        await until(lambda: runtime.as_json()["active_shards"] == 1)
        client = await rig.client(here)
        await until(lambda: rig.brokers[here].replica_manager.image.topic("t") is not None)
        await rig.cut_off_broker(3 - here)
        committing = asyncio.create_task(client.ask(commit(), 9))
        await until(lambda: runtime.metrics.records_written == 1)
        assert not committing.done()
        if not is_controlled:
            await rig.stop_control()
        await rig.stop_broker(here)
        response = await committing
        assert response.topics[0].partitions[0].error_code in REPEATED

    run(test, **SETTINGS)
