"""Transactional producers of every client: all or nothing, and one live producer for an id."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.peer_kcat import KCAT
from tests.clients.transactional_chains import CHAINS, Chain, ChainPlan
from tests.clients.transactional_writers import WRITERS, ConfluentWriter, Fenced, Writer
from tests.support.proven import proves

SECONDS_MAX = 60.0
PARTITIONS = 2
#: Records that a chain gets at a time.
EACH_TIME = 100
Open = Callable[..., Writer]


@pytest.fixture(params=sorted(WRITERS))
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def topics(request: pytest.FixtureRequest, create_topic: Callable[..., None]) -> tuple[str, str]:
    name = "transactions-" + "".join(c if c.isalnum() else "-" for c in request.node.name)
    names = (f"{name}-a", f"{name}-b")
    for each in names:
        create_topic(each, PARTITIONS)
    return names


@pytest.fixture
def open_writer(bootstrap: str, topics: tuple[str, str]) -> Iterator[Open]:
    """Opens writers with a transactional id of this test, and closes them in the end."""
    writers: list[Writer] = []

    def make(client: str, name: str = "") -> Writer:
        writers.append(WRITERS[client](bootstrap, topics[0] + name))
        return writers[-1]

    yield make
    for writer in writers:
        if not getattr(writer, "closed", False):
            writer.close()


def committed(bootstrap: str, topics: tuple[str, ...], *, uncommitted: bool = False) -> list[bytes]:
    """The records of the topics as a new consumer reads them, up to their present ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads",
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
        }
    )
    partitions = [
        TopicPartition(topic, number, OFFSET_BEGINNING)
        for topic in topics
        for number in range(PARTITIONS)
    ]
    consumer.assign(partitions)
    found: list[bytes] = []
    ended = 0
    deadline = time.monotonic() + SECONDS_MAX
    while ended < len(partitions):
        assert time.monotonic() < deadline
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            ended += 1
            continue
        found.append(message.value())
    consumer.close()
    return sorted(found)


def await_committed(bootstrap: str, topics: tuple[str, ...], expected: list[bytes]) -> None:
    """Markers spread for a moment after a commit."""
    deadline = time.monotonic() + SECONDS_MAX
    while (found := committed(bootstrap, topics)) != expected:
        missing, more = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
        assert time.monotonic() < deadline, f"missing: {[*missing][:9]}, too many: {[*more][:9]}"


