"""DataFrames that were planned before an unclean election, and go on reading after it."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from sparklog.config.broker import BrokerConfig
from sparklog.dataframe.read import PushdownTopicReader, segment_source
from sparklog.dataframe.schema import read_schema
from sparklog.wire.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.tiering.tiered_dataframes import options
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered

UNCLEAN = 1
#: The URLs of a plan are older than that when a task uses them.
LATER_MS = 2 * BrokerConfig().remote_signed_url_lifetime_ms


def later_ms() -> int:
    return time.time_ns() // 1_000_000 + LATER_MS


async def elect(tiered: TieredRig, broker_id: int) -> None:
    """Let the only broker that is left lead."""
    client = await tiered.rig.client(broker_id)
    chosen = TopicPartitions(topic="t", partitions=(0,))
    request = ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=(chosen,))

    def leads() -> bool:
        leader = tiered.leader
        return leader is not None and leader.options.broker_id == broker_id

    while not leads():
        await client.ask(request)
        await asyncio.sleep(0.05)


def test_a_plan_with_old_urls_reads_what_the_new_leader_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heir has its files from the first offset on, and has not taken the manifest over."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start(2)
        await tiered.fill(10)
        await until(lambda: tiered.partition.high_watermark == 10)
        leader = tiered.leader
        assert leader is not None
        old, heir = leader.options.broker_id, 3 - leader.options.broker_id
        await until(lambda: all(p.log.log_end_offset == 10 for p in partitions(tiered)))
        await tiered.rig.stop_broker(heir)
        await tiered.fill(40)
        await tiered.tier()
        reader = PushdownTopicReader(options(tiered), read_schema(include_headers=False))
        planned = await asyncio.to_thread(lambda: list(reader.partitions()))
        await tiered.rig.crash_broker(old)
        await tiered.rig.report_broker_death(old)
        await tiered.rig.start_broker(heir, new=False)
        await elect(tiered, heir)
        client = await tiered.rig.client(heir)
        for number in range(40):
            result = await client.produce("t", batch(b"NEW%03d" % number, b"y" * 100), acks=-1)
            assert result.error_code == 0

        def rows() -> list[tuple[int, Any]]:
            return [
                (offset, value)
                for each in planned
                for found in reader.read(each)
                for offset, value in zip(
                    found.column("offset").to_pylist(),
                    found.column("value").to_pylist(),
                    strict=True,
                )
            ]

        found = await asyncio.to_thread(rows)
        assert [offset for offset, _ in found] == list(range(50))
        behind = [value for offset, value in found if offset >= 10]
        assert all(value.startswith((b"NEW", b"y")) for value in behind)

    monkeypatch.setattr(segment_source.SegmentSource.__init__, "__defaults__", (later_ms,))
    run_tiered(test, remote_dir=str(tmp_path))


def partitions(tiered: TieredRig) -> list[Any]:
    return [tiered.partition_at(broker) for broker in tiered.rig.brokers.values()]
