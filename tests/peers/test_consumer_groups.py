"""``sparklog.Consumer`` in groups of a real Kafka: alone, with its like, and beside librdkafka."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import confluent_kafka
import pytest

import sparklog
from sparklog.client.blocking import BlockingClient
from sparklog.client.consumer import ConsumedRecord
from sparklog.client.groups import AsyncConsumer, Consumer, OffsetAndMetadata, RebalanceListener
from sparklog.errors import ErrorCode, KafkaError, NoOffsetForPartitionError
from sparklog.types import OffsetSpec, TopicPartition
from tests.peers.kafka_broker import JAVA_OPTIONS, KafkaBroker

WAIT_S = 60.0


@pytest.fixture
def address(kafka: KafkaBroker) -> str:
    return kafka.address


@pytest.fixture
def client(address: str) -> Iterator[BlockingClient]:
    with BlockingClient(address) as found:
        yield found


@pytest.fixture
def topic(client: BlockingClient) -> str:
    return make_topic(client, 4)


def make_topic(client: BlockingClient, partitions: int, prefix: str = "groups") -> str:
    name = f"{prefix}-{uuid4().hex[:12]}"
    client.admin.create_topic(name, partitions)
    client.admin.await_serving(name)
    return name


def fill(client: BlockingClient, topic: str, numbers: range, partitions: int = 4) -> None:
    producer = client.producer()
    for number in numbers:
        producer.send(topic, b"%d" % number, partition=number % partitions, timestamp=number)
    producer.close()


def group_name() -> str:
    return f"group-{uuid4().hex[:12]}"


def consumer(address: str, group: str, **options: object) -> Consumer:
    defaults = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 100}
    return Consumer(address, group_id=group, **{**defaults, **options})


def read(from_: Consumer, count: int) -> list[ConsumedRecord]:
    """Exactly so many records."""
    found: list[ConsumedRecord] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records arrived"
        found += from_.poll(0.2)
    assert len(found) == count
    return found


def numbers_of(records: list[ConsumedRecord]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


def poll_until(condition: Callable[[], bool], *consumers: Consumer) -> list[ConsumedRecord]:
    """Poll in turns until the condition holds; returns the records of all."""
    found: list[ConsumedRecord] = []
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, [each.assignment for each in consumers]
        for each in consumers:
            found += each.poll(0.05)
    return found


class Notes(RebalanceListener):
    """What a listener was told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[int]]] = []

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.told.append(("revoked", sorted(tp.partition for tp in partitions)))

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.told.append(("assigned", sorted(tp.partition for tp in partitions)))

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.told.append(("lost", sorted(tp.partition for tp in partitions)))


def test_a_group_reads_on_where_it_has_committed(
    address: str, client: BlockingClient, topic: str
) -> None:
    group, notes = group_name(), Notes()
    fill(client, topic, range(100))
    with consumer(address, group, enable_auto_commit=False) as first:
        first.subscribe([topic], listener=notes)
        assert numbers_of(read(first, 100)) == [*range(100)]
        first.commit()
        assert first.subscription == {topic}
        assert first.committed([TopicPartition(topic, 1)]) == {
            TopicPartition(topic, 1): OffsetAndMetadata(offset=25)
        }
    assert notes.told == [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3])]
    fill(client, topic, range(100, 120))
    with consumer(address, group) as second:
        second.subscribe([topic])
        assert numbers_of(read(second, 20)) == [*range(100, 120)]
    with consumer(address, group) as third:  # the close before has committed
        third.subscribe([topic])
        poll_until(lambda: len(third.assignment) == 4, third)
        assert [third.position(TopicPartition(topic, n)) for n in range(4)] == [30] * 4


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_two_members_share_and_one_takes_over(
    assignor: str, address: str, client: BlockingClient, topic: str
) -> None:
    group, options = group_name(), {"partition_assignment_strategy": [assignor]}
    notes = Notes()
    with consumer(address, group, **options) as first:
        first.subscribe([topic], listener=notes)
        poll_until(lambda: len(first.assignment) == 4, first)
        with consumer(address, group, **options) as second:
            second.subscribe([topic])
            poll_until(lambda: len(first.assignment) == len(second.assignment) == 2, first, second)
            assert not first.assignment & second.assignment
            fill(client, topic, range(40))
            found: list[ConsumedRecord] = []
            deadline = time.monotonic() + WAIT_S
            while len(found) < 40 and time.monotonic() < deadline:
                found += first.poll(0.05) + second.poll(0.05)
            assert numbers_of(found) == [*range(40)]
        poll_until(lambda: len(first.assignment) == 4, first)
        fill(client, topic, range(40, 60))
        assert numbers_of(read(first, 20)) == [*range(40, 60)]
    kinds = [kind for kind, _ in notes.told]
    assert "lost" not in kinds
    given_up = [len(partitions) for kind, partitions in notes.told if kind == "revoked"]
    # Eager members give up everything at a rebalance, cooperative ones only what moves.
    assert given_up[0] == (2 if assignor == "cooperative-sticky" else 4)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_groups_are_shared_with_librdkafka(
    assignor: str, address: str, client: BlockingClient, topic: str
) -> None:
    group = group_name()
    other = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "partition.assignment.strategy": assignor,
            "auto.offset.reset": "earliest",
        }
    )
    other.subscribe([topic])
    try:
        with consumer(address, group, partition_assignment_strategy=[assignor]) as ours:
            ours.subscribe([topic])

            def is_shared() -> bool:
                other.poll(0.05)
                return len(ours.assignment) == len(other.assignment()) == 2

            poll_until(is_shared, ours)
            theirs = {TopicPartition(tp.topic, tp.partition) for tp in other.assignment()}
            assert not ours.assignment & theirs
    finally:
        other.close()


