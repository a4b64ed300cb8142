"""What a restore would lose, as the journal says, and how the loss is told."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparklog.client.admin import Admin
from sparklog.client.cluster_client import ClusterClient
from sparklog.driver.cluster_lock import CLUSTER_LOCK_FILE
from sparklog.errors import ConfigError, StartError, StorageError
from sparklog.restoring import (
    RestoredTopic,
    RestorePlan,
    lead_all,
    plan_restore,
    restore,
    restore_planned,
)
from sparklog.storage_backends.local import LocalBackend
from sparklog.types import Endpoint
from tests.unit.driver.control_plane.damaged_journals import journal_of
from tests.unit.executors.broker.broker_rig import Rig, run
from tests.unit.executors.broker.test_journal_commands import stop_everything
from tests.unit.executors.tiering.test_lost_everywhere import lose_all
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered

BUCKET = "memory://bucket/log"


def test_topics_that_are_not_tiered_are_named() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker(1)
        await rig.start_broker(2)
        client = await rig.client()
        await client.create_topic("b", 2)
        await client.create_topic("a")
        await client.create_topic("c", 3, remote_storage_enable="true")
        await stop_everything(rig)
        journal_dir = f"memory://{rig.disk_name}/journal"
        with pytest.raises(StartError, match=r"records are lost: a, b; bring a disk back"):
            plan_restore(journal_dir, None, None, accept_loss=False)
        image = rig.control.image
        assert plan_restore(journal_dir, {}, {}, accept_loss=True) == RestorePlan(
            cluster_id=image.cluster_id,
            topic_ids=frozenset(image.topics[name].topic_id for name in "abc"),
            brokers=2,
            partitions={"b": 2, "a": 1, "c": 3},
            tiered=frozenset({"c"}),
        )

    run(test, remote_dir=BUCKET)


def test_a_cluster_that_runs_is_not_restored() -> None:
    """Its brokers would get empty directories, and their records would be lost."""

    async def test(rig: Rig) -> None:
        await rig.start_broker(1)
        journal_dir = f"memory://{rig.disk_name}/journal"
        plan = partial(plan_restore, journal_dir, None, None, accept_loss=True)
        with pytest.raises(StartError, match=r"runs: its controller answers at 127\.0\.0\.1:"):
            await asyncio.to_thread(plan)
        await stop_everything(rig)
        assert plan().brokers == 1

    run(test)


def test_a_journal_that_a_cluster_has_locked_is_not_restored(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path / "journal")
    journal_of(backend=backend)
    lock = backend.lock(CLUSTER_LOCK_FILE)
    with pytest.raises(StartError, match="a cluster uses "):
        plan_restore(backend.url, None, None, accept_loss=True)
    lock.release()
    assert plan_restore(backend.url, None, None, accept_loss=True).brokers == 3


def test_internal_topics_need_no_acceptance() -> None:
    plan = RestorePlan(
        cluster_id="c",
        topic_ids=frozenset(),
        brokers=1,
        partitions={"__consumer_offsets": 50, "t": 1},
        tiered=frozenset({"t"}),
    )
    assert plan.not_copied == []


def test_a_place_without_a_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="holds no journal; see `sparklog journal check"):
        plan_restore(tmp_path, None, None, accept_loss=True)


def test_places_that_could_not_be_used_are_refused_by_their_scheme(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="gs://bkt/x: no store of gs:// is known to create a"):
        plan_restore("gs://bkt/x", None, None, accept_loss=True)
    backend = LocalBackend(tmp_path / "journal")
    journal_of(backend=backend)
    plan = plan_restore(backend.url, None, None, accept_loss=True)
    with pytest.raises(StartError, match=r"remote_dir=gs://bkt/x cannot be used: .* is known to"):
        restore_planned(plan, lambda **_: pytest.fail("started"), remote_dir="gs://bkt/x")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"journal_dir": 5}, "^journal_dir=5: expected a folder or a URL"),
        (
            {"storage_options": "hunter2"},
            "^storage_options: expected a mapping .*, not str$",
        ),
        ({"settings": "x"}, "^settings: expected a mapping of names"),
        ({"remote_dir": 5}, "^remote_dir=5: expected a folder or a URL"),
        ({"brokers": "3"}, "^brokers='3': expected a whole number, not str$"),
    ],
)
def test_an_argument_of_the_wrong_type_is_named(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    backend = LocalBackend(tmp_path / "journal")
    journal_of(backend=backend)
    places = {"data_dir": tmp_path, "journal_dir": backend.url, "remote_dir": tmp_path / "remote"}
    with pytest.raises(ConfigError, match=message):
        restore(None, **{"accept_loss": True, **places, **arguments})


def topic(*, tiered: bool, emptied: int = 0, waiting: int = 0) -> RestoredTopic:
    return RestoredTopic(
        topic="t", partitions=3, tiered=tiered, offsets=7, emptied=emptied, waiting=waiting
    )


def test_what_is_lost_is_told() -> None:
    assert topic(tiered=True).lost == "what was not copied"
    assert topic(tiered=True, waiting=1).lost == "not known yet"
    assert topic(tiered=True, emptied=3).lost == "everything"
    assert (
        topic(tiered=True, emptied=1).lost
        == "everything in 1 of 3 partitions, and what was not copied of the others"
    )
    assert topic(tiered=False, emptied=3).lost == "everything"
    assert topic(tiered=False, emptied=1).lost == "everything in 1 of 3 partitions"
    assert topic(tiered=False).lost == "nothing"


@pytest.mark.parametrize(
    ("records", "emptied", "lost"), [(3, 1, "everything"), (40, 0, "what was not copied")]
)
def test_a_tiered_topic_of_which_nothing_was_copied_begins_empty(
    records: int, emptied: int, lost: str
) -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(records)
        await tiered.tier()
        copied = tiered.partition.log.tiered_end_offset
        await lose_all(tiered, 1)
        plan = RestorePlan(
            cluster_id="c",
            topic_ids=frozenset(),
            brokers=1,
            partitions={"t": 1},
            tiered=frozenset({"t"}),
        )
        async with ClusterClient([Endpoint("127.0.0.1", tiered.rig.control.port)]) as cluster:
            (found,) = await lead_all(Admin(cluster), plan)
        assert (found.emptied, found.offsets, found.lost) == (emptied, copied, lost)

    run_tiered(test)
