"""Tiered partitions of which every replica has lost its log: they go on behind the bucket."""

import logging

import pytest

from sparklog.executors.tiering.copy_plan import leader_log_of
from sparklog.executors.tiering.remote_log_manager import remote_partition
from sparklog.remote_log.manifest_log import ManifestLog
from sparklog.remote_log.service import RemoteLogService
from sparklog.storage_backends.registry import open_file_half
from sparklog.types import ResourceType, TopicPartition
from sparklog.wire.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered

TP = TopicPartition("t", 0)
PARTITION_DIR = "broker-%d/t-0"
ELECT_UNCLEAN = ElectLeadersRequest(
    topic_partitions=(TopicPartitions(topic="t", partitions=(0,)),), election_type=1
)


def wipe(tiered: TieredRig, broker_id: int) -> None:
    """Replace the broker's disk by an empty one; the journal lies elsewhere."""
    tiered.rig.disk_of(broker_id).remove_folder(f"broker-{broker_id}")


async def lose_all(tiered: TieredRig, *brokers: int) -> None:
    """All brokers lose power and their disks, and start again on empty ones."""
    for broker_id in brokers:
        await tiered.rig.lose_power(broker_id)
        await tiered.rig.report_broker_death(broker_id)
        wipe(tiered, broker_id)
    for broker_id in brokers:
        await tiered.rig.start_broker(broker_id)


async def goes_on(tiered: TieredRig, end: int) -> None:
    """Everything below ``end`` is read, and the topic takes records, tiers them and restarts."""
    await until(lambda: tiered.leader is not None)
    del tiered.values[end:]
    log = tiered.partition.log
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, end, end)
    assert await tiered.read_all() == tiered.values
    await tiered.fill(30)
    await tiered.tier()
    assert tiered.partition.log.tiered_end_offset > end
    assert await tiered.read_all() == tiered.values
    brokers = list(tiered.rig.brokers)
    for broker_id in brokers:
        await tiered.rig.stop_broker(broker_id)
    for broker_id in brokers:
        await tiered.rig.start_broker(broker_id, new=False)
    await until(lambda: tiered.leader is not None)
    assert await tiered.read_all() == tiered.values
    tiered.partition.log.check_invariants()


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.message
        for record in caplog.records
        if record.levelno == logging.ERROR and record.message.startswith("unclean recovery of t-0")
    ]


def test_the_only_replica_comes_back_with_an_empty_disk(caplog: pytest.LogCaptureFixture) -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(40)
        await tiered.tier()
        end = tiered.partition.log.tiered_end_offset
        assert 20 < end < 40
        epoch = tiered.partition.leader_epoch
        await lose_all(tiered, 1)
        await until(lambda: tiered.leader is not None)
        assert tiered.partition.leader_epoch > epoch
        assert reports(caplog) == [
            "unclean recovery of t-0, of which no replica had a log: the remote_dir has offsets "
            f"from 0 up to {end}; leader epoch {tiered.partition.leader_epoch} begins at offset "
            f"{end}; records that had not been copied are lost"
        ]
        assert tiered.rig.control.status()["unclean_recoveries"] == 1
        status = await tiered.rig.status()
        assert status["remote_recoveries"] == 1
        await goes_on(tiered, end)

    run_tiered(test)


def test_the_only_replica_loses_its_directory(caplog: pytest.LogCaptureFixture) -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(40)
        await tiered.tier()
        end = tiered.partition.log.tiered_end_offset
        tiered.rig.disk.remove_folder(PARTITION_DIR % 1)
        before = tiered.partition
        await until(lambda: tiered.leader is not None and tiered.partition is not before)
        (report,) = reports(caplog)
        lost = 40 - end
        assert report.endswith(f"of the offsets that are known to have been used, {lost} are lost")
        assert (await tiered.rig.status())["remote_recoveries_lost_offsets"] == lost
        assert tiered.rig.control.status()["unclean_recoveries"] == 1
        await goes_on(tiered, end)

    run_tiered(test, log_dir_check_interval_ms="20")


