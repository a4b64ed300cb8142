"""Commits of one connection take effect in their order, also while a long one is in slices."""

import asyncio
from collections.abc import Sequence

import pytest

from sparklog.executors.groups import GroupConfig, GroupStateMachine
from sparklog.runtime_environment import SYSTEM
from sparklog.transport import ClientConnection
from sparklog.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tests.unit.executors.coordinator.group_rig import HERE, GroupRig, run

#: Partitions of a commit that takes many slices.
MANY = 3000


def machine() -> GroupStateMachine:
    return GroupStateMachine(GroupConfig(), SYSTEM.new_id)


def commit(offset: int, count: int) -> OffsetCommitRequest:
    """A commit that names two partitions in turn, so many of them."""
    parts = tuple(
        OffsetCommitRequestPartition(partition_index=each % 2, committed_offset=offset)
        for each in range(count)
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=parts)
    return OffsetCommitRequest(group_id=HERE, generation_id_or_member_epoch=-1, topics=(topic,))


async def committed(rig: GroupRig, client: ClientConnection) -> dict[int, int]:
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=HERE),))
    response = await rig.ask(request, 9, client)
    (topic,) = response.groups[0].topics
    return {part.partition_index: part.committed_offset for part in topic.partitions}


def codes(response: OffsetCommitResponse) -> set[int]:
    return {part.error_code for topic in response.topics for part in topic.partitions}


@pytest.mark.parametrize("counts", [(MANY, 2), (2, MANY), (MANY, MANY), (MANY, 2, MANY, 2)])
def test_the_last_commit_of_a_connection_counts(counts: Sequence[int]) -> None:
    async def test(rig: GroupRig) -> None:
        client = await rig.connect()
        commits = [commit(offset, count) for offset, count in enumerate(counts, start=1)]
        asking = [asyncio.create_task(rig.ask(each, 9, client)) for each in commits]
        reading = asyncio.create_task(committed(rig, client))
        for response in await asyncio.gather(*asking):
            assert codes(response) == {0}
        assert await reading == {0: len(counts), 1: len(counts)}

    run(test, machine)
