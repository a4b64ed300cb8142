"""Followers that start where the bucket does not have the state of producers."""

from collections.abc import Callable

import pytest

from sparklog.remote_log.names import CLUSTER_FILE, INDEXES_SUFFIX
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.tiering.test_lost_everywhere import lose_all
from tests.unit.executors.tiering.test_tiering_settings import objects_of
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered

BROKERS = (1, 2, 3)


def damage_the_snapshot(tiered: TieredRig) -> None:
    """The file of the leader, before it is copied."""
    assert tiered.leader is not None
    log = tiered.partition.log
    name = log.snapshot_name(log.segments[-1].base_offset)
    assert name is not None
    disk = tiered.rig.disk_of(tiered.leader.options.broker_id)
    disk.put(f"{log.partition_dir}/{name}", b"no snapshot")


def delete_the_indexes(tiered: TieredRig) -> None:
    """Of all segments."""
    (topic,) = [name for name in tiered.bucket.list("") if name != CLUSTER_FILE]
    for name in objects_of(tiered):
        if name.endswith(INDEXES_SUFFIX):
            tiered.bucket.delete(f"{topic}/0/segments/{name}")


def nothing(tiered: TieredRig) -> None:
    """Everything is sound."""


def in_sync(tiered: TieredRig) -> set[int]:
    state = tiered.partition.state
    return set() if state is None else set(state.isr)


@pytest.mark.parametrize(
    ("before", "after"),
    [(nothing, nothing), (damage_the_snapshot, nothing), (nothing, delete_the_indexes)],
)
def test_followers_get_in_sync_after_a_recovery_without_the_state_of_producers(
    before: Callable[[TieredRig], None],
    after: Callable[[TieredRig], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing could be copied before they are, so no later segment has the state."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start(3, min_insync_replicas="2")
        await tiered.fill(40)
        before(tiered)
        await tiered.tier()
        after(tiered)
        end = tiered.partition.log.tiered_end_offset
        await lose_all(tiered, *BROKERS)
        await until(lambda: tiered.leader is not None)
        assert tiered.leader is not None
        assert tiered.leader.tiering is not None
        await tiered.leader.tiering.manager.look_after_all()
        await until(lambda: in_sync(tiered) == set(BROKERS))
        client = await tiered.rig.client(tiered.leader.options.broker_id)
        produced = await client.produce("t", batch(b"behind"), acks=-1)
        assert (produced.error_code, produced.base_offset) == (0, end)
        told = [each for each in caplog.messages if "without the state of producers" in each]
        assert bool(told) == (before is not nothing or after is not nothing)

    run_tiered(test)
