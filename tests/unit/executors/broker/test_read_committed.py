"""Transactions over the wire: what Fetch and ListOffsets answer, and what our own readers get.

There is no transaction coordinator, so batches and markers go to the partition itself.
"""

import asyncio
from dataclasses import dataclass

import pyarrow as pa
import pytest

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.consumer import Consumer, ConsumerOptions
from sparklog.dataframe.options.options import ReadOptions
from sparklog.dataframe.read.plan import OffsetRange
from sparklog.dataframe.read.reader import TopicReader
from sparklog.dataframe.schema import read_schema
from sparklog.errors import ErrorCode
from sparklog.executors.partition import Appended
from sparklog.executors.partition.partition import Partition
from sparklog.executors.partition.producer_state import TransactionEnd
from sparklog.executors.replica_manager.replica_manager import ReplicaManager
from sparklog.types import Endpoint, Isolation, OffsetSpec, TopicPartition
from sparklog.wire.protocol.messages.fetch import AbortedTransaction, FetchPartition, PartitionData
from sparklog.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from sparklog.wire.records.control import ControlType, EndTxnMarker
from tests.support.batches import batch
from tests.unit.executors.broker.broker_rig import Client, Rig, run

TP = TopicPartition("t", 0)
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
UNCOMMITTED, COMMITTED = Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED


@dataclass
class Writer:
    """Writes to the partition as a coordinator and its producers will."""

    replica_manager: ReplicaManager

    @property
    def partition(self) -> Partition:
        return self.replica_manager.find("t", 0)

    def data(self, pid: int, *values: bytes) -> None:
        entry = self.partition.producers.entries.get(pid)
        records = batch(
            *values,
            producer_id=pid,
            producer_epoch=0,
            base_sequence=0 if entry is None else entry.last_sequence + 1,
            transactional=True,
            timestamp=self.replica_manager.now_ms(),
        )
        self._done(
            self.partition.append_as_leader(
                records, acks=1, now_ms=self.replica_manager.now_ms(), verified=True
            )
        )

    def plain(self, *values: bytes) -> None:
        now_ms = self.replica_manager.now_ms()
        records = batch(*values, timestamp=now_ms)
        self._done(self.partition.append_as_leader(records, acks=1, now_ms=now_ms))

    def end(self, pid: int, kind: ControlType) -> None:
        end = TransactionEnd(
            producer_id=pid,
            producer_epoch=0,
            marker=EndTxnMarker(control_type=kind, coordinator_epoch=0),
        )
        self._done(self.partition.end_transaction(end, now_ms=self.replica_manager.now_ms()))

    def _done(self, appended: Appended) -> None:
        self.replica_manager.carry_out(appended.effects)


async def opened(rig: Rig) -> tuple[Client, Writer]:
    broker = await rig.start_broker()
    client = await rig.client()
    await client.create_topic("t", retention_ms="-1")
    await rig.leads(1)
    return client, Writer(broker.replica_manager)


def write_story(writer: Writer) -> None:
    """Offsets 0 to 8: two transactions of producer 1, the first aborted; one of 2, open."""
    writer.plain(b"a")
    writer.data(1, b"x", b"y")
    writer.plain(b"b")
    writer.end(1, ABORT)
    writer.data(1, b"c")
    writer.end(1, COMMIT)
    writer.data(2, b"open")
    writer.plain(b"behind")


async def fetched(
    client: Client, offset: int, isolation: Isolation, version: int = 11, **more: int
) -> PartitionData:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    response = await client.fetch_all(
        "t", (part,), version=version, isolation_level=int(isolation), **more
    )
    (topic,) = response.responses
    (data,) = topic.partitions
    assert data.error_code == 0
    return data


@pytest.mark.parametrize("version", [4, 5, 7, 11, 12])
def test_a_fetch_of_committed_data_ends_at_the_last_stable_offset(version: int) -> None:
    async def test(rig: Rig) -> None:
        client, writer = await opened(rig)
        write_story(writer)
        everything = await fetched(client, 0, UNCOMMITTED, version)
        stable = await fetched(client, 0, COMMITTED, version)
        assert everything.aborted_transactions is None
        assert stable.aborted_transactions == (AbortedTransaction(producer_id=1, first_offset=1),)
        for data in (everything, stable):
            assert (data.high_watermark, data.last_stable_offset) == (9, 7)
        whole, part = bytes(everything.records or b""), bytes(stable.records or b"")
        assert whole.startswith(part)
        assert 0 < len(part) < len(whole)
        # Behind the aborted transaction, and at the end.
        for offset in (5, 7):
            assert (await fetched(client, offset, COMMITTED, version)).aborted_transactions == ()
        writer.end(2, ABORT)
        behind = await fetched(client, 5, COMMITTED, version)
        assert (behind.high_watermark, behind.last_stable_offset) == (10, 10)
        assert behind.aborted_transactions == (AbortedTransaction(producer_id=2, first_offset=7),)

    run(test)


