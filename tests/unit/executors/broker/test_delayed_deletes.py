"""DeleteRecords of a partition with several replicas: answered when all have let go."""

import asyncio
import socket
from uuid import UUID

from sparklog.client.connection import Connection
from sparklog.errors import ErrorCode
from sparklog.metadata import PartitionImage
from sparklog.types import Endpoint
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig, run

LONG_MS = 20_000
FOLLOWER = 2


class Follower:
    """Fetches as a replica of another broker does, without a log behind it."""

    def __init__(self, connection: Connection, topic_id: UUID) -> None:
        self.connection = connection
        self.topic_id = topic_id

    @classmethod
    async def of(cls, rig: Rig) -> "Follower":
        connection = await Connection.open(
            Endpoint("127.0.0.1", rig.brokers[1].port),
            client_id="follower",
            secret=rig.control.secret,
            timeout_s=30,
        )
        return cls(connection, rig.control.image.topics["t"].topic_id)

    async def fetch(self, end: int, start: int, *, max_wait_ms: int = 0) -> int:
        """Bytes of the answer."""
        part = FetchPartition(
            partition=0, fetch_offset=end, log_start_offset=start, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=FOLLOWER),
            topics=(FetchTopic(topic_id=self.topic_id, partitions=(part,)),),
            min_bytes=1,
            max_wait_ms=max_wait_ms,
        )
        response = await self.connection.request(request, timeout_s=30)
        assert isinstance(response, FetchResponse)
        ((data,),) = [topic.partitions for topic in response.responses]
        assert data.error_code == 0
        return len(bytes(data.records or b""))


async def replicated(rig: Rig) -> tuple[Client, Follower]:
    """Broker 1 leads; broker 2 lives, but its replica is the test's follower."""
    await rig.start_broker()
    await rig.start_broker(FOLLOWER)
    client = await rig.client()
    await client.create_topic("t")
    await until(
        lambda: sum(p.is_leader for b in rig.brokers.values() for p in b.replica_manager) == 1
    )
    leader = next(i for i, b in rig.brokers.items() if any(p.is_leader for p in b.replica_manager))
    assert leader == 1
    (partition,) = rig.brokers[1].replica_manager
    assert partition.state is not None
    both = PartitionImage(
        replicas=(1, FOLLOWER),
        isr=(1, FOLLOWER),
        last_known=(1, FOLLOWER),
        leader=1,
        leader_epoch=partition.state.leader_epoch,
        partition_epoch=partition.state.partition_epoch + 1000,  # the image's does not replace it
    )
    rig.brokers[1].replica_manager.carry_out(partition.make_leader_or_follower(both, 0))
    follower = await Follower.of(rig)
    for _ in range(3):
        await client.produce("t", batch(b"a"), acks=1)
    await follower.fetch(3, 0)
    assert partition.high_watermark == 3
    return client, follower


async def delete(client: Client, offset: int, timeout_ms: int) -> DeleteRecordsPartitionResult:
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name="t", partitions=(wanted,))
    response = await client.ask(DeleteRecordsRequest(topics=(topic,), timeout_ms=timeout_ms))
    (result,) = response.topics[0].partitions
    assert isinstance(result, DeleteRecordsPartitionResult)
    return result


def test_it_waits_for_the_followers_log_start() -> None:
    async def test(rig: Rig) -> None:
        client, follower = await replicated(rig)
        replica_manager = rig.brokers[1].replica_manager
        deleting = asyncio.create_task(delete(client, 2, LONG_MS))
        await until(lambda: len(replica_manager.delayed_operations.delete_records) == 1)
        assert (await rig.status())["delayed_deletes"] == 1
        await follower.fetch(3, 1)
        assert not deleting.done()
        await follower.fetch(3, 2)
        assert await deleting == DeleteRecordsPartitionResult(partition_index=0, low_watermark=2)
        assert (
            len(replica_manager.delayed_operations.delete_records),
            replica_manager.delayed_operations.timers.armed,
        ) == (0, False)
        follower.connection.close()

    run(test)


