"""What admin clients do to topics, settings and offsets."""

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from sparklog.errors import ErrorCode
from tests.clients.nodes import await_topic, eventually
from tests.clients.peer_confluent import Confluent
from tests.clients.peer_kafka_python import KafkaAdminClient
from tests.clients.peer_kafka_python import TopicPartition as KafkaPythonTopicPartition
from tests.clients.rows import make_rows
from tests.support.proven import proves

SECONDS_MAX = 60.0


def code_of(refused: Callable[[], object]) -> int:
    with pytest.raises(KafkaException) as caught:
        refused()
    code: int = caught.value.args[0].code()
    return code


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(SECONDS_MAX)
    return found


def alter(
    admin: AdminClient, kind: ResourceType, name: str, setting: str, value: str | None
) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(setting, value, incremental_operation=operation)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)


def test_the_cluster_is_described(admin: AdminClient, bootstrap: str) -> None:
    found = admin.describe_cluster().result(SECONDS_MAX)
    nodes = {node.id: f"{node.host}:{node.port}" for node in found.nodes}
    assert (set(nodes), found.controller.id, nodes[0]) == ({0, 1, 2, 3}, 0, bootstrap)
    assert found.cluster_id == admin.list_topics(timeout=SECONDS_MAX).cluster_id


@proves("topics", "confluent")
def test_a_topic_from_its_creation_to_its_end(admin: AdminClient, bootstrap: str) -> None:
    wanted = NewTopic("life", 4, 1, config={"retention.ms": "1234567"})
    admin.create_topics([wanted])["life"].result(SECONDS_MAX)
    refused = admin.create_topics([wanted])["life"]
    assert code_of(refused.result) == ErrorCode.TOPIC_ALREADY_EXISTS

    names = TopicCollection(["life"])
    await_topic(bootstrap, "life", 4)
    found = admin.describe_topics(names)["life"].result(SECONDS_MAX)
    assert [partition.id for partition in found.partitions] == [0, 1, 2, 3]
    assert {partition.leader.id for partition in found.partitions} <= {1, 2, 3}
    assert all([node.id for node in p.isr] == [p.leader.id] for p in found.partitions)
    assert described(admin, ResourceType.TOPIC, "life")["retention.ms"].value == "1234567"

    admin.create_partitions([NewPartitions("life", 6)])["life"].result(SECONDS_MAX)
    await_topic(bootstrap, "life", 6)
    fewer = admin.create_partitions([NewPartitions("life", 5)])["life"]
    assert code_of(fewer.result) == ErrorCode.INVALID_PARTITIONS

    admin.delete_topics(["life"])["life"].result(SECONDS_MAX)
    await_topic(bootstrap, "life", 0)
    again = admin.delete_topics(["life"])["life"]
    assert code_of(again.result) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("no/name", 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("none", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("many", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("set", 1, config={"no.such.setting": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("set", 1, config={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
    ],
)
def test_topics_that_cannot_be_are_refused(
    admin: AdminClient, topic: NewTopic, code: ErrorCode
) -> None:
    assert code_of(admin.create_topics([topic])[topic.topic].result) == code
    assert topic.topic not in admin.list_topics(timeout=SECONDS_MAX).topics


@proves("settings", "confluent")
def test_settings_of_a_topic_are_changed_and_taken_back(
    admin: AdminClient, create_topic: Callable[..., None]
) -> None:
    create_topic("settings")

    def shown() -> tuple[str, int]:
        entry = described(admin, ResourceType.TOPIC, "settings")["max.message.bytes"]
        return entry.value, entry.source

    default = (str(1024 * 1024 + 12), ConfigSource.DEFAULT_CONFIG.value)
    eventually(shown, default)
    alter(admin, ResourceType.TOPIC, "settings", "max.message.bytes", "2000")
    eventually(shown, ("2000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value))
    alter(admin, ResourceType.TOPIC, "settings", "max.message.bytes", None)
    eventually(shown, default)
    assert (
        code_of(lambda: alter(admin, ResourceType.TOPIC, "settings", "max.message.bytes", "-7"))
        == ErrorCode.INVALID_CONFIG
    )
    eventually(shown, default)


def test_settings_that_a_broker_starts_with_are_shown_and_cannot_be_changed(
    admin: AdminClient,
) -> None:
    entries = described(admin, ResourceType.BROKER, "2")
    assert entries["fetch.max.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    with pytest.raises(KafkaException, match="is read when a broker starts; give it to") as caught:
        alter(admin, ResourceType.BROKER, "2", "fetch.max.bytes", "987654321")
    assert caught.value.args[0].code() == ErrorCode.INVALID_CONFIG
    after = described(admin, ResourceType.BROKER, "2")
    assert after["fetch.max.bytes"].value == entries["fetch.max.bytes"].value


@proves("deleted records", "confluent")
def test_offsets_are_listed_and_records_deleted(
    admin: AdminClient, bootstrap: str, create_topic: Callable[..., None]
) -> None:
    create_topic("offsets")
    rows = make_rows()
    Confluent().write(bootstrap, "offsets", "zstd", rows)
    partition = TopicPartition("offsets", 1)

    def offset(spec: OffsetSpec) -> int:
        found: int = admin.list_offsets({partition: spec})[partition].result(SECONDS_MAX).offset
        return found

    def offsets() -> tuple[int, int, int]:
        newest = offset(OffsetSpec.max_timestamp())
        return offset(OffsetSpec.earliest()), offset(OffsetSpec.latest()), newest

    mine = [row for row in rows if row.partition == 1]
    newest = max(mine, key=lambda row: row.timestamp)
    assert offsets() == (0, len(mine), newest.offset)
    assert offset(OffsetSpec.for_timestamp(newest.timestamp)) == newest.offset
    assert offset(OffsetSpec.for_timestamp(newest.timestamp + 1)) == -1

    def delete(before: int) -> int:
        wanted = TopicPartition("offsets", 1, before)
        [future] = admin.delete_records([wanted]).values()
        low: int = future.result(SECONDS_MAX).low_watermark
        return low

    assert delete(7) == 7
    assert offsets() == (7, len(mine), newest.offset)
    left = [row for row in rows if row.partition != 1 or row.offset >= 7]
    assert sorted(Confluent().read(bootstrap, "offsets", len(left))) == sorted(left)
    assert code_of(lambda: delete(len(mine) + 1)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(-1) == len(mine)
    assert offsets()[:2] == (len(mine), len(mine))


@proves("deleted records", "kafka-python")
@proves("topics", "kafka-python")
def test_kafka_python_administers_a_topic(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    name, partition = "second", KafkaPythonTopicPartition("second", 0)
    try:
        admin.create_topics({name: {"num_partitions": 2, "configs": {"retention.ms": "77777"}}})
        await_topic(bootstrap, name, 2)
        Confluent().write(bootstrap, name, "gzip", make_rows()[:1])
        assert admin.list_partition_offsets({partition: -1})[partition].offset == 1
        assert admin.delete_records({partition: 1})[partition]["low_watermark"] == 1
        admin.create_partitions({name: 5})
        await_topic(bootstrap, name, 5)
        [topic] = admin.describe_topics([name])
        assert [part["partition_index"] for part in topic["partitions"]] == [0, 1, 2, 3, 4]
        admin.delete_topics([name])
        await_topic(bootstrap, name, 0)
    finally:
        admin.close()


@proves("deleted records", "aiokafka")
@proves("topics", "aiokafka")
def test_aiokafka_administers_a_topic(bootstrap: str) -> None:
    name, partition = "third", AioTopicPartition("third", 0)

    async def story() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        try:
            wanted = AioNewTopic(name, 2, 1, topic_configs={"retention.ms": "77777"})
            answer = await client.create_topics([wanted])
            assert answer.topic_errors == [(name, 0, None)]
            await asyncio.to_thread(await_topic, bootstrap, name, 2)
            resource = AioConfigResource(AioConfigResourceType.TOPIC, name)
            [answer] = await client.describe_configs([resource])
            values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
            assert values["retention.ms"] == "77777"
            Confluent().write(bootstrap, name, "gzip", make_rows()[:1])
            deleted = await client.delete_records({partition: RecordsToDelete(before_offset=1)})
            assert deleted == {partition: 1}
            await client.create_partitions({name: AioNewPartitions(5)})
            await asyncio.to_thread(await_topic, bootstrap, name, 5)
            [found] = await client.describe_topics([name])
            assert len(found["partitions"]) == 5
            answer = await client.delete_topics([name])
            assert answer.topic_error_codes == [(name, 0)]
            await asyncio.to_thread(await_topic, bootstrap, name, 0)
        finally:
            await client.close()

    asyncio.run(asyncio.wait_for(story(), SECONDS_MAX))