def test_a_delayed_fetch_of_committed_data_wakes_for_the_whole_transaction() -> None:
    async def test(rig: Rig) -> None:
        client, writer = await opened(rig)
        writer.data(1, b"x" * 3000)
        asked = asyncio.create_task(
            fetched(client, 0, COMMITTED, min_bytes=2000, max_wait_ms=20_000)
        )
        while not len(writer.replica_manager.delayed_operations.consumer_fetches):
            await asyncio.sleep(0.005)
        writer.end(1, COMMIT)
        data = await asyncio.wait_for(asked, 18)
        assert len(bytes(data.records or b"")) > 3000

    run(test)


def test_list_offsets_answers_by_isolation() -> None:
    async def test(rig: Rig) -> None:
        client, writer = await opened(rig)
        write_story(writer)
        found = {}
        for isolation in Isolation:
            for timestamp in (OffsetSpec.LATEST, OffsetSpec.EARLIEST):
                part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
                response = await client.ask(
                    ListOffsetsRequest(
                        replica_id=-1,
                        isolation_level=int(isolation),
                        topics=(ListOffsetsTopic(name="t", partitions=(part,)),),
                    ),
                    version=7,
                )
                found[isolation, timestamp] = response.topics[0].partitions[0].offset
        assert found == {
            (UNCOMMITTED, OffsetSpec.LATEST): 9,
            (UNCOMMITTED, OffsetSpec.EARLIEST): 0,
            (COMMITTED, OffsetSpec.LATEST): 7,
            (COMMITTED, OffsetSpec.EARLIEST): 0,
        }

    run(test)


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [
        (COMMITTED, [(0, b"a"), (3, b"b"), (5, b"c")]),
        (
            UNCOMMITTED,
            [(0, b"a"), (1, b"x"), (2, b"y"), (3, b"b"), (5, b"c"), (7, b"open"), (8, b"behind")],
        ),
    ],
)
def test_our_consumer_gives_committed_records_and_no_markers(
    isolation: Isolation, expected: list[tuple[int, bytes]]
) -> None:
    async def test(rig: Rig) -> None:
        _, writer = await opened(rig)
        write_story(writer)
        endpoint = Endpoint("127.0.0.1", rig.brokers[1].port)
        async with ClusterClient([endpoint]) as cluster:
            options = ConsumerOptions(isolation=isolation, max_wait_ms=50)
            async with Consumer(cluster, options) as consumer:
                await consumer.assign([TP])
                end = 7 if isolation is COMMITTED else 9
                found: list[tuple[int, bytes | None]] = []
                while consumer.position(TP) < end:
                    found += [(r.offset, r.value) for r in await consumer.poll(5)]
                assert found == expected

    run(test)


def test_a_data_frame_reads_committed_records() -> None:
    async def test(rig: Rig) -> None:
        _, writer = await opened(rig)
        write_story(writer)
        options = ReadOptions(
            bootstrap=(Endpoint("127.0.0.1", rig.brokers[1].port),), topics=("t",)
        )

        def read() -> list[tuple[int, bytes]]:
            reader = TopicReader(options, read_schema(include_headers=False))
            (planned,) = reader.partitions()
            topic_id = planned.value.topic_id
            whole = OffsetRange(topic_partition=TP, start=0, end=7, topic_id=topic_id)
            assert planned.value == whole
            rows = pa.Table.from_batches(list(reader.read(planned))).to_pylist()
            return [(row["offset"], row["value"]) for row in rows]

        assert await asyncio.to_thread(read) == [(0, b"a"), (3, b"b"), (5, b"c")]

    run(test)


def test_only_batches_of_an_open_transaction_need_no_transactional_id() -> None:
    async def test(rig: Rig) -> None:
        client, writer = await opened(rig)
        writer.data(1, b"x")
        inside = batch(b"y", producer_id=1, producer_epoch=0, base_sequence=1, transactional=True)
        control = batch(b"y", producer_id=1, producer_epoch=0, base_sequence=1, control=True)
        codes = [
            ErrorCode((await client.produce("t", data)).error_code) for data in (inside, control)
        ]
        assert codes == [ErrorCode.NONE, ErrorCode.INVALID_RECORD]
        assert writer.partition.log.log_end_offset == 2
        foreign = batch(b"z", producer_id=2, producer_epoch=0, base_sequence=0, transactional=True)
        refused = ErrorCode((await client.produce("t", foreign)).error_code)
        assert refused == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert writer.partition.log.log_end_offset == 2

    run(test)
