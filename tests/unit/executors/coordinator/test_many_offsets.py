"""No work on the offsets of a large group holds the loop.

The measure is that of ``test_bounded_requests.py``.  ``SPARKLOG_FULL_WALK=1`` takes as many offsets
as a request may name.  Before there were turns, 100,000 offsets held the loop for 3 s.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from sparklog.executors.groups import GroupConfig, GroupStateMachine
from sparklog.executors.groups.record_schemas import OffsetCommitKey, OffsetCommitValue
from sparklog.executors.groups.records import offset_record
from sparklog.executors.partition import ACKS_ALL
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from sparklog.runtime_environment import SYSTEM
from sparklog.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from sparklog.wire.records.builder import Record, encode_batch
from tests.support.loop_holds import Holds
from tests.support.waiting import until
from tests.unit.executors.coordinator.group_rig import HERE, GroupRig, run
from tests.unit.executors.coordinator.replica_rig import NODE, OTHER, led

OFFSETS = 99_000 if os.environ.get("SPARKLOG_FULL_WALK") else 12_000
BATCH = 5_000
DAY_MS = 86_400_000


def machine() -> GroupStateMachine:
    """Offsets expire after a day, and are looked at four times a second."""
    return GroupStateMachine(
        GroupConfig(retention_ms=DAY_MS, retention_check_interval_ms=250), SYSTEM.new_id
    )


def fill(rig: GroupRig, *, age_ms: int) -> None:
    """Append offsets of one group and one topic, behind the runtime's back."""
    now_ms = SYSTEM.wall_ms()
    topic_id = rig.replicas.image.topics["t"].topic_id
    value = OffsetCommitValue(offset=5, commit_timestamp=now_ms - age_ms, topic_id=topic_id)
    for start in range(0, OFFSETS, BATCH):
        keys = (
            OffsetCommitKey(group=HERE, topic="t", partition=number)
            for number in range(start, min(start + BATCH, OFFSETS))
        )
        records = [offset_record(key, value) for key in keys]
        batch = encode_batch(
            [Record(key=each.key, value=each.value, timestamp=now_ms) for each in records]
        )
        partition = rig.replicas.partition(CONSUMER_OFFSETS)
        partition.append_as_leader(batch, acks=ACKS_ALL, now_ms=now_ms)


async def load(rig: GroupRig, *, age_ms: int = 0) -> None:
    """Load a group with many offsets."""
    await rig.replicas.set_state(CONSUMER_OFFSETS, 0, led(2, leader=OTHER, isr=(NODE, OTHER)))
    await rig.replicas.set_state(CONSUMER_OFFSETS, 0, led(3))
    await until(lambda: rig.runtime.as_json()["active_shards"] == 1)
    fill(rig, age_ms=age_ms)
    await rig.replicas.set_state(CONSUMER_OFFSETS, 0, led(4, leader=OTHER, isr=(NODE, OTHER)))
    await rig.replicas.set_state(CONSUMER_OFFSETS, 0, led(5))
    await until(lambda: rig.runtime.as_json()["active_shards"] == 1)


async def fetch_all(rig: GroupRig, version: int) -> None:
    response = await rig.ask(fetch_of(None), version)
    count = sum(len(topic.partitions) for topic in response.groups[0].topics)
    assert count == OFFSETS


async def fetch_all_of_old_clients(rig: GroupRig) -> None:
    response = await rig.ask(OffsetFetchRequest(group_id=HERE), 7)
    assert len(response.topics[0].partitions) == OFFSETS


async def fetch_by_name(rig: GroupRig) -> None:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=tuple(range(OFFSETS)))
    response = await rig.ask(fetch_of((topic,)), 9)
    assert len(response.groups[0].topics[0].partitions) == OFFSETS


def fetch_of(topics: tuple[OffsetFetchRequestTopics, ...] | None) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=HERE, topics=topics),))


async def delete_group(rig: GroupRig) -> None:
    response = await rig.ask(DeleteGroupsRequest(groups_names=(HERE,)))
    assert response.results[0].error_code == 0
    await nothing_is_left(rig)


async def delete_topic(rig: GroupRig) -> None:
    await rig.replicas.delete("t")
    await nothing_is_left(rig)


async def nothing_is_left(rig: GroupRig) -> None:
    """Wait for all tombstones, with those of the group if it ends."""
    await until(lambda: rig.runtime.metrics.records_written >= OFFSETS)
    response = await rig.ask(fetch_of(None), 9)
    assert response.groups[0].topics == ()


WORK: dict[str, Callable[[GroupRig], Awaitable[None]]] = {
    "fetch all": partial(fetch_all, version=9),
    "fetch all by id": partial(fetch_all, version=10),
    "fetch all before v8": fetch_all_of_old_clients,
    "fetch by name": fetch_by_name,
    "delete the topic": delete_topic,
    "expire": nothing_is_left,
    "delete the group": delete_group,
}


#: Work on one group after another.
STORIES = ([*WORK][:4], ["delete the topic"], ["expire"], ["delete the group"])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("works", STORIES)
def test_no_work_on_many_offsets_holds_the_loop(works: list[str]) -> None:
    async def test(rig: GroupRig) -> None:
        holds = Holds()
        found: dict[str, float] = {}
        await load(rig, age_ms=2 * DAY_MS if "expire" in works else 0)
        with holds.measured():
            for name in works:
                await asyncio.sleep(0)
                holds.longest_s = 0.0
                await WORK[name](rig)
                found[name] = holds.longest_s
        print(found)
        assert max(found.values()) < holds.max_s, found

    run(test, machine)
