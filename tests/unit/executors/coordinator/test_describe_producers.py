"""DescribeProducers: what each partition knows of its producers."""

from sparklog.errors import ErrorCode
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from sparklog.types import NO_OFFSET, NO_SEQUENCE
from sparklog.wire.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from tests.unit.executors.coordinator.replica_rig import NODE, OTHER, led
from tests.unit.executors.coordinator.transaction_rig import (
    CONTROLLER_EPOCH,
    EPOCH,
    PRODUCER_ID,
    TransactionRig,
    commit_of,
    marker,
    run,
)


def asking(*topics: tuple[str, tuple[int, ...]]) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=tuple(TopicRequest(name=name, partition_indexes=numbers) for name, numbers in topics)
    )


async def producers(rig: TransactionRig, topic: str, number: int = 0) -> list[ProducerState]:
    response = await rig.ask(asking((topic, (number,))))
    ((partition,),) = [each.partitions for each in response.topics]
    assert (partition.error_code, partition.error_message) == (0, None)
    return list(partition.active_producers)


def test_an_open_transaction_and_an_ended_one() -> None:
    async def test(rig: TransactionRig) -> None:
        assert await producers(rig, "t") == []
        rig.produce(producer_id=9, epoch=0)
        rig.produce()
        rig.produce()
        await rig.end(marker({"t": (0,)}, producer_id=9, producer_epoch=1))
        known = {entry.producer_id: entry for entry in await producers(rig, "t")}
        entries = rig.replicas.partition("t").producers.entries
        assert known == {
            9: ProducerState(
                producer_id=9,
                producer_epoch=1,
                last_sequence=NO_SEQUENCE,
                last_timestamp=entries[9].last_timestamp,
                coordinator_epoch=CONTROLLER_EPOCH,
                current_txn_start_offset=NO_OFFSET,
            ),
            PRODUCER_ID: ProducerState(
                producer_id=PRODUCER_ID,
                producer_epoch=EPOCH,
                last_sequence=1,
                last_timestamp=entries[PRODUCER_ID].last_timestamp,
                coordinator_epoch=-1,
                current_txn_start_offset=1,
            ),
        }

    run(test)


def test_offsets_of_a_transaction_are_described_too() -> None:
    async def test(rig: TransactionRig) -> None:
        await rig.ask(commit_of((0, 1)))
        (found,) = await producers(rig, CONSUMER_OFFSETS)
        assert (found.producer_id, found.last_sequence) == (PRODUCER_ID, NO_SEQUENCE)
        assert found.current_txn_start_offset == 0

    run(test)


def test_followers_answer_and_partitions_that_are_not_here_are_refused() -> None:
    async def test(rig: TransactionRig) -> None:
        await rig.replicas.create("follows", led(leader=OTHER, isr=(NODE, OTHER)))
        await rig.replicas.create("away", led(leader=OTHER, isr=(OTHER,)))
        response = await rig.ask(asking(("t", (0, 0, 9)), ("follows", (0,)), ("gone", (0,))))
        found = [
            (topic.name, part.partition_index, part.error_code, part.active_producers)
            for topic in response.topics
            for part in topic.partitions
        ]
        assert found == [
            ("t", 0, 0, ()),
            ("t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ()),
            ("follows", 0, 0, ()),
            ("gone", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ()),
        ]
        assert response.topics[2].partitions[0].error_message

    run(test)


def test_topics_that_are_named_twice_are_answered_once() -> None:
    async def test(rig: TransactionRig) -> None:
        response = await rig.ask(asking(("t", (0,)), ("t", (1, 0))))
        partitions = tuple(PartitionResponse(partition_index=number) for number in (0, 1))
        assert response == DescribeProducersResponse(
            topics=(TopicResponse(name="t", partitions=partitions),)
        )

    run(test)


def test_many_producers_are_all_described() -> None:
    async def test(rig: TransactionRig) -> None:
        for producer_id in range(1_000):
            rig.produce(producer_id=producer_id, epoch=0)
        found = await producers(rig, "t")
        assert [each.producer_id for each in found] == list(range(1_000))

    run(test)