def test_it_waits_so_long_and_no_longer() -> None:
    async def test(rig: Rig) -> None:
        client, follower = await replicated(rig)
        late = DeleteRecordsPartitionResult(
            partition_index=0, low_watermark=0, error_code=ErrorCode.REQUEST_TIMED_OUT
        )
        assert await delete(client, 2, 20) == late
        assert await delete(client, 2, 0) == late
        await follower.fetch(3, 2)
        assert await delete(client, 2, 0) == DeleteRecordsPartitionResult(
            partition_index=0, low_watermark=2
        )
        follower.connection.close()

    run(test)


def test_brokers_that_are_gone_are_not_waited_for() -> None:
    async def test(rig: Rig) -> None:
        client, follower = await replicated(rig)
        replica_manager = rig.brokers[1].replica_manager
        deleting = asyncio.create_task(delete(client, 2, LONG_MS))
        await until(lambda: len(replica_manager.delayed_operations.delete_records) == 1)
        await rig.stop_broker(FOLLOWER)
        assert await deleting == DeleteRecordsPartitionResult(partition_index=0, low_watermark=2)
        follower.connection.close()

    run(test)


def test_a_leader_that_is_deposed_says_so_and_one_that_lost_its_client_forgets() -> None:
    async def test(rig: Rig) -> None:
        client, follower = await replicated(rig)
        replica_manager = rig.brokers[1].replica_manager
        gone = await rig.client()
        leaving = asyncio.create_task(delete(gone, 1, LONG_MS))
        await until(lambda: len(replica_manager.delayed_operations.delete_records) == 1)
        deleting = asyncio.create_task(delete(client, 2, LONG_MS))
        await until(lambda: len(replica_manager.delayed_operations.delete_records) == 2)
        # Cut, because whoever closed its half alone is still owed the answer.
        assert gone.connection._transport is not None
        sock = gone.connection._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        gone.connection.abort()
        await asyncio.gather(leaving, return_exceptions=True)
        await until(lambda: len(replica_manager.delayed_operations.delete_records) == 1)
        (partition,) = replica_manager
        replica_manager.carry_out(partition.drop_role())
        assert await deleting == DeleteRecordsPartitionResult(
            partition_index=0, low_watermark=-1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        assert rig.brokers[1].status()["request_errors"] == 0
        follower.connection.close()

    run(test)


def test_a_follower_is_woken_by_what_it_lacks() -> None:
    async def test(rig: Rig) -> None:
        client, follower = await replicated(rig)
        replica_manager = rig.brokers[1].replica_manager
        waiting = asyncio.create_task(follower.fetch(3, 0, max_wait_ms=LONG_MS))
        await until(lambda: len(replica_manager.delayed_operations.follower_fetches) == 1)
        records = batch(b"b")
        await client.produce("t", records, acks=1)
        assert await waiting == len(records)
        follower.connection.close()

    run(test)


def test_of_a_partition_that_is_named_several_times_the_last_target_counts() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t")
        await rig.leads(1)
        for _ in range(3):
            await client.produce("t", batch(b"a"))
        wanted = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (3, 2, 1)]
        topics = (
            DeleteRecordsTopic(name="t", partitions=tuple(wanted[:2])),
            DeleteRecordsTopic(name="t", partitions=tuple(wanted[2:])),
        )
        response = await client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=LONG_MS))
        reached = DeleteRecordsPartitionResult(partition_index=0, low_watermark=1)
        assert response.topics == (DeleteRecordsTopicResult(name="t", partitions=(reached,)),)
        for _ in range(2):
            (partition,) = rig.brokers[1].replica_manager
            assert partition.log.log_start_offset == 1
            await rig.crash_broker(1)
            await rig.start_broker(1, new=False)
            await rig.leads(1)

    run(test)
