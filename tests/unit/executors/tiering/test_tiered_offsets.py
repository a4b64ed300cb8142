"""ListOffsets by time where the record is in the bucket only."""

from types import SimpleNamespace
from typing import Any

from sparklog.executors.replica_manager import find_in_tiers
from sparklog.types import Isolation, OffsetTimestamp
from sparklog.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.support.batches import TIMESTAMP_MS, batch
from tests.support.waiting import until
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered


async def fill(tiered: TieredRig, count: int) -> None:
    """One record for each second."""
    client = await tiered.client()
    for number in range(count):
        data = batch(b"v" * 100, timestamp=TIMESTAMP_MS + 1000 * number)
        assert (await client.produce("t", data)).error_code == 0


async def first_at(tiered: TieredRig, second: float) -> tuple[int, int]:
    """Offset, and time in seconds."""
    client = await tiered.client()
    wanted = ListOffsetsPartition(
        partition_index=0, timestamp=TIMESTAMP_MS + int(1000 * second), current_leader_epoch=-1
    )
    request = ListOffsetsRequest(
        replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=(wanted,)),)
    )
    response = await client.ask(request, 7)
    ((part,),) = [topic.partitions for topic in response.topics]
    assert part.error_code == 0
    if part.offset < 0:
        return part.offset, part.timestamp
    return part.offset, (part.timestamp - TIMESTAMP_MS) // 1000


def test_a_time_is_found_in_either_tier() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await fill(tiered, 40)
        await tiered.tier()
        local_start = tiered.partition.log.local_log_start_offset
        assert local_start > 20
        seconds = (0, 3, 3.5, 12, local_start - 1, local_start - 0.5, local_start, 39)
        found = [await first_at(tiered, second) for second in seconds]
        exact = (0, 3, 4, 12, local_start - 1, local_start, local_start, 39)
        assert found == [(offset, offset) for offset in exact]
        assert await first_at(tiered, -1) == (0, 0)
        assert await first_at(tiered, 40) == (-1, -1)

    run_tiered(test)


def test_segments_that_are_deleted_here_meanwhile_are_searched_in_the_bucket() -> None:
    """The bucket is searched before a segment gets there, the files after it has gone."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await fill(tiered, 20)
        await tiered.tier()
        await fill(tiered, 1)
        manager = tiered.leader.replica_manager  # type: ignore[union-attr]
        partition, before = tiered.partition, tiered.partition.log.local_log_start_offset
        searched: list[int] = []

        class LateReads:
            async def find_timestamp(self, *_: Any) -> OffsetTimestamp | None:
                start = partition.log.local_log_start_offset
                searched.append(start)
                if start > before:
                    return OffsetTimestamp(offset=before, timestamp=7)
                client = await tiered.client()
                for _ in range(20):
                    assert (await client.produce("t", batch(b"v" * 100))).error_code == 0
                await tiered.tier()
                return None

        found = await find_in_tiers(
            manager.searches,
            LateReads(),  # type: ignore[arg-type]
            SimpleNamespace(state={}),  # type: ignore[arg-type]
            partition,
            1,
            Isolation.READ_COMMITTED,
            remote_timeout_s=60,
        )
        assert found == OffsetTimestamp(offset=before, timestamp=7)
        assert searched == [before, partition.log.local_log_start_offset]
        await until(lambda: partition.log.local_log_start_offset > before)

    run_tiered(test)
