"""Kafka's tool for transactions against us, as against Kafka."""

import re
from collections.abc import Iterator, Mapping, Sequence

import pytest

from sparklog.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from sparklog.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.peers.both import Both, Side, batch, list_offsets, produce
from tests.peers.kafka_broker import KafkaBroker
from tests.peers.kafka_tools import KafkaTools, ToolRun
from tests.peers.transaction_story import OLD_END, TransactionStory
from tests.support.proven import proves
from tests.support.served import ServedCluster
from tests.support.waiting import wait_for

TOOL = "TransactionsCommand"
TOPIC = "tool-transactions"
VERIFICATION = "transaction.partition.verification.enable"
CLIENTS_MARKERS = "sparklog.client.abort.markers.enable"
BROKER = 4
LATEST, READ_COMMITTED = -1, 1
#: Columns that each side makes up, or that tell the time.
OWN = frozenset(
    {
        *("ProducerId", "Coordinator", "CoordinatorId", "CurrentTransactionStartTimeMs"),
        *("TransactionDurationMs", "LatestCoordinatorEpoch", "LastTimestamp"),
    }
)
Row = Mapping[str, str]


@pytest.fixture(scope="module")
def story(both: Both) -> Iterator[TransactionStory]:
    """A transaction that is open in one partition, and another transactional id at rest."""
    both.create(TOPIC, 2)
    found = TransactionStory(both, "tool-open")
    resting = TransactionStory(both, "tool-resting")
    for each in (resting, found):
        each.init()
        each.write(TOPIC)
    resting.end(commit=True)
    resting.await_state("CompleteCommit")
    yield found
    found.close()


def rows(run: ToolRun) -> list[Row]:
    """The table that the tool has printed."""
    assert (run.code, run.err) == (0, ""), run
    head, *lines = [re.split(r"\s+", line.strip()) for line in run.lines if line.strip()]
    return [dict(zip(head, line, strict=False)) for line in lines]


class Asked:
    """Kafka and ours, asked by the tool."""

    def __init__(self, tools: KafkaTools, kafka: KafkaBroker, cluster: ServedCluster) -> None:
        self._tools = tools
        self.addresses = {"kafka": kafka.address, "ours": cluster.bootstrap}

    def run(self, side: str, *arguments: str) -> ToolRun:
        return self._tools.run(TOOL, "--bootstrap-server", self.addresses[side], *arguments)

    def same(self, *arguments: str, of: str = "") -> list[Row]:
        """The rows of both, which must be the same; those of transactional ids ``of`` this test."""
        kafka, ours = (
            [
                {name: value for name, value in row.items() if name not in OWN}
                for row in rows(self.run(side, *arguments))
                if row.get("TransactionalId", of).startswith(of)
            ]
            for side in ("kafka", "ours")
        )
        key = sorted(ours, key=str)
        assert key == sorted(kafka, key=str), arguments
        return key


@pytest.fixture
def asked(tools: KafkaTools, kafka: KafkaBroker, cluster: ServedCluster) -> Asked:
    return Asked(tools, kafka, cluster)


@proves("transaction tools", "java")
def test_transactions_are_listed_and_described(asked: Asked, story: TransactionStory) -> None:
    listed = asked.same("list", of="tool-")
    assert [(row["TransactionalId"], row["TransactionState"]) for row in listed] == [
        ("tool-open", "Ongoing"),
        ("tool-resting", "CompleteCommit"),
    ]
    assert len(asked.same("list", "--transactional-id-pattern", "tool-o.*")) == 1
    assert len(asked.same("list", "--duration-filter", "0", of="tool-")) == 2
    (described,) = asked.same("describe", "--transactional-id", story.name)
    assert described["TopicPartitions"] == f"{TOPIC}-0"
    place = ("--topic", TOPIC, "--partition", "0")
    producers = asked.same("describe-producers", *place)
    assert sorted(row["CurrentTransactionStartOffset"] for row in producers) == ["1", "None"]
    for side in asked.addresses:
        refused = asked.run(side, "describe", "--transactional-id", "missing")
        assert refused.code == 1
        assert "the ID could not be found" in refused.err


@proves("transaction tools", "java")
def test_a_hanging_transaction_is_found_and_aborted(
    asked: Asked, both: Both, story: TransactionStory
) -> None:
    topic = both.create("tool-hanging")
    for side in both.sides:
        _hang(side, topic)
    try:
        kafka, ours = (
            rows(
                asked.run(side, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
            )
            for side in asked.addresses
        )
        assert [(row["Topic"], row["Partition"]) for row in ours] == [(topic, "0")]
        assert [row["StartOffset"] for row in ours] == [row["StartOffset"] for row in kafka]
        abort = ("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
        refused = asked.run("ours", *abort)
        assert refused.code == 1
        assert "cluster authorization error" in refused.err
        _set(both.ours, CLIENTS_MARKERS, "true")
        wait_for(lambda: asked.run("ours", *abort).code == 0)
        assert asked.run("kafka", *abort).code == 0
        stable = list_offsets(topic, LATEST, isolation_level=READ_COMMITTED)
        assert both.same(stable, 10).topics[0].partitions[0].offset == 2
        for side in asked.addresses:
            found = asked.run(side, "find-hanging", "--topic", topic)
            assert rows(found) == []
    finally:
        _set(both.ours, CLIENTS_MARKERS, None)


def _hang(side: Side, topic: str) -> None:
    """A batch of a transaction that no coordinator knows."""
    identity = side.exchange(InitProducerIdRequest(transaction_timeout_ms=1000), 4)
    records = batch(
        b"x",
        transactional=True,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=0,
    )
    request = produce(topic, records, transactional_id="nobody's")

    def written() -> bool:
        [answered] = side.exchange(request, 11).responses
        return bool(answered.partition_responses[0].error_code == 0)

    _set(side, VERIFICATION, "false")
    try:
        wait_for(written)  # the broker may hear of the setting a moment later
    finally:
        _set(side, VERIFICATION, None)


def _set(side: Side, name: str, value: str | None) -> None:
    """A setting of all brokers; None deletes it."""
    change = AlterableConfig(name=name, config_operation=value is None, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=(change,))
    [answered] = side.exchange(IncrementalAlterConfigsRequest(resources=(resource,)), 1).responses
    assert answered.error_code == 0, (side.name, answered)


@proves("transaction tools", "java")
def test_the_last_stable_offset_is_what_the_offset_tool_shows(
    asked: Asked, tools: KafkaTools, story: TransactionStory
) -> None:
    """GetOffsetShell has no isolation level: it shows the high watermark, as Kafka's."""
    shown = [
        tools.ok("GetOffsetShell", "--bootstrap-server", address, "--topic-partitions", TOPIC).lines
        for address in asked.addresses.values()
    ]
    assert shown[1] == shown[0]
    assert shown[1][0].startswith(f"{TOPIC}:0:")
    internal = ("--topic", "__transaction_state", "--bootstrap-server", asked.addresses["ours"])
    partitions: Sequence[str] = tools.ok("GetOffsetShell", *internal).lines
    assert sum(int(line.rpartition(":")[2]) for line in partitions) > 0


def test_an_open_transaction_is_ended_by_its_producer(story: TransactionStory) -> None:
    story.end(commit=True, version=OLD_END)
    story.await_state("CompleteCommit")