def test_a_pattern_finds_topics_that_are_made_later(address: str, client: BlockingClient) -> None:
    prefix = f"pattern-{uuid4().hex[:8]}"
    with consumer(address, group_name(), metadata_max_age_ms=200) as ours:
        early = make_topic(client, 1, prefix)
        ours.subscribe(pattern=f"{prefix}-.*")
        poll_until(lambda: ours.subscription == {early} and len(ours.assignment) == 1, ours)
        late = make_topic(client, 2, prefix)
        poll_until(lambda: len(ours.assignment) == 3, ours)
        assert ours.subscription == {early, late}
        client.admin.create_partitions(late, 4)
        poll_until(lambda: len(ours.assignment) == 5, ours)


def test_a_static_member_keeps_its_partitions_over_a_restart(address: str, topic: str) -> None:
    group, notes = group_name(), Notes()
    with consumer(address, group, group_instance_id="other") as other:
        other.subscribe([topic], listener=notes)
        ours = consumer(address, group, group_instance_id="ours")
        ours.subscribe([topic])
        poll_until(lambda: len(ours.assignment) == len(other.assignment) == 2, ours, other)
        before, told = ours.assignment, list(notes.told)
        ours.close()
        with consumer(address, group, group_instance_id="ours") as again:
            again.subscribe([topic])
            poll_until(lambda: len(again.assignment) == 2, again, other)
            assert again.assignment == before
            assert notes.told == told
            with consumer(address, group, group_instance_id="ours") as usurper:
                usurper.subscribe([topic])
                with pytest.raises(KafkaError, match="another consumer uses") as refused:
                    poll_until(lambda: False, usurper, again)
                assert refused.value.code == ErrorCode.FENCED_INSTANCE_ID


def test_a_consumer_that_does_not_poll_leaves_and_comes_back(address: str, topic: str) -> None:
    group, notes = group_name(), Notes()
    slow = consumer(address, group, max_poll_interval_ms=1000)
    with consumer(address, group) as quick, slow:
        slow.subscribe([topic], listener=notes)
        quick.subscribe([topic])
        poll_until(lambda: len(slow.assignment) == len(quick.assignment) == 2, slow, quick)
        poll_until(lambda: len(quick.assignment) == 4, quick)
        with pytest.raises(KafkaError) as refused:
            slow.commit({TopicPartition(topic, 0): 0})
        assert refused.value.code == ErrorCode.UNKNOWN_MEMBER_ID
        poll_until(lambda: len(slow.assignment) == len(quick.assignment) == 2, slow, quick)
    assert "lost" in [kind for kind, _ in notes.told]


def test_commits_in_the_background_tell_their_outcome(
    address: str, client: BlockingClient, topic: str
) -> None:
    told: list[tuple[object, Exception | None]] = []
    fill(client, topic, range(8))
    with consumer(address, group_name(), enable_auto_commit=False) as ours:
        ours.subscribe([topic])
        read(ours, 8)
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset=1, metadata="half")}
        ours.commit_async(offsets, lambda given, error: told.append((given, error)))
        poll_until(lambda: bool(told), ours)
        assert told == [(offsets, None)]
        assert ours.committed(offsets) == offsets


