"""What the tests of tiered topics share: a bucket in memory, and reads of a whole topic."""

import itertools
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

from sparklog.executors.broker import Broker
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager import apply_local_retention
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_disk import forget_disk, named_disk
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from sparklog.wire.protocol.messages.fetch import FetchPartition
from sparklog.wire.records.builder import decode_records
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig, idle_remote_log_managers, run

_names = itertools.count()


class TieredRig:
    """A rig whose cluster has a bucket.  ``values`` are the values that topic ``t`` was given."""

    def __init__(self, rig: Rig, bucket_name: str) -> None:
        self.rig = rig
        self.bucket = MemoryBackend(named_disk(bucket_name), "log")
        self.values: list[bytes] = []

    async def start(self, brokers: int = 1, **configs: str) -> None:
        for broker_id in range(1, brokers + 1):
            await self.rig.start_broker(broker_id)
        client = await self.client()
        await client.create_topic(
            "t",
            replication_factor=brokers,
            segment_bytes="1000",
            remote_storage_enable="true",
            retention_ms="-1",
            **{"local_retention_bytes": "1000"} | configs,
        )
        await until(lambda: self.leader is not None)

    @property
    def leader(self) -> Broker | None:
        return next(
            (
                broker
                for broker in self.rig.brokers.values()
                if (found := self.partition_at(broker)) is not None and found.is_leader
            ),
            None,
        )

    @staticmethod
    def partition_at(broker: Broker) -> Partition | None:
        return broker.replica_manager.get(TopicPartition("t", 0))

    @property
    def partition(self) -> Partition:
        """The leader's."""
        leader = self.leader
        assert leader is not None
        found = self.partition_at(leader)
        assert found is not None
        return found

    async def client(self) -> Client:
        return await self.rig.client(next(iter(self.rig.brokers)))

    async def fill(self, count: int) -> None:
        """Produce records, of which six make a segment."""
        assert self.leader is not None
        client = await self.rig.client(self.leader.options.broker_id)
        for _ in range(count):
            value = b"%06d" % len(self.values) + b"x" * 100
            answer = await client.produce("t", batch(value), acks=-1)
            assert answer.error_code == 0
            self.values.append(value)

    async def delete_records(self, offset: int) -> None:
        assert self.leader is not None
        client = await self.rig.client(self.leader.options.broker_id)
        part = DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsTopic(name="t", partitions=(part,))
        answer = await client.ask(DeleteRecordsRequest(topics=(topic,), timeout_ms=5000))
        assert answer.topics[0].partitions[0].error_code == 0

    async def tier(self) -> None:
        """Copy everything that is sealed, and delete what may go from the disks."""
        await self.settle()
        for broker in self.rig.brokers.values():
            assert broker.tiering is not None
            await broker.tiering.manager.look_after_all()
        for broker in self.rig.brokers.values():
            await apply_local_retention(broker.replica_manager)

    async def settle(self) -> None:
        """Wait until every sealed segment is durable, replicated and measured."""
        log = self.partition.log
        await until(
            lambda: (
                self.partition.durable_stable_offset >= log.segments[-1].base_offset
                and not any(segment.stats_pending for segment in log.segments)
            )
        )

    async def read_all(self, start: int = 0) -> list[bytes]:
        """The values of the topic from an offset on, as a client reads them."""
        assert self.leader is not None
        client = await self.rig.client(self.leader.options.broker_id)
        found: list[bytes] = []
        offset = start
        while offset < self.partition.high_watermark:
            part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            response = await client.fetch_all("t", (part,), max_wait_ms=5_000)
            ((data,),) = [topic.partitions for topic in response.responses]
            assert data.error_code == 0
            for record in decode_records(bytes(data.records or b"")):
                if record.offset >= offset:
                    assert record.offset == offset
                    found.append(record.value or b"")
                    offset += 1
        return found


def run_tiered(
    test: Callable[[TieredRig], Awaitable[None]], *, looks_itself: bool = False, **settings: str
) -> None:
    """Run a test with a fresh cluster and bucket.

    ``looks_itself``: brokers look after their partitions, not only when the test says so.
    """
    name = f"bucket-{next(_names)}"

    async def within(rig: Rig) -> None:
        await test(TieredRig(rig, name))

    values: dict[str, Any] = {"remote_dir": f"memory://{name}/log"}
    manual = nullcontext() if looks_itself else idle_remote_log_managers()
    try:
        with manual:
            run(within, **values | {"remote_log_manager_task_interval_ms": "3600000"} | settings)
    finally:
        forget_disk(name)
