"""Internal topics as brokers see them: created for them, served to readers, closed to writers."""

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.controller_link.lifecycle import BrokerLifecycle
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from sparklog.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Rig, run
from tests.unit.executors.broker.cli_rig import command_line


def lifecycle(rig: Rig, broker_id: int = 1) -> BrokerLifecycle:
    return rig.brokers[broker_id]._lifecycle


async def with_offsets_topic(rig: Rig, brokers: int = 1) -> None:
    for broker_id in range(1, brokers + 1):
        await rig.start_broker(broker_id)
    await lifecycle(rig).create_internal_topic(CONSUMER_OFFSETS)
    await until(lambda: lifecycle(rig).image.topic(CONSUMER_OFFSETS) is not None)


def test_a_broker_has_the_controller_create_it() -> None:
    async def test(rig: Rig) -> None:
        await with_offsets_topic(rig, brokers=3)
        topic = rig.control.image.topics[CONSUMER_OFFSETS]
        assert [sorted(state.replicas) for state in topic.partitions.values()] == [[1, 2, 3]] * 3
        await rig.leads(1)
        partition = rig.brokers[1].replica_manager.find(CONSUMER_OFFSETS, 0)
        assert partition.config.cleanup_policy == ("compact",)
        await lifecycle(rig, 2).create_internal_topic(CONSUMER_OFFSETS)
        assert rig.control.image.topics[CONSUMER_OFFSETS] == topic

    run(test, offsets_topic_num_partitions="3")


def test_an_unreachable_controller_means_that_there_is_no_coordinator_yet() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        await rig.stop_control()
        with pytest.raises(KafkaError, match="__consumer_offsets cannot be created now") as caught:
            await lifecycle(rig).create_internal_topic(CONSUMER_OFFSETS)
        assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await rig.start_control()

    run(test)


def test_a_refusal_means_that_there_is_no_coordinator_yet() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        with pytest.raises(KafkaError, match="'mine' is not an internal topic") as caught:
            await lifecycle(rig).create_internal_topic("mine")
        assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(test)


def test_clients_can_read_it_but_not_write_to_it() -> None:
    async def test(rig: Rig) -> None:
        await with_offsets_topic(rig)
        await rig.leads(1)
        client = await rig.client()
        topic_id = rig.control.image.topics[CONSUMER_OFFSETS].topic_id
        for topic, version in ((CONSUMER_OFFSETS, 9), (topic_id, 13)):
            for _ in range(2):  # a repeated request takes a shorter way
                produced = await client.produce(topic, batch(b"a"), version=version)
                assert produced.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
                assert produced.error_message == (
                    "'__consumer_offsets' is an internal topic; clients cannot write to it"
                )
        wanted = DeleteRecordsPartition(partition_index=0, offset=0)
        of_topic = DeleteRecordsTopic(name=CONSUMER_OFFSETS, partitions=(wanted,))
        deleted = await client.ask(DeleteRecordsRequest(topics=(of_topic,), timeout_ms=5000))
        (result,) = deleted.topics[0].partitions
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        partition = rig.brokers[1].replica_manager.find(CONSUMER_OFFSETS, 0)
        assert partition.log.log_end_offset == 0
        rig.brokers[1].replica_manager.append_records(
            partition, ((batch(b"a"), 1),), now_ms=rig.brokers[1].replica_manager.now_ms()
        )
        assert await client.fetch(CONSUMER_OFFSETS) == (0, [b"a"])

    run(test, offsets_topic_num_partitions="1")


def test_metadata_flags_it_and_never_creates_it() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name=CONSUMER_OFFSETS),), allow_auto_topic_creation=True
        )
        (topic,) = (await client.ask(request)).topics
        assert (topic.error_code, topic.is_internal) == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            True,
        )
        await lifecycle(rig).create_internal_topic(CONSUMER_OFFSETS)
        await until(lambda: lifecycle(rig).image.topic(CONSUMER_OFFSETS) is not None)
        (topic,) = (await client.ask(request)).topics
        assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 50)

    run(test)


def test_its_replicas_follow_added_brokers() -> None:
    async def test(rig: Rig) -> None:
        await with_offsets_topic(rig)
        await rig.leads(2)
        manager = rig.brokers[1].replica_manager
        manager.append_records(
            manager.find(CONSUMER_OFFSETS, 1), ((batch(b"a"), 1),), now_ms=manager.now_ms()
        )
        for broker_id in (2, 3):
            await rig.start_broker(broker_id)
        image = lambda: rig.control.image  # noqa: E731 - the image is replaced
        await until(lambda: not image().deferred_factors)
        for state in image().topics[CONSUMER_OFFSETS].partitions.values():
            assert (sorted(state.replicas), sorted(state.isr)) == ([1, 2, 3], [1, 2, 3])
        for broker_id in (2, 3):
            copy = rig.brokers[broker_id].replica_manager.find(CONSUMER_OFFSETS, 1)
            assert copy.log.log_end_offset == 1

    run(test, offsets_topic_num_partitions="2")


def test_the_command_line_hides_it_and_cannot_change_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with command_line(1, capsys, offsets_topic_num_partitions="2") as line:
        line.json("topics", "create", "t", "-p", "1")
        line.do(lambda rig: lifecycle(rig).create_internal_topic(CONSUMER_OFFSETS))
        assert [row["topic"] for row in line.json("topics", "list")] == ["t"]
        assert line.json("topics", "list", "--internal") == [
            {"topic": CONSUMER_OFFSETS, "partitions": 2, "replication_factor": 1},
            {"topic": "t", "partitions": 1, "replication_factor": 1},
        ]
        code, _, errors = line.run("topics", "delete", CONSUMER_OFFSETS)
        assert (code, "is an internal topic; clients cannot delete it" in errors) == (1, True)