def test_automatic_commits_go_on_while_polling(
    address: str, client: BlockingClient, topic: str
) -> None:
    tp = TopicPartition(topic, 0)
    with consumer(address, group_name(), auto_commit_interval_ms=100) as ours:
        ours.subscribe([topic])
        fill(client, topic, range(4))
        read(ours, 4)
        poll_until(lambda: ours.committed([tp]) == {tp: OffsetAndMetadata(offset=1)}, ours)


def test_iteration_commits_what_it_has_reached(
    address: str, client: BlockingClient, topic: str
) -> None:
    group = group_name()
    fill(client, topic, range(0, 40, 4))  # all in partition 0
    tp = TopicPartition(topic, 0)
    with consumer(address, group, enable_auto_commit=False) as ours:
        ours.subscribe([topic])
        for record in ours:
            if record.offset == 3:
                ours.commit()
                break
        assert ours.committed([tp]) == {tp: OffsetAndMetadata(offset=4)}
        assert ours.position(tp) == 4
        assert [record.offset for record in read(ours, 6)] == [4, 5, 6, 7, 8, 9]


def test_what_failed_in_the_block_is_not_committed(
    address: str, client: BlockingClient, topic: str
) -> None:
    group = group_name()
    fill(client, topic, range(4))
    ours = consumer(address, group)

    def process() -> None:
        with ours:
            ours.subscribe([topic])
            read(ours, 4)
            raise RuntimeError("processing failed")

    with pytest.raises(RuntimeError, match="processing failed"):
        process()
    with consumer(address, group) as again:
        again.subscribe([topic])
        assert len(read(again, 4)) == 4


def test_arrow_batches_have_the_columns_of_spark(
    address: str, client: BlockingClient, topic: str
) -> None:
    fill(client, topic, range(1000))
    with consumer(address, group_name()) as ours:
        ours.subscribe([topic])
        tables = []
        deadline = time.monotonic() + WAIT_S
        while sum(map(len, tables)) < 1000 and time.monotonic() < deadline:
            tables.append(ours.poll_arrow(0.5))
        assert tables[0].schema.names == [
            *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
        ]
        values = [int(value) for batch in tables for value in batch.column("value").to_pylist()]
        assert sorted(values) == [*range(1000)]
        assert {each for batch in tables for each in batch.column("topic").to_pylist()} == {topic}
        assert len(ours.poll_arrow(0)) == 0
        ours.seek_to_beginning()
        assert "headers" in ours.poll_arrow(5, headers=True).schema.names


def test_pause_seek_and_times(address: str, client: BlockingClient, topic: str) -> None:
    fill(client, topic, range(100))
    partitions = [TopicPartition(topic, n) for n in range(4)]
    with consumer(address, group_name()) as ours:
        ours.assign(partitions)
        ours.pause(*partitions[1:])
        assert {record.partition for record in read(ours, 25)} == {0}
        assert ours.paused == set(partitions[1:])
        ours.resume(*partitions[1:])
        assert {record.partition for record in read(ours, 75)} == {1, 2, 3}
        found = ours.offsets_for_times(dict.fromkeys(partitions, 50))
        offsets = {tp: each.offset for tp, each in found.items() if each is not None}
        assert offsets == dict(zip(partitions, (13, 13, 12, 12), strict=True))
        assert ours.offsets_for_times({partitions[0]: 1000}) == {partitions[0]: None}
        for tp, offset in offsets.items():
            ours.seek(tp, offset)
        assert numbers_of(read(ours, 50)) == [*range(50, 100)]
        assert ours.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
        assert ours.end_offsets(partitions) == dict.fromkeys(partitions, 25)
        assert ours.partitions_for_topic(topic) == partitions
    with consumer(address, group_name()) as ours:
        ours.assign({partitions[0]: 20, partitions[1]: OffsetSpec.LATEST})
        assert [record.offset for record in read(ours, 5)] == [20, 21, 22, 23, 24]


def test_a_listener_may_seek_instead_of_a_committed_offset(
    address: str, client: BlockingClient, topic: str
) -> None:
    fill(client, topic, range(40))

    class Seeks(RebalanceListener):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            for tp in partitions:
                ours.seek(tp, 9)

    with consumer(address, group_name(), auto_offset_reset="none") as ours:
        ours.subscribe([topic], listener=Seeks())
        assert numbers_of(read(ours, 4)) == [36, 37, 38, 39]


