"""A transactional producer of raw requests, against the control plane and the broker of a rig.

Owns: the producer's identity and its sequences, the answers as codes and offsets, and a gate before
the broker's questions to the coordinator.  Must not know what a test expects.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence

from sparklog.errors import ErrorCode
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager import VerifyTransaction
from sparklog.transport import connect
from sparklog.types import Endpoint, TopicPartition
from sparklog.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from sparklog.wire.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.protocol.messages.fetch import FetchPartition
from sparklog.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from sparklog.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog.wire.protocol.produce import encode_produce_request
from sparklog.wire.records.aborted import AbortedFilter
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import Record, decode_batch, encode_batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig

ID = "pays"
#: Settings of a rig with one broker and a small coordinator.
SETTINGS = {
    "transaction_state_log_num_partitions": "1",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
}
#: Produce versions: of clients that add partitions themselves, of those that also know
#: TRANSACTION_ABORTABLE, and of clients whose partitions are added by the broker.
OLD, ABORTABLE, NEW = 10, 11, 12
#: EndTxn versions before the epoch bump, and with it.
OLD_END, NEW_END = 4, 5
READ_COMMITTED = 1
#: Code, base offset.
Answer = tuple[ErrorCode, int]
_NOT_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Producer:
    """``client`` asks the broker, ``node_0`` the coordinator."""

    def __init__(self, rig: Rig, client: Client, node_0: Client, transactional_id: str) -> None:
        self.rig = rig
        self.client = client
        self.node_0 = node_0
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        #: The next sequence by partition.
        self.sequences: dict[int, int] = defaultdict(int)

    @classmethod
    async def open(cls, rig: Rig, partitions: int = 1, **configs: str) -> "Producer":
        """A producer with the topic ``t``."""
        await rig.with_topic(partitions, **configs)
        return await cls.another(rig)

    @classmethod
    async def another(cls, rig: Rig, transactional_id: str = ID) -> "Producer":
        """A producer with connections of its own."""
        node_0 = await client_of_node_0(rig)
        producer = cls(rig, await rig.client(), node_0, transactional_id)
        await producer.initialize()
        return producer

    # the coordinator

    async def initialize(self) -> None:
        while (code := await self.try_initialize()) in _NOT_YET:
            await asyncio.sleep(0.01)
        assert code == ErrorCode.NONE

    async def try_initialize(self, timeout_ms: int = 60_000) -> ErrorCode:
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=(self.transactional_id,))
        (coordinator,) = (await self.node_0.ask(find, 4)).coordinators
        if coordinator.error_code:
            return ErrorCode(coordinator.error_code)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
        )
        answer = await self.node_0.ask(request, 4)
        if answer.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    async def add(self, *partitions: int) -> None:
        assert set(await self.try_add(*partitions)) == {ErrorCode.NONE}

    async def try_add(self, *partitions: int) -> list[ErrorCode]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name="t", partitions=partitions),),
        )
        (topic,) = (await self.node_0.ask(request, 3)).results_by_topic_v3_and_below
        return [ErrorCode(part.partition_error_code) for part in topic.results_by_partition]

    async def end(self, version: int, *, committed: bool = True) -> None:
        assert await self.try_end(version, committed=committed) == ErrorCode.NONE

    async def try_end(self, version: int, *, committed: bool = True) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        answer: EndTxnResponse = await self.node_0.ask(request, version)
        if answer.error_code == ErrorCode.NONE and version >= NEW_END:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    # the broker

    def batch(
        self, *values: bytes, partition: int = 0, transactional: bool = True, epoch: int = -1
    ) -> bytes:
        """The next batch of a partition."""
        first = self.sequences[partition]
        self.sequences[partition] += len(values)
        now_ms = self.rig.brokers[1].replica_manager.now_ms()
        records = [Record(key=b"k", value=value, timestamp=now_ms) for value in values]
        return encode_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch < 0 else epoch,
            base_sequence=first,
            transactional=transactional,
        )

    async def produce(self, *values: bytes, version: int, partition: int = 0) -> Answer:
        """Send the next batch of a partition with acks=all."""
        return await self.send(self.batch(*values, partition=partition), version, partition)

    async def send(self, records: bytes, version: int, partition: int = 0) -> Answer:
        (answer,) = answers_of(await self.ask({partition: records}, version))
        return answer

    async def ask(self, records: dict[int, bytes], version: int, acks: int = -1) -> ProduceResponse:
        """The response to one request with a batch for each partition."""
        return await self.client.ask_produce(self.request(records, acks), version)

    async def send_without_acks(self, records: bytes, version: int) -> None:
        request = self.request({0: records}, acks=0)
        await self.client.connection.send(encode_produce_request(version, 6, "t", request))

    def request(self, records: dict[int, bytes], acks: int = -1) -> ProduceRequest:
        parts = tuple(
            PartitionProduceData(index=index, records=data) for index, data in records.items()
        )
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=acks,
            timeout_ms=5000,
            topic_data=(TopicProduceData(name="t", partition_data=parts),),
        )

    async def committed(self, partition: int = 0) -> list[bytes | None]:
        """The values for a reader of committed records, once no transaction is open."""
        log = self.partition(partition)
        await until(lambda: log.last_stable_offset == log.log.log_end_offset)
        part = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        response = await self.client.fetch_all("t", (part,), isolation_level=READ_COMMITTED)
        ((data,),) = [topic.partitions for topic in response.responses]
        assert data.error_code == 0
        aborted = AbortedFilter(data.aborted_transactions or ())
        records = bytes(data.records or b"")
        return [
            record.value
            for header, start in iter_batches(records)
            if not aborted.drops(records, start, header) and not header.is_control
            for record in decode_batch(records, start, header)
        ]

    def partition(self, number: int = 0) -> Partition:
        found = self.rig.brokers[1].replica_manager.get(TopicPartition("t", number))
        assert found is not None
        return found

    @property
    def asked(self) -> int:
        """How often the broker has asked the coordinator."""
        return self.rig.brokers[1].replica_manager.counters.transaction_verifications


class Gate:
    """Holds the broker's questions to the coordinator back until it is opened.

    ``waiting`` are the producer ids of the questions that came, in their order.
    """

    def __init__(self, rig: Rig) -> None:
        self.opened = asyncio.Event()
        self.waiting: list[int] = []
        verifications = rig.brokers[1].replica_manager.verifications
        self._verify: VerifyTransaction = verifications._verify
        verifications._verify = self

    async def __call__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
    ) -> None:
        self.waiting.append(producer_id)
        await self.opened.wait()
        await self._verify(transactional_id, producer_id, producer_epoch, partitions, add=add)


async def client_of_node_0(rig: Rig) -> Client:
    client = Client(await connect(Endpoint("127.0.0.1", rig.control.port), 20))
    rig._clients.append(client)
    return client


def answers_of(response: ProduceResponse) -> Sequence[Answer]:
    return [
        (ErrorCode(part.error_code), part.base_offset)
        for topic in response.responses
        for part in topic.partition_responses
    ]


def waiting_batches(rig: Rig) -> tuple[int, int]:
    """The queues of batches that wait for the coordinator, and their bytes."""
    queues = rig.brokers[1].replica_manager.verifications._queues
    return len(queues._queues), queues._bytes
