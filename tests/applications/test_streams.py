"""Kafka Streams' word count: two instances, of which one is killed, and the tool that resets it."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.client.blocking import BlockingClient
from sparklog.types import OffsetSpec, TopicPartition
from tests.applications.application_runner import Application, ApplicationRunner
from tests.support.proven import proves
from tests.support.served import ServedCluster
from tests.support.waiting import wait_for

APPLICATION, INPUT, OUTPUT = "word-count", "texts", "word-counts"
CHANGELOG = f"{APPLICATION}-counts-changelog"
REPARTITION = f"{APPLICATION}-counts-repartition"
PARTITIONS, LINES, LINE_WORDS, WORDS = 4, 400, 6, 40
SECONDS_MAX = 90.0
SETTINGS = {
    "replication.factor": "-1",
    "commit.interval.ms": "100",
    "repartition.purge.interval.ms": "500",
    # Shorter than the default, because an instance is killed.
    "session.timeout.ms": "3000",
    "heartbeat.interval.ms": "300",
    # The changelog is cleaned while it is written and restored.
    "topic.min.cleanable.dirty.ratio": "0.0",
    "topic.segment.ms": "1000",
}


class Table:
    """The last value of each key in a topic, and how many records were there."""

    def __init__(self, client: BlockingClient, topic: str) -> None:
        self._consumer = client.consumer()
        self._consumer.assign([TopicPartition(topic, n) for n in range(PARTITIONS)])
        self._offsets: dict[int, list[int]] = {n: [] for n in range(PARTITIONS)}
        self._values: dict[str, bytes] = {}

    def read(self) -> dict[str, bytes]:
        while records := self._consumer.poll(0.2):
            for each in records:
                assert each.key is not None
                assert each.value is not None
                self._offsets[each.partition].append(each.offset)
                self._values[each.key.decode()] = each.value
        return self._values

    @property
    def gaps(self) -> int:
        """Offsets between those that were read."""
        return sum(found[-1] + 1 - len(found) for found in self._offsets.values() if found)

    def close(self) -> None:
        self._consumer.close()


class WordCounts:
    """The topics of the application, and what should be counted."""

    def __init__(self, bootstrap: str, folder: Path, application: str = APPLICATION) -> None:
        self.application = application
        own = "" if application == APPLICATION else f"{application}-"
        self.input, self.output = own + INPUT, own + OUTPUT
        self.client = BlockingClient(bootstrap)
        self.expected: Counter[str] = Counter()
        self._bootstrap = bootstrap
        self._folder = folder
        self._random = random.Random(19)
        for topic in {self.input, self.output} - self.client.admin.list_topics().keys():
            self.client.admin.create_topic(topic, PARTITIONS, replication_factor=3)
            self.client.admin.await_serving(topic)
        self._output = Table(self.client, self.output)

    def close(self) -> None:
        self._output.close()
        self.client.close()

    def start(self, runner: ApplicationRunner, name: str, **more: str) -> Application:
        own = {
            "bootstrap.servers": self._bootstrap,
            "application.id": self.application,
            "input": self.input,
            "output": self.output,
            "client.id": name,
            "state.dir": str(self._folder / name),
        }
        settings = SETTINGS | own | {key.replace("_", "."): more[key] for key in more}
        return runner.start("WordCount", *(f"{key}={value}" for key, value in settings.items()))

    def produce(self) -> None:
        with self.client.producer() as producer:
            for number in range(LINES):
                words = [f"word{self._random.randrange(WORDS)}" for _ in range(LINE_WORDS)]
                self.expected.update(words)
                producer.send(self.input, " ".join(words).encode(), partition=number % PARTITIONS)

    def await_counted(self, instance: Application) -> None:
        """Until everything is counted and committed; the counts are right then, and stay so."""
        instance.wait_for(lambda: self.counts() == self.expected, "the counts are right")
        instance.wait_for(self._committed, "everything is committed")
        assert self.counts() == self.expected

    def counts(self) -> dict[str, int]:
        return {word: int(value) for word, value in self._output.read().items()}

    def await_owners(self, *names: str) -> None:
        """Until each of the instances, and nobody else, has partitions of the input."""

        def owners() -> set[str]:
            [group] = self.client.admin.describe_groups([self.application]).values()
            return {
                member.client_id.partition("-StreamThread")[0]
                for partition, member in group.owners.items()
                if partition.topic == self.input
            }

        wait_for(lambda: owners() == set(names), SECONDS_MAX, f"not owned by {names}")

    def _committed(self) -> bool:
        offsets = self.client.admin.group_offsets(self.application)
        topics = {partition.topic for partition in offsets}
        repartition = f"{self.application}-counts-repartition"
        return topics == {self.input, repartition} and not any(
            each.lag for each in offsets.values()
        )


@pytest.fixture
def word_counts(cluster: ServedCluster, tmp_path: Path) -> Iterator[WordCounts]:
    found = WordCounts(cluster.bootstrap, tmp_path / "state")
    yield found
    found.close()


@proves("streams", "java")
def test_the_word_count_survives_an_instance_and_is_reset(
    runner: ApplicationRunner,
    killed_runner: ApplicationRunner,
    cluster: ServedCluster,
    word_counts: WordCounts,
) -> None:
    admin = word_counts.client.admin
    word_counts.produce()
    first = word_counts.start(runner, "first")
    word_counts.await_counted(first)
    word_counts.start(killed_runner, "second")
    word_counts.await_owners("first", "second")
    word_counts.produce()
    word_counts.await_counted(first)

    killed_runner.kill()  # after it has committed: nothing is counted twice
    word_counts.produce()
    word_counts.await_counted(first)
    word_counts.await_owners("first")

    described = admin.list_topics()
    assert {CHANGELOG, REPARTITION} <= described.keys()
    policies = {
        topic: admin.describe_topic_configs(topic)["cleanup.policy"].value
        for topic in (CHANGELOG, REPARTITION)
    }
    assert policies == {CHANGELOG: "compact", REPARTITION: "delete"}
    wait_for(lambda: changelog_is_cleaned(word_counts), SECONDS_MAX, "the changelog has all")
    first.stop()
    assert "ERROR" not in first.lines

    before = log_ends(word_counts.client, OUTPUT)
    reset = ("--bootstrap-server", cluster.bootstrap, "--application-id", APPLICATION)
    reset += ("--input-topics", INPUT, "--force")  # instances stay members when they stop
    runner.run("org.apache.kafka.tools.StreamsResetter", *reset, "--dry-run")
    assert admin.list_topics().keys() >= {CHANGELOG, REPARTITION}
    said = runner.run("org.apache.kafka.tools.StreamsResetter", *reset)
    assert f"Topic: {INPUT} Partition: 0 Offset: 0" in said
    wait_for(lambda: not {CHANGELOG, REPARTITION} & admin.list_topics().keys())
    again = word_counts.start(runner, "again")
    wait_for(lambda: log_ends(word_counts.client, OUTPUT) > before)
    word_counts.await_counted(again)
    again.stop()


@proves("transaction", "java")
def test_exactly_once_survives_an_instance_that_is_killed_at_work(
    runner: ApplicationRunner,
    killed_runner: ApplicationRunner,
    cluster: ServedCluster,
    tmp_path: Path,
) -> None:
    exactly = {"processing_guarantee": "exactly_once_v2"}
    found = WordCounts(cluster.bootstrap, tmp_path / "exact", "exactly-once")
    try:
        first = found.start(runner, "first", **exactly)
        found.produce()
        found.await_counted(first)
        found.start(killed_runner, "second", **exactly)
        found.await_owners("first", "second")
        before = sum(found.counts().values())
        found.produce()
        wait_for(lambda: sum(found.counts().values()) > before, SECONDS_MAX, "nothing is counted")
        killed_runner.kill()  # in a transaction, perhaps
        found.await_counted(first)
        found.await_owners("first")
        first.stop()
        assert "ERROR" not in first.lines
    finally:
        found.close()


def changelog_is_cleaned(word_counts: WordCounts) -> bool:
    """Whether older counts are gone; the last one of each word must be there."""
    table = Table(word_counts.client, CHANGELOG)
    found = {word: int.from_bytes(value, "big") for word, value in table.read().items()}
    assert found == word_counts.expected
    table.close()
    return table.gaps > 0


def log_ends(client: BlockingClient, topic: str) -> int:
    """Records that were ever in the topic."""
    wanted = {TopicPartition(topic, n): int(OffsetSpec.LATEST) for n in range(PARTITIONS)}
    return sum(found.offset for found in client.list_offsets(wanted).values())
