"""Tiered partitions that lose every log before anything was copied: the loss is reported."""

import pytest

from tests.support.waiting import until
from tests.unit.executors.tiering.test_lost_everywhere import PARTITION_DIR, lose_all, reports
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered


def nothing_left(tiered: TieredRig) -> str:
    """The report of a loss without a trace: no log, no checkpoint and no object is left."""
    return (
        "unclean recovery of t-0, of which no replica had a log: the remote_dir has no records of "
        f"it; leader epoch {tiered.partition.leader_epoch} begins at offset 0; any records that it "
        "had are lost"
    )


@pytest.mark.parametrize("brokers", [1, 2])
def test_the_loss_of_all_records_is_reported(
    brokers: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(brokers)
        await tiered.fill(3)
        await lose_all(tiered, *range(1, brokers + 1))
        await until(lambda: tiered.leader is not None)
        assert tiered.partition.log.log_end_offset == 0
        assert reports(caplog) == [nothing_left(tiered)]
        assert tiered.rig.control.status()["unclean_recoveries"] == 1
        assert tiered.leader is not None
        status = await tiered.rig.status(tiered.leader.options.broker_id)
        assert status["remote_recoveries"] == 1
        del tiered.values[:]
        await tiered.fill(20)
        assert await tiered.read_all() == tiered.values

    run_tiered(test)


def test_a_new_leader_of_a_topic_that_never_had_a_record_reports_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(2)
        await until(lambda: len(tiered.partition.state.isr) == 2)  # type: ignore[union-attr]
        epoch = tiered.partition.leader_epoch
        for broker_id in (1, 2):
            await tiered.rig.lose_power(broker_id)
            await tiered.rig.report_broker_death(broker_id)
        for broker_id in (2, 1):
            await tiered.rig.start_broker(broker_id, new=False)
        await until(lambda: tiered.leader is not None)
        assert tiered.partition.leader_epoch > epoch
        await tiered.rig.stop_broker(1)
        await until(lambda: tiered.leader is not None)
        assert reports(caplog) == []

    run_tiered(test)


def test_offsets_go_on_behind_a_lost_log_of_which_nothing_was_copied(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(3)
        before = tiered.partition
        tiered.rig.disk.remove_folder(PARTITION_DIR % 1)
        await until(lambda: tiered.leader is not None and tiered.partition is not before)
        log = tiered.partition.log
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)
        assert (await tiered.rig.status())["remote_recoveries_lost_offsets"] == 3
        (report,) = reports(caplog)
        assert "the remote_dir has no records of it; leader epoch" in report
        assert report.endswith(
            "begins at offset 3; of the offsets that are known to have been used, 3 are lost"
        )
        await tiered.fill(20)
        await tiered.tier()
        assert await tiered.read_all(3) == tiered.values[3:]

    run_tiered(test, log_dir_check_interval_ms="20")


def test_an_empty_topic_gets_a_leader_with_a_new_disk(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is left that could say that the topic was empty, so the report does not say more."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await lose_all(tiered, 1)
        await until(lambda: tiered.leader is not None)
        assert reports(caplog) == [nothing_left(tiered)]
        await tiered.tier()
        leader, partition = tiered.leader, tiered.partition
        assert leader is not None
        assert leader.tiering is not None
        # It is asked again while the log is empty; the manifest is its own by now.
        find_end = leader.replica_manager.recoveries.find_end
        assert await find_end(partition, partition.leader_epoch) is not None
        await tiered.fill(20)
        assert await tiered.read_all() == tiered.values

    run_tiered(test)
