"""Clean elections of tiered partitions: what was committed stays on every in-sync replica."""

from types import SimpleNamespace
from typing import Any

from sparklog.executors.log import EpochEntry
from sparklog.executors.tiering.metrics import TieringMetrics
from sparklog.executors.tiering.remote_log_manager import RemoteLogManager
from tests.unit.executors.partition.replica_trio import Trio
from tests.unit.executors.partition.test_tiered_followers import (
    drop_local,
    moved,
    snapshot_at,
    start_at,
    starts,
)


def test_an_in_sync_replica_whose_files_begin_at_the_divergence_keeps_its_end() -> None:
    """Replica 1 leads with six committed records, all only in the bucket, and one that is not
    replicated.  Leadership moves to 2, and both stay in sync: 1 may lead again at any time."""
    trio = Trio(2, segment_bytes=100, remote_storage_enable=True, retention_ms=-1)
    trio.elect(1)
    for number in range(6):
        trio.append(b"%d" % number, sequence=number, producer_id=7, epoch=0)
    trio.catch_up(2)
    assert trio[1].high_watermark == 6
    trio.append(b"not replicated")
    drop_local(trio, 1, 6)
    trio.elect(2)
    assert trio.state.isr == (1, 2)
    trio.append(b"new")
    trio.fetch(1)  # it is told where its log diverges
    follower = trio[1]
    assert starts(follower) == (0, 6, 6), "an in-sync replica has dropped committed records"
    assert follower.log.leader_epochs.entries == (EpochEntry(0, 0),)
    assert follower.producers.to_snapshot() == snapshot_at(trio, 6)
    trio.catch_up(1)
    assert starts(follower) == (0, 6, 7)
    assert follower.log.leader_epochs.entries == trio[2].log.leader_epochs.entries
    assert follower.producers.to_snapshot() == trio[2].producers.to_snapshot()


def test_a_role_that_waits_for_a_truncation_forgets_what_the_bucket_had() -> None:
    """The steps are those of ``RoleChanges.update``."""
    listeners: list[Any] = []
    events = SimpleNamespace(add_role_listener=listeners.append)
    manager = RemoteLogManager(
        SimpleNamespace(replication_events=events),  # type: ignore[arg-type]
        SimpleNamespace(),  # type: ignore[arg-type]
        ask_leader=None,  # type: ignore[arg-type]
        ask_replicas=None,  # type: ignore[arg-type]
        random_bytes=bytes,
        metrics=TieringMetrics(),
    )
    trio = moved()
    follower = trio[1]
    follower.log.tiered_end_offset = 2  # as the leader of this epoch has said
    assert follower.begin_start_in_tier(start_at(trio), leader_epoch=2)
    held = follower.state
    trio.elect(2)  # waits for the truncation
    manager.role_changed(follower, held)
    trio.finish_truncation(1)
    assert follower.leader_epoch == 3
    assert follower.log.tiered_end_offset == 0
