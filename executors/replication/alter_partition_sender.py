"""The AlterPartition requests of a broker: proposals of leaders for their ISR (KIP-497).

Owns: which partitions have a proposal, at most one AlterPartition request in flight for all of
them, and its retries.  Must not know why an ISR changes.

A request without response is sent again: the controller recognizes a repeated proposal by its
epochs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias
from uuid import UUID

from sparklog.errors import ConnectError, ErrorCode, KafkaError
from sparklog.executors.controller_link import retry_pauses
from sparklog.executors.partition import IsrProposal, Partition
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.alter_partition import (
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    ResponsePartitionData,
    TopicData,
)

#: Partitions in one request; further partitions go with the next request.
PARTITIONS_MAX = 10_000
#: Stands for a partition that is missing in the response.
_UNANSWERED = ResponsePartitionData(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR))

logger = logging.getLogger(__name__)

#: Sends topics and partitions to the controller; raises ConnectError and KafkaError.
AlterPartitions: TypeAlias = Callable[[tuple[TopicData, ...]], Awaitable[AlterPartitionResponse]]
#: The state that the controller has committed, or an error in its ``error_code``.
Answered: TypeAlias = Callable[[Partition, IsrProposal, ResponsePartitionData], None]
_Key: TypeAlias = tuple[UUID, int]
_Sent: TypeAlias = Mapping[_Key, tuple[Partition, IsrProposal]]


class AlterPartitionSender:
    """Sends the proposals of one broker; ``answered`` is called with each answer."""

    def __init__(self, ask: AlterPartitions, answered: Answered) -> None:
        self._ask = ask
        self._answered = answered
        self._pending: dict[TopicPartition, Partition] = {}
        self._woken = asyncio.Event()

    def submit(self, partition: Partition) -> None:
        """Send the proposal of a partition with the next request."""
        self._pending[partition.topic_partition] = partition
        self._woken.set()

    async def run(self) -> None:
        """Send until cancelled."""
        pauses = retry_pauses()
        while True:
            await self._woken.wait()
            sent = self._take_pending()
            if not sent:
                self._woken.clear()
                continue
            try:
                open_still = self._hand_out(sent, await self._ask(_topics(sent)))
            except (ConnectError, KafkaError) as error:
                logger.info("in-sync replicas stay as they are: %s", error)
                open_still = [partition for partition, _ in sent.values()]
            if not open_still:
                pauses.reset()
                continue
            self._pending = {p.topic_partition: p for p in open_still} | self._pending
            await pauses.wait()

    def _take_pending(self) -> _Sent:
        """The proposals of the next request; partitions without a proposal by now are dropped."""
        sent: dict[_Key, tuple[Partition, IsrProposal]] = {}
        while self._pending and len(sent) < PARTITIONS_MAX:
            partition = self._pending.pop(next(iter(self._pending)))
            proposal = partition.isr_proposal()
            if proposal is not None:
                key = partition.topic_id, partition.topic_partition.partition
                sent[key] = partition, proposal
        return sent

    def _hand_out(self, sent: _Sent, response: AlterPartitionResponse) -> list[Partition]:
        """Pass the answers on; return the partitions whose proposal has no final answer."""
        answers = {
            (topic.topic_id, data.partition_index): data
            for topic in response.topics
            for data in topic.partitions
        }
        open_still = []
        for key, (partition, proposal) in sent.items():
            answer = answers.get(key, _UNANSWERED)
            self._answered(partition, proposal, answer)
            if answer.error_code and partition.isr_proposal() == proposal:
                open_still.append(partition)
        return open_still


def _topics(sent: _Sent) -> tuple[TopicData, ...]:
    topics: dict[UUID, list[PartitionData]] = {}
    for (topic_id, number), (_, proposal) in sent.items():
        members = tuple(
            BrokerState(broker_id=broker_id, broker_epoch=epoch)
            for broker_id, epoch in proposal.isr
        )
        data = PartitionData(
            partition_index=number,
            leader_epoch=proposal.leader_epoch,
            partition_epoch=proposal.partition_epoch,
            new_isr_with_epochs=members,
        )
        topics.setdefault(topic_id, []).append(data)
    return tuple(TopicData(topic_id=id_, partitions=tuple(data)) for id_, data in topics.items())