def await_shared(bootstrap: str, group: str, produce: Callable[[], None]) -> None:
    """Produce until two members of the group have partitions, and once more."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + SECONDS_MAX
    shares: list[int] = []
    while len(shares) < 2 or not all(shares):
        assert time.monotonic() < deadline, shares
        produce()
        described = admin.describe_consumer_groups([group])[group].result()
        shares = [len(member.assignment.topic_partitions) for member in described.members]
    produce()


@proves("transaction", *WRITERS)
def test_a_transaction_is_visible_as_a_whole_or_not_at_all(
    client: str, bootstrap: str, topics: tuple[str, str], open_writer: Open
) -> None:
    writer = open_writer(client)
    expected: list[bytes] = []
    for number, is_committed in enumerate((True, False, True, False, False, True)):
        writer.begin()
        values = [b"%d-%s-%d" % (number, t.encode(), p) for t in topics for p in range(PARTITIONS)]
        places = [(t, p) for t in topics for p in range(PARTITIONS)]
        for (topic, partition), value in zip(places, values, strict=True):
            writer.send(topic, partition, value)
        assert committed(bootstrap, topics) == sorted(expected)
        if is_committed:
            writer.commit()
            expected += values
        else:
            writer.abort()
        await_committed(bootstrap, topics, sorted(expected))
    assert len(committed(bootstrap, topics, uncommitted=True)) == 6 * len(topics) * PARTITIONS


@proves("fenced producer", *WRITERS)
def test_a_second_producer_aborts_the_transaction_of_the_first_and_fences_it(
    client: str, bootstrap: str, topics: tuple[str, str], open_writer: Open
) -> None:
    zombie = open_writer(client)
    zombie.begin()
    zombie.send(topics[0], 0, b"of-the-zombie")
    second = open_writer(client)
    second.begin()
    second.send(topics[0], 0, b"of-the-second")
    second.commit()
    with pytest.raises(Fenced):
        _write_on(zombie, topics[0])
    await_committed(bootstrap, topics, [b"of-the-second"])
    assert b"too-late" not in committed(bootstrap, topics, uncommitted=True)


def _write_on(zombie: Writer, topic: str) -> None:
    """Some clients hear of it with the record, others with the commit."""
    zombie.send(topic, 0, b"too-late")
    zombie.commit()


@proves("taken over", *WRITERS)
def test_a_new_producer_aborts_what_a_dead_one_has_left_open(
    client: str, bootstrap: str, topics: tuple[str, str], open_writer: Open
) -> None:
    """Until then readers wait, because the coordinator does not know that the first one is dead."""
    topic = topics[0]
    dead = open_writer(client)
    dead.begin()
    dead.send(topic, 0, b"left-open")
    dead.close()
    dead.closed = True  # type: ignore[attr-defined]
    other = open_writer(client, "-other")
    other.begin()
    other.send(topic, 0, b"behind-it")
    other.commit()
    assert committed(bootstrap, topics) == []
    open_writer(client)
    await_committed(bootstrap, topics, [b"behind-it"])


@proves("chain", *CHAINS)
@pytest.mark.parametrize("chain", sorted(CHAINS))
def test_a_chain_counts_each_record_once_while_members_come_and_go(
    chain: str, bootstrap: str, topics: tuple[str, str]
) -> None:
    source, target = topics
    written: list[bytes] = []

    def produce() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        for _ in range(EACH_TIME):
            partition, offset = len(written) % PARTITIONS, len(written) // PARTITIONS
            producer.produce(source, b"x", partition=partition)
            written.append(b"%d/%d" % (partition, offset))
        assert producer.flush(SECONDS_MAX) == 0

    def start(name: str) -> Chain:
        plan = ChainPlan(
            bootstrap=bootstrap,
            group=f"{source}-group",
            source=source,
            target=target,
            transactional_id=f"{source}-{name}",
        )
        chains.append(CHAINS[chain](plan))
        return chains[-1]

    chains: list[Chain] = []
    try:
        produce()
        first = start("first")
        await_committed(bootstrap, (target,), sorted(written))
        start("second")
        await_shared(bootstrap, f"{source}-group", produce)
        await_committed(bootstrap, (target,), sorted(written))
        produce()
        first.kill()
        chains.remove(first)
        start("first")  # aborts what was open
        produce()
        await_committed(bootstrap, (target,), sorted(written))
    finally:
        for each in chains:
            each.kill()


def test_consuming_and_producing_in_one_transaction(
    bootstrap: str, topics: tuple[str, str], open_writer: Open
) -> None:
    source, target = topics
    plain = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        plain.produce(source, b"%d" % number, partition=number % PARTITIONS)
    assert plain.flush(SECONDS_MAX) == 0
    writer = open_writer("confluent")
    assert isinstance(writer, ConfluentWriter)
    group = f"{source}-group"
    for turn, is_committed in enumerate((False, True)):
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([source])
        writer.begin()
        taken = 0
        deadline = time.monotonic() + SECONDS_MAX
        while taken < 20:
            assert time.monotonic() < deadline
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                writer.producer.produce(target, b"%d:" % turn + message.value(), partition=0)
                taken += 1
        writer.producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        if is_committed:
            writer.commit()
        else:
            writer.abort()
        consumer.close()
    await_committed(bootstrap, (target,), sorted(b"1:%d" % number for number in range(20)))
    assert _committed_offsets(bootstrap, group, source) == 20


def _committed_offsets(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    try:
        return sum(tp.offset for tp in consumer.committed(partitions, SECONDS_MAX))
    finally:
        consumer.close()


def test_a_long_timeout_is_refused(bootstrap: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "long",
            "transaction.timeout.ms": 900_001,
            "log_level": 0,
        }
    )
    with pytest.raises(KafkaException, match=r"transaction.timeout.ms|[Tt]imeout"):
        producer.init_transactions(SECONDS_MAX)


@proves("transaction", "kcat")
@pytest.mark.skipif(not Path(KCAT).exists(), reason=f"{KCAT} is not installed")
def test_kcat(bootstrap: str, topics: tuple[str, str]) -> None:
    command = [KCAT, "-P", "-b", bootstrap, "-t", topics[0], "-X", f"transactional.id={topics[0]}"]
    done = subprocess.run(
        command, input=b"one\ntwo\n", capture_output=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    await_committed(bootstrap, topics, [b"one", b"two"])


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", ["exactly_once.py", "exactly_once_kafka_client.py"])
def test_the_examples_run(bootstrap: str, name: str) -> None:
    command = [sys.executable, str(EXAMPLES / name), bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, last = done.stdout.splitlines()
    assert last in {f"100 totals{mark} each order counts once" for mark in ",:"}
