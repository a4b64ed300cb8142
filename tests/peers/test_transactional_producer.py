"""``sparklog.Producer`` in transactions of a real Kafka, of transaction version 2 and before."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.client.blocking import BlockingClient
from sparklog.client.groups import Consumer
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition
from tests.peers.kafka_broker import KafkaBroker
from tests.support.waiting import wait_for

WAIT_S = 30.0
#: Transactions are looked at for a timeout once in so many milliseconds.
TIMEOUT_CHECKS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


@pytest.fixture(scope="module", params=[2, 0], ids=["version 2", "version 0"])
def address(
    request: pytest.FixtureRequest, jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("transactions") / "node"
    levels = [f"transaction.version={request.param}"]
    broker = KafkaBroker(jars, folder, TIMEOUT_CHECKS, features=levels)
    try:
        yield broker.address
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[BlockingClient]:
    with BlockingClient(address, timeout_s=WAIT_S) as found:
        yield found


@pytest.fixture
def topic(client: BlockingClient) -> str:
    return make_topic(client, 2)


@pytest.fixture
def name() -> str:
    return f"producer-{uuid4().hex[:12]}"


def make_topic(client: BlockingClient, partitions: int) -> str:
    name = f"transactions-{uuid4().hex[:12]}"
    client.admin.create_topic(name, partitions)
    client.admin.await_serving(name)
    return name


def producer(address: str, name: str, **options: object) -> sparklog.Producer:
    """A producer that has taken over its transactional id."""
    made = sparklog.Producer(
        address, transactional_id=name, **{"delivery_timeout_s": WAIT_S, **options}
    )
    made.init_transactions()
    return made


def values(client: BlockingClient, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """The records of all partitions up to the end that this isolation level sees, sorted."""
    group = f"group-{uuid4().hex[:12]}"
    options = {"group_id": group, "auto_offset_reset": "earliest", "isolation_level": isolation}
    with Consumer(client.cluster.bootstrap, **options) as reader:
        partitions = reader.partitions_for_topic(topic)
        ends = reader.end_offsets(partitions)
        reader.assign(dict.fromkeys(partitions, 0))
        found: list[bytes] = []
        while any(reader.position(tp) < ends[tp] for tp in partitions):
            found += [record.value or b"" for record in reader.poll(0.2)]
    return sorted(found)


def await_values(client: BlockingClient, topic: str, expected: list[bytes]) -> None:
    """The coordinator answers before the markers are written; they follow within moments."""
    wait_for(lambda: values(client, topic) == expected, WAIT_S)


def send(to: sparklog.Producer, topic: str, *numbers: int) -> None:
    for number in numbers:
        to.send(topic, b"%d" % number, partition=number % 2)


def test_a_commit_shows_all_partitions_and_an_abort_none(
    address: str, client: BlockingClient, topic: str, name: str
) -> None:
    with producer(address, name) as ours:
        ours.begin_transaction()
        send(ours, topic, 0, 1, 2)
        ours.flush()
        assert values(client, topic) == []
        assert values(client, topic, "read_uncommitted") == [b"0", b"1", b"2"]
        ours.commit_transaction()
        await_values(client, topic, [b"0", b"1", b"2"])
        ours.begin_transaction()
        send(ours, topic, 3, 4)
        ours.flush()
        ours.abort_transaction()
        await_values(client, topic, [b"0", b"1", b"2"])
        assert len(values(client, topic, "read_uncommitted")) == 5
        with ours.transaction():
            send(ours, topic, 5, 6)
        await_values(client, topic, [b"0", b"1", b"2", b"5", b"6"])


def test_many_transactions_of_many_batches(
    address: str, client: BlockingClient, topic: str, name: str
) -> None:
    with producer(address, name, batch_bytes=1000) as ours:
        for round_ in range(10):
            ours.begin_transaction()
            send(ours, topic, *range(200 * round_, 200 * round_ + 200))
            if round_ % 3:
                ours.commit_transaction()
            else:
                ours.abort_transaction()
    committed = [n for n in range(2000) if n // 200 % 3]
    await_values(client, topic, sorted(b"%d" % n for n in committed))


def test_an_exception_in_the_block_aborts(
    address: str, client: BlockingClient, topic: str, name: str
) -> None:
    with producer(address, name) as ours:

        def fail() -> None:
            with ours.transaction():
                send(ours, topic, 0, 1)
                ours.flush()
                send(ours, topic, 2)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        with ours.transaction():
            send(ours, topic, 7)
    await_values(client, topic, [b"7"])


def test_a_transaction_without_records(address: str, name: str) -> None:
    with producer(address, name) as ours:
        with ours.transaction():
            pass
        ours.begin_transaction()
        ours.abort_transaction()


def test_a_record_that_cannot_be_written_fails_the_transaction(
    address: str, client: BlockingClient, topic: str, name: str
) -> None:
    with producer(address, name) as ours:
        ours.begin_transaction()
        send(ours, topic, 0, 1)
        ours.send(topic, b"x" * 2_000_000, partition=0)
        with pytest.raises(KafkaError, match=r"MESSAGE_TOO_LARGE.*abort_transaction") as caught:
            ours.commit_transaction()
        assert caught.value.code is ErrorCode.TRANSACTION_ABORTABLE
        ours.abort_transaction()
        with ours.transaction():
            send(ours, topic, 2, 3)

        def fail() -> None:
            with ours.transaction():
                send(ours, topic, 4)
                ours.send(topic, b"x" * 2_000_000, partition=0)

        with pytest.raises(KafkaError) as caught:
            fail()
        assert caught.value.code is ErrorCode.TRANSACTION_ABORTABLE
        with ours.transaction():
            send(ours, topic, 5)
    await_values(client, topic, [b"2", b"3", b"5"])


def test_a_second_instance_fences_the_first(
    address: str, client: BlockingClient, topic: str, name: str
) -> None:
    first = producer(address, name)
    first.begin_transaction()
    send(first, topic, 0, 1)
    first.flush()
    with producer(address, name) as second:
        assert values(client, topic) == []
        send(first, topic, 2)
        with pytest.raises(KafkaError) as caught:
            first.commit_transaction()
        assert caught.value.code is ErrorCode.TRANSACTION_ABORTABLE
        with pytest.raises(KafkaError, match="another one was started") as caught:
            first.abort_transaction()
        assert caught.value.code is ErrorCode.PRODUCER_FENCED
        with pytest.raises(KafkaError) as caught:
            first.begin_transaction()
        assert caught.value.code is ErrorCode.PRODUCER_FENCED
        with second.transaction():
            send(second, topic, 3)
    first.close()
    await_values(client, topic, [b"3"])


def test_a_transaction_that_takes_too_long_is_aborted(
    address: str, client: BlockingClient, topic: str, name: str
) -> None:
    late = producer(address, name, transaction_timeout_ms=1000)
    late.begin_transaction()
    send(late, topic, 0, 1)
    late.flush()
    with producer(address, name + "-other") as other, other.transaction():
        send(other, topic, 2, 3)
    reader = sparklog.Consumer(
        address, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    with reader:
        reader.assign(dict.fromkeys(reader.partitions_for_topic(topic), 0))
        found: list[bytes] = []
        while len(found) < 2:  # the last stable offset waits for the late transaction
            found += [record.value or b"" for record in reader.poll(0.2)]
    assert sorted(found) == [b"2", b"3"]
    with pytest.raises(KafkaError, match="transaction_timeout_ms") as caught:
        late.commit_transaction()
    assert caught.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
    late.close()
    with producer(address, name) as ours, ours.transaction():
        send(ours, topic, 4)
    await_values(client, topic, [b"2", b"3", b"4"])


def test_offsets_are_committed_with_the_records(
    address: str, client: BlockingClient, topic: str, name: str
) -> None:
    output, group = make_topic(client, 2), f"group-{uuid4().hex[:12]}"
    source = client.producer()
    for number in range(20):
        source.send(topic, b"%d" % number, partition=number % 2)
    source.close()
    options = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with sparklog.Consumer(address, **options) as reader, producer(address, name) as ours:
        reader.subscribe([topic])
        done = 0
        while done < 20:
            records = reader.poll(0.2, max_records=5)
            if not records:
                continue
            with ours.transaction():
                for record in records:
                    ours.send(output, record.value, partition=record.partition)
                ours.send_offsets_to_transaction(reader.positions(), reader.group_metadata())
            done += len(records)
        tp = TopicPartition(topic, 0)

        def fail() -> None:
            with ours.transaction():
                ours.send_offsets_to_transaction({tp: 3}, reader.group_metadata())
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        committed = reader.committed(reader.assignment)
        assert sorted(each.offset for each in committed.values() if each) == [10, 10]
    await_values(client, output, sorted(b"%d" % number for number in range(20)))


def test_a_member_that_has_left_cannot_commit_offsets(
    address: str, client: BlockingClient, topic: str, name: str
) -> None:
    options = {"group_id": f"group-{uuid4().hex[:12]}", "enable_auto_commit": False}
    with producer(address, name) as ours:
        with sparklog.Consumer(address, **options) as reader:
            reader.subscribe([topic])
            while not reader.assignment:
                reader.poll(0.1)
            left = reader.group_metadata()
        ours.begin_transaction()
        send(ours, topic, 0)
        with pytest.raises(KafkaError, match=r"rebalanced.*abort_transaction") as caught:
            ours.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, left)
        assert caught.value.code is ErrorCode.TRANSACTION_ABORTABLE
        ours.abort_transaction()
        with ours.transaction():
            send(ours, topic, 1)
    await_values(client, topic, [b"1"])


def test_calls_out_of_turn_say_what_is_missing(address: str, topic: str, name: str) -> None:
    def refusal_of(call: object, *arguments: object) -> str:
        with pytest.raises(KafkaError) as caught:
            call(*arguments)  # type: ignore[operator]
        assert caught.value.code is ErrorCode.INVALID_TXN_STATE
        return str(caught.value)

    with sparklog.Producer(address) as plain:
        assert "transactional_id" in refusal_of(plain.init_transactions)
    with sparklog.Producer(address, transactional_id=name) as ours:
        assert "call init_transactions first" in refusal_of(ours.begin_transaction)
        ours.init_transactions()
        assert "call begin_transaction first" in refusal_of(ours.send, topic, b"")
        assert "call begin_transaction first" in refusal_of(ours.commit_transaction)
        assert "call begin_transaction first" in refusal_of(ours.abort_transaction)
        ours.begin_transaction()
        assert "commit it or abort it" in refusal_of(ours.begin_transaction)


def test_coroutines_write_in_transactions(
    address: str, client: BlockingClient, topic: str, name: str
) -> None:
    async def fail(ours: sparklog.AsyncProducer) -> None:
        async with ours.transaction():
            await ours.send(topic, b"lost")
            raise ZeroDivisionError

    async def main() -> None:
        async with sparklog.AsyncProducer(address, transactional_id=name) as ours:
            await ours.init_transactions()
            async with ours.transaction():
                await asyncio.gather(*(ours.send(topic, b"%d" % n, b"%d" % n) for n in range(50)))
            with pytest.raises(ZeroDivisionError):
                await fail(ours)
            ours.begin_transaction()
            await ours.send(topic, b"open at the end")

    asyncio.run(main())
    await_values(client, topic, sorted(b"%d" % number for number in range(50)))


def test_the_command_line_writes_all_lines_or_none(
    address: str,
    client: BlockingClient,
    topic: str,
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def produce(text: str) -> tuple[int, str, str]:
        lines = tmp_path / "lines"
        lines.write_text(text)
        arguments = ["produce", topic, "--file", str(lines), "--format", "json", "-b", address]
        code = run([*arguments, "--transactional-id", name])
        return (code, *capsys.readouterr())

    assert produce('{"value": "a"}\n{"value": "b"}\n') == (
        *(0, f"Produced 2 of 2 records to {topic}.\n", ""),
    )
    code, out, errors = produce('{"value": "c"}\nno JSON\n{"value": "d"}\n')
    assert (code, out) == (1, f"Produced 0 of 3 records to {topic}.\n")
    assert "line 2 of the input" in errors
    code, out, errors = produce('{"value": "e"}\n{"value": "f", "partition": 99}\n')
    assert (code, out) == (1, f"Produced 0 of 2 records to {topic}.\n")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in errors
    await_values(client, topic, [b"a", b"b"])


def test_the_example_runs(address: str) -> None:
    script = Path(__file__).parents[2] / "examples" / "exactly_once.py"
    done = subprocess.run(
        [sys.executable, str(script), address], capture_output=True, text=True, timeout=2 * WAIT_S
    )
    assert done.returncode == 0, done.stderr
    first, second, last = done.stdout.splitlines()
    assert (first[:23], second[:21]) == ("the first worker failed", "the second worker did")
    assert last == "100 totals, each order counts once"
