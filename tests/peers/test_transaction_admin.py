"""Administration of transactions, and ``sparklog txns``, against a real Kafka."""

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.client.blocking import BlockingClient
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition
from sparklog.wire.records.builder import Record, encode_batch
from tests.peers.kafka_broker import NODE_ID, KafkaBroker
from tests.support.waiting import wait_for

VERIFICATION = "transaction.partition.verification.enable"
LAST_WITHOUT_IMPLICIT_PARTITIONS = 11
FIRST_MS = 1_700_000_000_000


@pytest.fixture
def client(kafka: KafkaBroker) -> Iterator[BlockingClient]:
    with BlockingClient(kafka.address) as found:
        yield found


@pytest.fixture
def topic(client: BlockingClient) -> Iterator[str]:
    name = f"administered-{uuid4().hex[:12]}"
    client.admin.create_topic(name, 2)
    client.admin.await_serving(name)
    yield name
    client.admin.delete_topics([name])


@pytest.fixture
def open_id(kafka: KafkaBroker, topic: str) -> Iterator[str]:
    """A transactional id with an open transaction in partition 1."""
    name = f"open-{uuid4().hex[:12]}"
    with sparklog.Producer(kafka.address, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=1)
        producer.flush()
        yield name


def test_transactions_are_listed_and_described(
    client: BlockingClient, topic: str, open_id: str
) -> None:
    admin = client.admin
    listed = admin.list_transactions(states=["Ongoing"])[open_id]
    assert (listed.state, listed.coordinator) == ("Ongoing", NODE_ID)
    assert open_id not in admin.list_transactions(states=["Empty"])
    assert [*admin.list_transactions(producer_ids=[listed.producer_id])] == [open_id]
    assert [*admin.list_transactions(pattern=f"{open_id}.*")] == [open_id]
    assert open_id in admin.list_transactions(longer_than_ms=0)
    assert open_id not in admin.list_transactions(longer_than_ms=3_600_000)
    described = admin.describe_transactions([open_id])[open_id]
    assert described.is_open
    assert described.start_ms is not None
    assert (described.producer_id, described.timeout_ms) == (listed.producer_id, 60_000)
    assert described.partitions == {TopicPartition(topic, 1)}
    (producer,) = admin.describe_producers([TopicPartition(topic, 1)])[TopicPartition(topic, 1)]
    assert (producer.producer_id, producer.transaction_start_offset) == (listed.producer_id, 0)
    assert admin.describe_transactions(["no such id"], skip_unknown=True) == {}
    with pytest.raises(KafkaError, match="no such id") as caught:
        admin.describe_transactions(["no such id"])
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_an_open_transaction_is_aborted_by_a_fence(
    client: BlockingClient, kafka: KafkaBroker, topic: str
) -> None:
    name = f"aborted-{uuid4().hex[:12]}"
    producer = sparklog.Producer(kafka.address, transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"x", partition=1)
    producer.flush()
    assert client.admin.abort_transaction(name).partitions == {TopicPartition(topic, 1)}
    wait_for(lambda: not client.admin.describe_transactions([name])[name].is_open)
    with pytest.raises(KafkaError) as caught:
        producer.commit_transaction()
    assert caught.value.code is ErrorCode.PRODUCER_FENCED
    producer.close()
    with pytest.raises(KafkaError, match="has no open transaction") as caught:
        client.admin.abort_transaction(name)
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE
    first = client.admin.fence_producers([name, f"{name}-new"])
    second = client.admin.fence_producers([name])[name]
    assert second.producer_epoch == first[name].producer_epoch + 1
    assert [*first] == [name, f"{name}-new"]


def test_hanging_transactions_are_found_and_aborted(
    kafka: KafkaBroker,
    client: BlockingClient,
    topic: str,
    open_id: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A producer whose partition no coordinator knows, as before Kafka verified partitions."""
    tp = TopicPartition(topic, 0)
    identity = client.init_producer_id()
    batch = encode_batch(
        [Record(value=b"x", timestamp=FIRST_MS)],
        transactional=True,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=0,
    )
    client.admin.alter_broker_configs(None, {VERIFICATION: "false"})

    def write() -> bool:
        try:
            producing = client.data_client.produce(
                tp, [batch], transactional_id="lost", version_max=LAST_WITHOUT_IMPLICIT_PARTITIONS
            )
            client.run(producing)
        except KafkaError:  # the broker has not heard of the setting yet
            return False
        return True

    wait_for(write)
    client.admin.alter_broker_configs(None, {VERIFICATION: None})
    (found,) = client.admin.find_hanging_transactions([topic], max_timeout_ms=0)
    assert (found.topic_partition, found.producer.producer_id) == (tp, identity.producer_id)
    assert client.admin.find_hanging_transactions([topic]) == [found]
    assert client.admin.find_hanging_transactions([topic], max_timeout_ms=2**62) == []
    place = ["-t", topic, "-p", "0", "-b", kafka.address]
    assert run(["txns", "abort-hanging", *place, "--start-offset", "7"]) == 1
    assert "no transaction of" in capsys.readouterr().err
    assert run(["txns", "abort-hanging", *place, "--start-offset", "0"]) == 0
    assert capsys.readouterr().out == (
        f"Aborted the transaction of producer {identity.producer_id} in {tp}.\n"
    )
    assert client.admin.find_hanging_transactions([topic]) == []


def test_the_command_line_shows_and_aborts(
    kafka: KafkaBroker, topic: str, open_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*arguments: str) -> tuple[int, str, str]:
        code = run(["txns", *arguments, "-b", kafka.address])
        return (code, *capsys.readouterr())

    code, out, _ = command("list", "--state", "Ongoing", "--json")
    listed = {each["transactional_id"]: each for each in json.loads(out)}
    assert (code, listed[open_id]["state"]) == (0, "Ongoing")
    assert open_id in command("list", "--longer-than", "0", "--pattern", open_id)[1]
    none = command("list", "--pattern", "nothing")
    assert none == (0, "There are no such transactional ids.\n", "")
    code, out, _ = command("describe", open_id)
    assert (code, f"{topic}-1" in out) == (0, True)
    assert command("find-hanging", "-t", topic) == (0, "No transaction hangs.\n", "")
    done = command("abort", open_id)
    assert done == (0, f"Aborted the transaction of {open_id}.\n", "")
    code, out, errors = command("abort", open_id, "unknown")
    assert (code, out) == (1, "")
    assert "has no open transaction" in errors
    assert "there is no transactional id 'unknown'" in errors
