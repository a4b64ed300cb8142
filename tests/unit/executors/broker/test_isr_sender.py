"""Proposals of leaders on their way to the controller: together, one request at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from sparklog.errors import ConnectError, ErrorCode
from sparklog.executors.partition import IsrProposal
from sparklog.executors.partition.partition import Partition
from sparklog.executors.replication.alter_partition_sender import AlterPartitionSender
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.alter_partition import (
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    ResponsePartitionData,
    ResponseTopicData,
    TopicData,
)
from tests.support.waiting import until

TOPIC_ID = UUID(int=7)


@dataclass(eq=False)
class Leader:
    """A partition of which only the proposal matters here."""

    number: int
    epoch: int = 3
    answered: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition("t", self.number)

    @property
    def topic_id(self) -> UUID:
        return TOPIC_ID

    def isr_proposal(self) -> IsrProposal | None:
        if self.answered:
            return None
        return IsrProposal(leader_epoch=1, partition_epoch=self.epoch, isr=((1, 10), (2, 20)))


@dataclass
class Controller:
    """Answers when it is told to."""

    asked: list[tuple[TopicData, ...]] = field(default_factory=list)
    answers: list["asyncio.Future[AlterPartitionResponse]"] = field(default_factory=list)
    told: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sender = AlterPartitionSender(self.ask, self.answered)

    async def ask(self, topics: tuple[TopicData, ...]) -> AlterPartitionResponse:
        self.asked.append(topics)
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    def answered(
        self, partition: Partition, proposal: IsrProposal, data: ResponsePartitionData
    ) -> None:
        assert proposal.leader_epoch == 1
        self.told.append((partition.topic_partition.partition, data.error_code))
        cast(Leader, partition).answered = data.error_code != ErrorCode.UNKNOWN_SERVER_ERROR

    def submit(self, *leaders: Leader) -> None:
        for leader in leaders:
            self.sender.submit(cast(Partition, leader))

    async def reply(self, *codes: tuple[int, int]) -> None:
        """Answer the request under way, for these partitions."""
        await until(lambda: bool(self.answers) and not self.answers[-1].done())
        parts = tuple(ResponsePartitionData(partition_index=n, error_code=c) for n, c in codes)
        topic = ResponseTopicData(topic_id=TOPIC_ID, partitions=parts)
        self.answers[-1].set_result(AlterPartitionResponse(topics=(topic,)))


def run(test: Callable[[Controller], Awaitable[Any]]) -> None:
    async def within() -> None:
        controller = Controller()
        task = asyncio.create_task(controller.sender.run())
        await asyncio.wait_for(test(controller), 10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(within())


def wanted(*leaders: Leader) -> tuple[TopicData, ...]:
    parts = tuple(
        PartitionData(
            partition_index=leader.number,
            leader_epoch=1,
            partition_epoch=leader.epoch,
            new_isr_with_epochs=(
                BrokerState(broker_id=1, broker_epoch=10),
                BrokerState(broker_id=2, broker_epoch=20),
            ),
        )
        for leader in leaders
    )
    return (TopicData(topic_id=TOPIC_ID, partitions=parts),)


def test_what_comes_up_while_a_request_is_under_way_goes_with_the_next_one() -> None:
    async def test(controller: Controller) -> None:
        first, second, third = Leader(0), Leader(1), Leader(2)
        controller.submit(first)
        await until(lambda: len(controller.asked) == 1)
        controller.submit(second, third, second)
        await controller.reply((0, 0))
        await until(lambda: len(controller.asked) == 2)
        await controller.reply((1, 0), (2, int(ErrorCode.INELIGIBLE_REPLICA)))
        await until(lambda: len(controller.told) == 3)
        assert controller.asked == [wanted(first), wanted(second, third)]
        assert controller.told == [(0, 0), (1, 0), (2, ErrorCode.INELIGIBLE_REPLICA)]

    run(test)


def test_a_request_of_unknown_outcome_is_sent_again() -> None:
    async def test(controller: Controller) -> None:
        leader, other = Leader(0), Leader(1)
        controller.submit(leader, other)
        await until(lambda: len(controller.asked) == 1)
        controller.answers[0].set_exception(ConnectError("away"))
        # Of one of them the image has told meanwhile what became of it.
        other.answered = True
        await until(lambda: len(controller.asked) == 2)
        await controller.reply((0, 0))
        await until(lambda: controller.told == [(0, 0)])
        assert controller.asked == [wanted(leader, other), wanted(leader)]

    run(test)


def test_a_partition_that_the_answer_leaves_open_is_proposed_again() -> None:
    async def test(controller: Controller) -> None:
        controller.submit(Leader(0), Leader(1))
        await controller.reply((0, 0))
        await until(lambda: len(controller.asked) == 2)
        await controller.reply((1, 0))
        await until(lambda: len(controller.told) == 3)
        assert controller.asked == [wanted(Leader(0), Leader(1)), wanted(Leader(1))]
        assert controller.told == [(0, 0), (1, ErrorCode.UNKNOWN_SERVER_ERROR), (1, 0)]

    run(test)


def test_a_proposal_that_is_answered_before_it_is_sent_is_not_sent() -> None:
    async def test(controller: Controller) -> None:
        controller.submit(Leader(0, answered=True))
        controller.submit(Leader(1))
        await controller.reply((1, 0))
        await until(lambda: controller.told == [(1, 0)])
        assert controller.asked == [wanted(Leader(1))]

    run(test)
