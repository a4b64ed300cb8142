"""The broker's APIs of transactions on a loopback socket, with real groups behind them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

from sparklog.client.connection import Connection
from sparklog.errors import KafkaError
from sparklog.executors.groups import GroupConfig, GroupStateMachine
from sparklog.executors.handlers import describe_producers, write_txn_markers
from sparklog.executors.handlers.group_apis import handlers
from sparklog.executors.handlers.group_requests import GroupRequests
from sparklog.executors.partition import ACKS_ALL
from sparklog.metadata import ControllerChanged
from sparklog.runtime_environment import SYSTEM
from sparklog.service import members
from sparklog.service.handler import ApiHandler
from sparklog.types import Endpoint, TopicPartition
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from sparklog.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from sparklog.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from sparklog.wire.records.builder import Record, encode_batch
from tests.unit.executors.coordinator.group_rig import HERE, GroupRig, run_with
from tests.unit.executors.coordinator.replica_rig import ReplicaRig

SECRET = b"s" * 32
PRODUCER_ID = 7
EPOCH = 3
#: The controller epoch of the rig's image, and of its coordinator.
CONTROLLER_EPOCH = 5


class TransactionRig(GroupRig):
    """``verified`` has the calls of the verifier; ``verdict`` is what it does then."""

    def __init__(self, replicas: ReplicaRig) -> None:
        super().__init__(replicas, partial(GroupStateMachine, GroupConfig(), SYSTEM.new_id))
        self.verified: list[tuple[str, int, int, tuple[TopicPartition, ...], bool]] = []
        self.verdict: Callable[[], Awaitable[None]] = confirm

    def apis(self, groups: GroupRequests) -> list[ApiHandler]:
        replica_manager = self.replicas.replica_manager
        return [
            *handlers(groups, self._verify),
            *members.handlers(SECRET),
            write_txn_markers.handler(replica_manager, (self.runtime,)),
            describe_producers.handler(replica_manager),
        ]

    async def _verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
    ) -> None:
        self.verified.append(
            (transactional_id, producer_id, producer_epoch, tuple(partitions), add)
        )
        await self.verdict()

    async def start(self) -> None:
        await super().start()
        await self.replicas.change(
            ControllerChanged(controller_epoch=CONTROLLER_EPOCH, host="h", port=1)
        )

    async def as_member(self, request: Any, at_most: int | None = None) -> Any:
        """The response to a member's request."""
        endpoint = Endpoint("127.0.0.1", self.server.port)
        connection = await Connection.open(endpoint, secret=SECRET)
        try:
            return await connection.request(request, at_most=at_most)
        finally:
            connection.close()

    async def end(self, *markers: WritableTxnMarker, at_most: int | None = None) -> list[Any]:
        """The codes of markers: for each (topic, partition, code) of it."""
        request = WriteTxnMarkersRequest(markers=markers)
        return codes_of(await self.as_member(request, at_most))

    async def offsets(self, *partitions: int, stable: bool = False) -> list[tuple[int, int]]:
        """Offset and error code of partitions of topic ``t`` for the group ``HERE``."""
        topics = (OffsetFetchRequestTopics(name="t", partition_indexes=partitions),)
        group = OffsetFetchRequestGroup(group_id=HERE, topics=topics)
        response = await self.ask(OffsetFetchRequest(groups=(group,), require_stable=stable), 9)
        (topic,) = response.groups[0].topics
        return [(part.committed_offset, part.error_code) for part in topic.partitions]

    def produce(self, number: int = 0, producer_id: int = PRODUCER_ID, epoch: int = EPOCH) -> None:
        """Append a batch of a transaction to a partition of topic ``t``."""
        partition = self.replicas.partition("t", number)
        known = partition.producers.entries.get(producer_id)
        same_epoch = known is not None and known.producer_epoch == epoch
        data = encode_batch(
            [Record(value=b"v", timestamp=SYSTEM.wall_ms())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=known.last_sequence + 1 if known is not None and same_epoch else 0,
            transactional=True,
        )
        partition.append_as_leader(data, acks=ACKS_ALL, now_ms=SYSTEM.wall_ms(), verified=True)


async def confirm() -> None:
    """Every partition belongs to the transaction."""
    await asyncio.sleep(0)


def refuse(error: KafkaError) -> Callable[[], Awaitable[None]]:
    async def verdict() -> None:
        raise error

    return verdict


def marker(
    topics: dict[str, tuple[int, ...]], *, commit: bool = True, **fields: Any
) -> WritableTxnMarker:
    values: dict[str, Any] = {
        "producer_id": PRODUCER_ID,
        "producer_epoch": EPOCH,
        "coordinator_epoch": CONTROLLER_EPOCH,
        "transaction_result": commit,
        "topics": tuple(
            WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
            for name, numbers in topics.items()
        ),
    }
    return WritableTxnMarker(**{**values, **fields})


def codes_of(response: WriteTxnMarkersResponse) -> list[list[tuple[str, int, int]]]:
    return [
        [
            (topic.name, part.partition_index, part.error_code)
            for topic in result.topics
            for part in topic.partitions
        ]
        for result in response.markers
    ]


def commit_of(*offsets: tuple[int, int], topic: str = "t", **fields: Any) -> TxnOffsetCommitRequest:
    """A commit of (partition, offset)."""
    values: dict[str, Any] = {
        "transactional_id": "tx",
        "group_id": HERE,
        "producer_id": PRODUCER_ID,
        "producer_epoch": EPOCH,
        "topics": (
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=offset)
                    for number, offset in offsets
                ),
            ),
        ),
    }
    return TxnOffsetCommitRequest(**{**values, **fields})


def commit_codes(response: TxnOffsetCommitResponse) -> list[int]:
    return [part.error_code for topic in response.topics for part in topic.partitions]


def run(test: Callable[[TransactionRig], Awaitable[None]]) -> None:
    """Run a test with a fresh rig."""
    run_with(TransactionRig, test)
