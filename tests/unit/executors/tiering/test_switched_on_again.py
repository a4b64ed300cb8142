"""A topic that was switched off while the cluster had no remote_dir, and is switched on again."""

from sparklog.executors.replica_manager import apply_retention
from tests.unit.executors.tiering.test_leaving import OFF, ON
from tests.unit.executors.tiering.test_tiering_settings import set_topic
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered


async def restart(tiered: TieredRig, remote_dir: str) -> None:
    """Start the cluster again with a remote_dir, or without one."""
    rig = tiered.rig
    await rig.stop_broker()
    await rig.stop_control()
    rig.settings["remote.dir"] = remote_dir
    await rig.start_control()
    await rig.start_broker(new=False)
    await rig.leads(1)


def test_a_topic_that_was_switched_off_without_the_bucket_is_switched_on_in_time() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        remote_dir = tiered.rig.settings["remote.dir"]
        await tiered.fill(40)
        await tiered.tier()
        assert tiered.partition.log.local_log_start_offset > 0
        await restart(tiered, "")
        await set_topic(tiered, **OFF)
        (broker,) = tiered.rig.brokers.values()
        apply_retention(broker.replica_manager)
        await set_topic(tiered, **ON)
        apply_retention(broker.replica_manager)
        await tiered.fill(20)
        await restart(tiered, remote_dir)
        await tiered.tier()
        assert await tiered.read_all() == tiered.values

    run_tiered(test)