def test_without_an_offset_and_a_reset_there_is_an_error(address: str, topic: str) -> None:
    with consumer(address, group_name(), auto_offset_reset="none") as ours:
        ours.subscribe([topic])
        with pytest.raises(NoOffsetForPartitionError, match="seek to an offset"):
            poll_until(lambda: False, ours)


def test_a_wakeup_ends_a_poll(address: str, topic: str) -> None:
    with consumer(address, group_name()) as ours:
        ours.subscribe([topic])
        poll_until(lambda: len(ours.assignment) == 4, ours)
        timer = threading.Timer(0.3, ours.wakeup)
        timer.start()
        started = time.monotonic()
        assert ours.poll(WAIT_S) == []
        assert time.monotonic() - started < WAIT_S / 2
        timer.join()


def test_coroutines_share_a_group(address: str, client: BlockingClient, topic: str) -> None:
    fill(client, topic, range(200))
    group, told = group_name(), []

    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            told.append(len(partitions))

    async def read_some(found: list[int]) -> None:
        async with AsyncConsumer(
            address, group_id=group, auto_offset_reset="earliest", heartbeat_interval_ms=100
        ) as ours:
            ours.subscribe([topic], listener=Listener())
            async for record in ours:
                found.append(int(record.value or b""))
                if len(found) >= 200:
                    return

    async def main() -> list[int]:
        found: list[int] = []
        async with asyncio.timeout(WAIT_S):
            await read_some(found)
        return found

    assert sorted(asyncio.run(main())) == [*range(200)]
    assert told == [4]


def test_the_names_are_in_the_package() -> None:
    assert sparklog.Consumer is Consumer
    assert sparklog.AsyncConsumer is AsyncConsumer


def test_the_example_runs(address: str) -> None:
    script = Path(__file__).parents[2] / "examples" / "consumer_group.py"
    done = subprocess.run(
        [sys.executable, str(script), address], capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    # Who was first has had all partitions, and gives up two.
    assert {"anna gets 2 partitions", "ben gets 2 partitions"} & {*lines}
    assert "anna and ben share the partitions and have done 40 orders" in lines
    assert "ben gives up 2 partitions" in lines
    assert lines[-2:] == ["anna alone has done 40 more", "anna gives up 4 partitions"]


@pytest.mark.parametrize("assignor", ["Sticky", "CooperativeSticky"])
def test_groups_are_shared_with_java(
    assignor: str, address: str, jars: Path, client: BlockingClient, topic: str
) -> None:
    """Whoever leads, both read the other's sticky user data."""
    group, name = group_name(), {"Sticky": "sticky", "CooperativeSticky": "cooperative-sticky"}
    settings = f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{assignor}Assignor"
    java = subprocess.Popen(
        [
            *("java", *JAVA_OPTIONS, "-cp", str(jars / "*")),
            *("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", address),
            *("--topic", topic, "--group", group, "--consumer-property", settings),
            *("--consumer-property", "auto.offset.reset=earliest"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    options = {"partition_assignment_strategy": [name[assignor]]}
    try:
        with consumer(address, group, **options) as first:
            first.subscribe([topic])
            poll_until(lambda: len(first.assignment) == 4, first)
            poll_until(lambda: len(first.assignment) == 2, first)  # Java has joined
            kept = first.assignment
            with consumer(address, group, **options) as second:
                second.subscribe([topic])
                poll_until(lambda: len(second.assignment) == 1, first, second)
                assert not first.assignment & second.assignment
                assert first.assignment <= kept
            poll_until(lambda: len(first.assignment) == 2, first)
    finally:
        java.terminate()
        java.communicate(timeout=WAIT_S)


def test_a_member_survives_a_restart_of_its_coordinator(jars: Path, tmp_path: Path) -> None:
    broker = KafkaBroker(jars, tmp_path / "node")
    try:
        with BlockingClient(broker.address) as client:
            topic = make_topic(client, 2)
            with consumer(broker.address, group_name()) as ours:
                ours.subscribe([topic])
                fill(client, topic, range(10), 2)
                assert numbers_of(read(ours, 10)) == [*range(10)]
                broker.stop()
                assert ours.poll(0.5) == []
                broker.start()
                fill(client, topic, range(10, 20), 2)
                assert numbers_of(read(ours, 10)) == [*range(10, 20)]
                ours.commit()
    finally:
        broker.kill()