def test_three_replicas_come_back_with_empty_disks() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(3, min_insync_replicas="2")
        await tiered.fill(40)
        await tiered.tier()
        end = tiered.partition.log.tiered_end_offset
        await lose_all(tiered, 1, 2, 3)
        await until(lambda: tiered.leader is not None)
        assert tiered.leader is not None
        assert tiered.leader.tiering is not None
        await tiered.leader.tiering.manager.look_after_all()  # followers wait for it
        await until(lambda: len(tiered.partition.state.isr) == 3)  # type: ignore[union-attr]
        for broker in tiered.rig.brokers.values():
            found = tiered.partition_at(broker)
            assert found is not None
            assert (found.log.log_start_offset, found.log.local_log_start_offset) == (0, end)
        assert tiered.rig.control.status()["unclean_recoveries"] == 1
        await goes_on(tiered, end)

    run_tiered(test)


def test_logs_that_began_anew_may_be_lost_too_before_one_of_them_leads() -> None:
    """The controller counts on no replica by then, so it has nothing to change any more."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start(3)
        await until(lambda: len(tiered.partition.state.isr) == 3)  # type: ignore[union-attr]
        await tiered.rig.stop_broker(3)
        await tiered.fill(40)
        await tiered.tier()
        end = tiered.partition.log.tiered_end_offset
        for _ in range(2):
            for broker_id in (1, 2):
                await tiered.rig.lose_power(broker_id)
                await tiered.rig.report_broker_death(broker_id)
                tiered.rig.disk_of(broker_id).remove_folder(PARTITION_DIR % broker_id)
            for broker_id in (1, 2):
                await tiered.rig.start_broker(broker_id, new=False)
            await until(
                lambda: (
                    not any(
                        broker.replica_manager.offline for broker in tiered.rig.brokers.values()
                    )
                )
            )
            state = tiered.rig.control.image.partition(TP)
            assert state is not None
            assert (state.leader, state.last_known) == (-1, ())
        tiered.rig.disk_of(3).remove_folder(PARTITION_DIR % 3)
        await tiered.rig.start_broker(3, new=False)
        await goes_on(tiered, end)

    run_tiered(test)


def test_directories_that_are_lost_while_there_is_no_leader_begin_anew_as_well() -> None:
    """The last replica finds that its log is gone when the controller counts on no log any more."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start(2)
        await until(lambda: len(tiered.partition.state.isr) == 2)  # type: ignore[union-attr]
        await tiered.fill(40)
        await tiered.tier()
        end = tiered.partition.log.tiered_end_offset
        leader = tiered.leader
        assert leader is not None
        last = leader.options.broker_id
        behind = 3 - last
        await tiered.rig.stop_broker(behind)
        await tiered.rig.lose_power(last)
        for broker_id in (last, behind):
            tiered.rig.disk_of(broker_id).remove_folder(PARTITION_DIR % broker_id)
        await tiered.rig.start_broker(last, new=False)
        state = tiered.rig.control.image.partition(TP)
        assert state is not None
        assert (state.leader, state.isr, state.eligible, state.last_known) == (-1, (), (), ())
        await tiered.rig.start_broker(behind, new=False)
        await until(lambda: tiered.leader is not None)
        assert tiered.rig.control.status()["unclean_recoveries"] == 1
        await goes_on(tiered, end)

    run_tiered(test)


def test_a_loss_of_power_behind_the_recovery_changes_nothing() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(40)
        await tiered.tier()
        end = tiered.partition.log.tiered_end_offset
        await lose_all(tiered, 1)
        await until(lambda: tiered.leader is not None)
        await tiered.rig.lose_power(1)
        await tiered.rig.start_broker(new=False)
        await goes_on(tiered, end)

    run_tiered(test)


