"""Tiered topics from end to end: copied by their leader, deleted here, read from the bucket."""

from sparklog.errors import ErrorCode
from sparklog.wire.protocol.messages.api_versions import ApiVersionsRequest
from sparklog.wire.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
)
from tests.support.waiting import until
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered


def starts(tiered: TieredRig) -> tuple[int, int]:
    log = tiered.partition.log
    return log.log_start_offset, log.local_log_start_offset


def test_a_client_reads_one_log_over_both_tiers() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(40)
        await tiered.tier()
        log = tiered.partition.log
        assert log.tiered_end_offset == log.segments[-1].base_offset
        assert starts(tiered)[0] == 0
        assert starts(tiered)[1] > 20
        assert await tiered.read_all() == tiered.values
        assert await tiered.read_all(7) == tiered.values[7:]
        status = await tiered.rig.status()
        assert status["remote_segments"] == status["remote_segments_copied"] >= 5
        assert status["remote_copy_lag_bytes"] == 0

    run_tiered(test)


def test_the_leader_tells_the_sizes_of_both_tiers() -> None:
    async def test(tiered: TieredRig) -> None:
        async def told(broker_id: int, name: str = "sparklog") -> DescribeLogDirsPartition:
            client = await tiered.rig.client(broker_id)
            who = ApiVersionsRequest(client_software_name=name, client_software_version="1")
            await client.ask(who)
            topic = DescribableLogDirTopic(topic="t", partitions=(0,))
            response = await client.ask(DescribeLogDirsRequest(topics=(topic,)))
            (part,) = response.results[0].topics[0].partitions
            return part

        await tiered.start(2)
        leader = tiered.leader.options.broker_id  # type: ignore[union-attr]
        await tiered.rig.brokers[leader].tiering.manager.look_after_all()  # type: ignore[union-attr]
        await tiered.fill(20)
        await tiered.settle()
        sealed = sum(segment.size for segment in tiered.partition.log.segments[:-1])
        before = await told(leader)
        assert (before.remote_size, before.remote_copy_lag) == (0, sealed)
        await tiered.tier()
        after = await told(leader)
        assert after.partition_size == tiered.partition.log.size < sealed
        assert after.remote_size > sealed  # the indexes are in the bucket, too
        assert (await tiered.rig.status(leader))["remote_bytes"] == after.remote_size
        assert after.remote_copy_lag == 0
        follower = await told(3 - leader)
        assert (follower.remote_size, follower.remote_copy_lag) == (-1, -1)
        other = await told(leader, "others")
        assert (other.remote_size, other.partition_size) == (-1, after.partition_size)

    run_tiered(test)


def test_copies_go_on_after_a_restart_clean_or_not() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(20)
        await tiered.tier()
        local_start = starts(tiered)[1]
        await tiered.rig.stop_broker()
        await tiered.rig.start_broker(new=False)
        await until(lambda: tiered.leader is not None)
        assert starts(tiered) == (0, local_start)
        await tiered.fill(20)
        await tiered.tier()
        assert await tiered.read_all() == tiered.values
        await tiered.rig.crash_broker()
        await tiered.rig.start_broker(new=False)
        await until(lambda: tiered.leader is not None)
        await tiered.fill(20)
        await tiered.tier()
        assert await tiered.read_all() == tiered.values
        assert starts(tiered)[0] == 0

    run_tiered(test)


def test_another_leader_goes_on_where_its_own_segments_begin_elsewhere() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(2)
        await tiered.fill(23)
        await until(lambda: len(tiered.partition.state.isr) == 2)  # type: ignore[union-attr]
        # The follower rolls in the middle of the leader's segment.
        follower = next(
            found
            for broker in tiered.rig.brokers.values()
            if (found := tiered.partition_at(broker)) is not None and not found.is_leader
        )
        follower.log.roll(0)
        await tiered.fill(10)
        await tiered.tier()
        leader = tiered.leader
        assert leader is not None
        await tiered.rig.stop_broker(leader.options.broker_id)
        await until(lambda: tiered.leader is not None)
        await tiered.fill(20)
        await tiered.tier()
        assert starts(tiered)[1] > 20
        assert await tiered.read_all() == tiered.values

    run_tiered(test)


def test_a_new_follower_starts_where_the_bucket_ends() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(2)
        await tiered.fill(5)
        leader = tiered.leader
        assert leader is not None
        other = 3 - leader.options.broker_id
        await tiered.rig.stop_broker(other)
        await tiered.fill(40)
        await tiered.tier()
        assert starts(tiered)[1] > 10
        await tiered.rig.start_broker(other, new=False)
        await until(lambda: len(tiered.partition.state.isr) == 2)  # type: ignore[union-attr]
        follower = tiered.partition_at(tiered.rig.brokers[other])
        assert follower is not None
        assert follower.log.log_start_offset == 0
        assert follower.log.local_log_start_offset >= starts(tiered)[1]
        assert follower.log.leader_epochs.epoch_at(0) == 0
        await tiered.tier()
        await tiered.rig.stop_broker(leader.options.broker_id)
        await until(lambda: tiered.leader is not None)
        assert await tiered.read_all() == tiered.values

    run_tiered(test)


def test_retention_counts_both_tiers() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(retention_bytes="4000")
        await tiered.fill(60)
        await tiered.tier()
        start, local_start = starts(tiered)
        assert 20 < start < local_start
        client = await tiered.client()
        assert await client.fetch("t", start - 1) == (ErrorCode.OFFSET_OUT_OF_RANGE, [])
        assert await tiered.read_all(start) == tiered.values[start:]
        kept = {name for name in tiered.bucket.list("") if name != "cluster.json"}
        assert len(kept) == 1

    run_tiered(test)


def test_a_bucket_that_is_away_costs_local_disk_only() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        tiered.bucket.faults.fail_next(operation="upload")
        await tiered.fill(30)
        await tiered.tier()
        assert starts(tiered) == (0, 0)
        assert (await tiered.rig.status())["remote_failures"] == 1
        tiered.bucket.faults.clear()
        await tiered.tier()
        assert starts(tiered)[1] > 10
        assert await tiered.read_all() == tiered.values

    run_tiered(test)
