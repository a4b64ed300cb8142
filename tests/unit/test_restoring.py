"""What a restore would lose, as the journal says, and how the loss is told."""

from pathlib import Path

import pytest

from sparklog.errors import StartError
from sparklog.restoring import RestoredTopic, RestorePlan, plan_restore
from tests.unit.executors.broker.broker_rig import Rig, run

BUCKET = "memory://bucket/log"


def test_topics_that_are_not_tiered_are_named() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker(1)
        await rig.start_broker(2)
        client = await rig.client()
        await client.create_topic("b", 2)
        await client.create_topic("a")
        await client.create_topic("c", 3, remote_storage_enable="true")
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


def topic(*, tiered: bool, emptied: int = 0, waiting: int = 0) -> RestoredTopic:
    return RestoredTopic(
        topic="t", partitions=3, tiered=tiered, offsets=7, emptied=emptied, waiting=waiting
    )


def test_what_is_lost_is_told() -> None:
    assert topic(tiered=True).lost == "what was not copied"
    assert topic(tiered=True, waiting=1).lost == "not known yet"
    assert topic(tiered=False, emptied=3).lost == "everything"
    assert topic(tiered=False, emptied=1).lost == "everything in 1 of 3 partitions"
    assert topic(tiered=False).lost == "nothing"
