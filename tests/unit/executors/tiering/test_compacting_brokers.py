"""A tiered topic on brokers that compact by default: no record of it is lost."""

from sparklog.executors.broker import Broker
from sparklog.executors.replica_manager import apply_retention
from sparklog.types import ResourceType
from sparklog.wire.records.builder import Record, encode_batch
from tests.support.waiting import until
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered

COMPACT = {"log.cleanup.policy": "compact", "log.cleaner.min.cleanable.ratio": "0.01"}


async def start_compacting(tiered: TieredRig) -> Broker:
    """Start a broker that has other defaults than the control plane, which would refuse them."""
    broker = await tiered.rig.start_broker(1, settings={**tiered.rig.settings, **COMPACT})
    client = await tiered.client()
    await client.create_topic(
        "t",
        segment_bytes="1000",
        remote_storage_enable="true",
        local_retention_bytes="1000",
    )
    await until(lambda: tiered.leader is not None)
    return broker


async def fill_keyed(tiered: TieredRig, count: int) -> None:
    """Produce records that all have the same key."""
    client = await tiered.client()
    for _ in range(count):
        value = b"%06d" % len(tiered.values) + b"x" * 100
        answer = await client.produce("t", encode_batch([Record(key=b"k", value=value)]), acks=-1)
        assert answer.error_code == 0
        tiered.values.append(value)


def test_the_log_cleaner_leaves_it_alone_and_retention_goes_on() -> None:
    async def test(tiered: TieredRig) -> None:
        broker = await start_compacting(tiered)
        await fill_keyed(tiered, 60)
        await tiered.tier()
        await fill_keyed(tiered, 60)
        await tiered.settle()
        log = tiered.partition.log
        await until(lambda: log.recovery_point >= log.segments[-1].base_offset)
        while await broker.log_cleaner.clean_next():
            pass
        assert await tiered.read_all() == tiered.values
        client = await tiered.client()
        await client.alter(ResourceType.TOPIC, "t", retention_bytes="4000")
        await until(lambda: tiered.partition.config.retention_bytes == 4000)
        await tiered.tier()
        apply_retention(broker.replica_manager)
        assert log.log_start_offset > 60
        assert await tiered.read_all(log.log_start_offset) == tiered.values[log.log_start_offset :]

    run_tiered(test, log_cleaner_enable="false")