def test_a_recovery_that_a_loss_of_power_ends_is_made_again() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(retention_bytes="4000")
        await tiered.fill(60)
        await tiered.tier()
        log = tiered.partition.log
        start, end = log.log_start_offset, log.tiered_end_offset
        assert 20 < start < end
        disk = tiered.rig.disk
        await tiered.rig.lose_power(1)
        await tiered.rig.report_broker_death(1)
        wipe(tiered, 1)
        disk.faults.fail_next(operation="put", under="leader-epoch-checkpoint")
        await tiered.rig.start_broker(1)
        replica_manager = tiered.rig.brokers[1].replica_manager
        await until(lambda: TP in replica_manager.offline)
        await tiered.rig.lose_power(1)
        disk.faults.clear()
        await tiered.rig.start_broker(new=False)
        await until(lambda: tiered.leader is not None)
        log = tiered.partition.log
        assert (log.log_start_offset, log.log_end_offset) == (start, end)
        assert (await tiered.rig.status())["remote_recoveries"] == 1
        assert await tiered.read_all(start) == tiered.values[start:end]

    run_tiered(test)


def test_a_replica_does_not_lead_before_the_bucket_answers() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(40)
        await tiered.tier()
        end = tiered.partition.log.tiered_end_offset
        tiered.bucket.faults.fail_next(operation="read")
        await lose_all(tiered, 1)
        await until(lambda: tiered.rig.control.status()["unclean_recoveries"] == 1)
        found = tiered.partition_at(tiered.rig.brokers[1])
        assert found is not None
        await until(
            lambda: (
                found.topic_partition in tiered.rig.brokers[1].replica_manager.recoveries.waiting
            )
        )
        assert (found.is_leader, found.log.log_end_offset) == (False, 0)
        tiered.bucket.faults.clear()
        await goes_on(tiered, end)

    run_tiered(test)


