"""Kafka's transactional producer, and chains of it and Kafka's consumer."""

from collections.abc import Iterator

import pytest

from sparklog.client.blocking import BlockingClient
from sparklog.types import Isolation, OffsetSpec, TopicPartition
from tests.applications.application_runner import Application, ApplicationRunner
from tests.support.proven import proves
from tests.support.served import ServedCluster
from tests.support.waiting import wait_for

PARTITIONS, EACH_TIME = 4, 200
SECONDS_MAX = 90.0


class Topics:
    """Topics of a test, and their committed records."""

    def __init__(self, bootstrap: str) -> None:
        self.client = BlockingClient(bootstrap)
        self.bootstrap = bootstrap

    def close(self) -> None:
        self.client.close()

    def create(self, *names: str) -> None:
        for name in names:
            self.client.admin.create_topic(name, PARTITIONS, replication_factor=3)
            self.client.admin.await_serving(name)

    def end(self, name: str, isolation: Isolation) -> int:
        """The sum of the ends of all partitions, as readers of this isolation see them."""
        wanted = {TopicPartition(name, n): int(OffsetSpec.LATEST) for n in range(PARTITIONS)}
        found = self.client.list_offsets(wanted, isolation=isolation)
        return sum(each.offset for each in found.values())

    def values(self, *names: str) -> list[str]:
        """What a reader of committed records gets, up to the present ends."""
        found: list[str] = []
        for name in names:
            with self.client.consumer() as consumer:
                wanted = {
                    TopicPartition(name, n): int(OffsetSpec.LATEST) for n in range(PARTITIONS)
                }
                ends = self.client.list_offsets(wanted, isolation=Isolation.READ_COMMITTED)
                consumer.assign({tp: 0 for tp, end in ends.items() if end.offset})
                while any(
                    consumer.position(tp) < end.offset for tp, end in ends.items() if end.offset
                ):
                    found += [(record.value or b"").decode() for record in consumer.poll(0.2)]
        return sorted(found)

    def await_values(self, expected: list[str], *names: str) -> None:
        wait_for(lambda: self.values(*names) == sorted(expected), SECONDS_MAX)


@pytest.fixture
def topics(cluster: ServedCluster) -> Iterator[Topics]:
    found = Topics(cluster.bootstrap)
    yield found
    found.close()


def played(runner: ApplicationRunner, topics: Topics, *steps: str) -> list[str]:
    """The outcomes of the steps of a script."""
    lines = runner.run("TransactionScript", topics.bootstrap, *steps)
    assert [line.partition(" ")[0] for line in lines] == list(steps)
    return [line.partition(" ")[2] for line in lines]


@proves("transaction", "java")
def test_a_transaction_is_visible_as_a_whole_or_not_at_all(
    runner: ApplicationRunner, topics: Topics
) -> None:
    topics.create("java-a", "java-b")
    names = ("java-a", "java-b")
    steps, expected = ["java,start"], []
    for number, end in enumerate(("commit", "abort", "commit", "abort", "abort", "commit")):
        steps.append("java,begin")
        for name in names:
            steps += [f"java,send,{name},{n},{number}-{name}-{n}" for n in range(2)]
        steps.append(f"java,{end}")
        if end == "commit":
            expected += [f"{number}-{name}-{n}" for name in names for n in range(2)]
    assert set(played(runner, topics, *steps)) == {"done"}
    topics.await_values(expected, *names)
    played(runner, topics, "java,start", "java,begin", "java,send,java-a,0,open")
    assert topics.values(*names) == sorted(expected)


@proves("fenced producer", "java")
def test_a_second_producer_fences_the_first(runner: ApplicationRunner, topics: Topics) -> None:
    topics.create("java-fenced")
    outcomes = played(
        runner,
        topics,
        *("zombie,start", "zombie,begin", "zombie,send,java-fenced,0,of-the-zombie"),
        *("zombie,start", "zombie,begin", "zombie,send,java-fenced,0,of-the-second"),
        *("zombie,commit", "zombie,old", "zombie,send,java-fenced,0,too-late", "zombie,commit"),
    )
    assert outcomes[:8] == ["done"] * 8
    assert outcomes[8] in ("InvalidProducerEpochException", "ProducerFencedException")
    assert outcomes[9] != "done"
    topics.await_values(["of-the-second"], "java-fenced")


@proves("taken over", "java")
def test_a_new_producer_aborts_what_a_dead_one_has_left_open(
    runner: ApplicationRunner, killed_runner: ApplicationRunner, topics: Topics
) -> None:
    topics.create("java-dead")
    played(killed_runner, topics, "dead,start", "dead,begin", "dead,send,java-dead,0,left-open")
    killed_runner.kill()
    played(
        runner,
        topics,
        *("other,start", "other,begin", "other,send,java-dead,0,behind-it", "other,commit"),
    )
    assert topics.values("java-dead") == []
    assert topics.end("java-dead", Isolation.READ_COMMITTED) == 0
    played(runner, topics, "dead,start")
    topics.await_values(["behind-it"], "java-dead")


@proves("chain", "java")
def test_a_chain_counts_each_record_once_while_members_come_and_go(
    runner: ApplicationRunner, killed_runner: ApplicationRunner, topics: Topics
) -> None:
    topics.create("java-in", "java-out")
    written: list[str] = []

    def produce() -> None:
        with topics.client.producer() as producer:
            for _ in range(EACH_TIME):
                partition, offset = len(written) % PARTITIONS, len(written) // PARTITIONS
                producer.send("java-in", b"x", partition=partition)
                written.append(f"{partition}/{offset}")

    def start(jvm: ApplicationRunner, name: str) -> Application:
        places = ("java-chain", "java-in", "java-out", f"java-{name}")
        return jvm.start("TransactionalCopier", topics.bootstrap, *places)

    produce()
    first = start(runner, "first")
    topics.await_values(written, "java-out")
    second = start(killed_runner, "second")
    second.wait_for(lambda: "started" in second.lines, "it has started")
    for _ in range(4):
        produce()
    topics.await_values(written, "java-out")
    second.wait_for(lambda: any("committed" in line for line in second.lines), "it has a share")
    produce()
    killed_runner.kill()  # in a transaction, perhaps
    third = start(runner, "second")  # aborts what was open
    produce()
    topics.await_values(written, "java-out")
    first.stop()
    third.stop()
    assert topics.end("java-out", Isolation.READ_COMMITTED) == topics.end(
        "java-out", Isolation.READ_UNCOMMITTED
    )