def test_a_replica_that_still_has_a_log_is_left_to_the_operator() -> None:
    """Its records may be more than those in the bucket, or other ones."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start(2)
        await until(lambda: len(tiered.partition.state.isr) == 2)  # type: ignore[union-attr]
        await tiered.fill(5)
        leader = tiered.leader
        assert leader is not None
        only = leader.options.broker_id
        behind = 3 - only
        await tiered.rig.stop_broker(behind)
        await tiered.fill(40)
        await tiered.tier()
        await tiered.rig.lose_power(only)
        await tiered.rig.report_broker_death(only)
        wipe(tiered, only)
        await tiered.rig.start_broker(only)
        await tiered.rig.start_broker(behind, new=False)
        control = tiered.rig.control
        state = control.image.partition(TP)
        assert state is not None
        assert (state.leader, state.isr, state.last_known) == (-1, (), ())
        # Both have reported: the one with records is elected when an operator asks for a leader.
        client = await tiered.rig.client(behind)
        await client.ask(ELECT_UNCLEAN)
        await until(lambda: tiered.leader is not None)
        assert tiered.leader is tiered.rig.brokers[behind]
        assert tiered.partition.log.log_end_offset == 5
        assert await tiered.read_all() == tiered.values[:5]

    run_tiered(test)


def test_an_empty_replica_that_the_operator_elects_goes_on_behind_the_bucket() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(2)
        await tiered.fill(40)
        await tiered.tier()
        end = tiered.partition.log.tiered_end_offset
        for broker_id in (1, 2):
            await tiered.rig.lose_power(broker_id)
            await tiered.rig.report_broker_death(broker_id)
        wipe(tiered, 1)
        await tiered.rig.start_broker(1)
        client = await tiered.client()
        await client.ask(ELECT_UNCLEAN)
        await goes_on(tiered, end)

    run_tiered(test)


def test_a_log_that_is_lost_twice_goes_on_behind_the_offsets_of_the_first_time() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(2)
        await until(lambda: len(tiered.partition.state.isr) == 2)  # type: ignore[union-attr]
        leader = tiered.leader
        assert leader is not None
        last = leader.options.broker_id
        behind = 3 - last
        await tiered.fill(3)
        await tiered.rig.lose_power(behind)
        await tiered.rig.report_broker_death(behind)
        wipe(tiered, behind)
        for _ in range(2):
            before = tiered.partition_at(leader)
            tiered.rig.disk_of(last).remove_folder(PARTITION_DIR % last)
            await until(lambda before=before: tiered.partition_at(leader) not in (None, before))
        await tiered.rig.start_broker(behind)
        await until(lambda: tiered.leader is leader)
        log = tiered.partition.log
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)

    run_tiered(test, log_dir_check_interval_ms="20")


def test_a_damaged_log_is_given_up_only_by_the_operator() -> None:
    """It has records that are not in the bucket yet, which may be saved."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(40)
        await tiered.tier()
        log, disk = tiered.partition.log, tiered.rig.disk
        end, active = log.tiered_end_offset, log.segments[-1].log_path
        dict(disk.files())[active].cut(disk.size(active) // 2)
        replica_manager = tiered.rig.brokers[1].replica_manager
        replica_manager.failures.suspect(TP)
        await until(lambda: replica_manager.failed.is_lost(TP))
        assert not replica_manager.failed.is_gone(TP)
        client = await tiered.client()
        await client.alter(ResourceType.BROKER, "1", lost_logs_accept="t-0")
        await until(lambda: replica_manager.failed.get(TP) is None and tiered.leader is not None)
        assert [name for name in disk.list("broker-1") if name.endswith("-lost")]
        await goes_on(tiered, end)

    run_tiered(test)


def test_producers_go_on_with_the_state_at_the_end_of_the_bucket() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        client = await tiered.client()

        async def produce(sequence: int) -> int:
            sent = batch(b"x" * 100, producer_id=7, producer_epoch=0, base_sequence=sequence)
            answer = await client.produce("t", sent)
            assert answer.error_code == 0
            return answer.base_offset

        assert [await produce(number) for number in range(40)] == list(range(40))
        await tiered.tier()
        end = tiered.partition.log.tiered_end_offset
        await lose_all(tiered, 1)
        await until(lambda: tiered.leader is not None)
        client = await tiered.client()
        assert await produce(end - 1) == end - 1, "it is known as a duplicate"
        assert await produce(end) == end

    run_tiered(test)


def test_a_damaged_producer_snapshot_does_not_stop_the_recovery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(40)
        log, disk = tiered.partition.log, tiered.rig.disk
        damaged = log.snapshot_name(log.segments[-1].base_offset)
        assert damaged is not None
        disk.put(f"{log.partition_dir}/{damaged}", b"no snapshot")
        await tiered.tier()
        end = tiered.partition.log.tiered_end_offset
        await lose_all(tiered, 1)
        await goes_on(tiered, end)
        (report,) = reports(caplog)
        assert report.endswith(
            "the state of producers: a batch that is sent again may be written twice"
        )

    run_tiered(test)


def test_a_broker_with_another_directory_is_another_leader_in_the_manifest() -> None:
    """Two clusters from one journal have a broker of this id each, and both may lead in one epoch:
    only one of them may change the manifest."""

    async def test(tiered: TieredRig) -> None:
        async def nonce() -> str:
            await until(lambda: tiered.leader is not None)
            await tiered.tier()
            manifest = ManifestLog(tiered.bucket, tiered.partition.topic_id, 0).load()
            assert manifest.leader_epoch == tiered.partition.leader_epoch
            return manifest.leader_nonce

        await tiered.start()
        await tiered.fill(20)
        first = await nonce()
        await tiered.rig.stop_broker()
        await tiered.rig.start_broker(new=False)
        assert await nonce() == first
        await lose_all(tiered, 1)
        assert await nonce() != first

    run_tiered(test)


@pytest.mark.parametrize("ahead", [0, 5])
def test_a_manifest_of_another_leader_of_a_later_epoch_or_the_same_one_is_not_begun_behind(
    ahead: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The journal is an old copy.  The epochs of the log's records would go back."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(20)
        await tiered.tier()
        partition = tiered.partition
        # Two more epochs: the controller fences the broker, and elects it again.
        last = partition.leader_epoch + 2 + ahead
        log = leader_log_of(partition.log)
        RemoteLogService(tiered.bucket, open_file_half).begin_leadership(
            remote_partition(partition), last, "newer", log, 0
        )
        await lose_all(tiered, 1)
        await until(lambda: "is not above leader epoch" in caplog.text)
        assert f"leader epoch {last - ahead} is not above leader epoch {last} of" in caplog.text
        assert "`sparklog restore`, which raises the leader epochs" in caplog.text
        assert tiered.leader is None
        assert (await tiered.rig.status())["remote_recoveries_waiting"] == 1

    run_tiered(test)
