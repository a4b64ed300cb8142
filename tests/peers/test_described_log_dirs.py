"""DescribeLogDirs, and Kafka's tool for it, as Kafka answers them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from sparklog.wire.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from tests.peers.both import Both, batch
from tests.peers.kafka_broker import KafkaBroker
from tests.peers.kafka_tools import KafkaTools
from tests.support.served import ServedCluster

VERSIONS = range(DescribeLogDirsRequest.MIN_VERSION, DescribeLogDirsRequest.MAX_VERSION + 1)
TOPIC, EMPTY = "described", "described-empty"
#: Other tests make topics too.
OTHER_TOPICS = (rf"results\[.*\]\.topics(\[(?!{TOPIC}\]|{EMPTY}\]).*)?",)


@pytest.fixture(scope="module")
def known(both: Both) -> str:
    """Two partitions with different batches, and a topic without any."""
    both.create(TOPIC, 2)
    both.create(EMPTY)
    both.fill(TOPIC, batch(b"x" * 1000), batch(b"y", b"z"), partition=0)
    both.fill(TOPIC, batch(b"x" * 20), partition=1)
    return TOPIC


def asking(*topics: tuple[str, tuple[int, ...]]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(
        topics=tuple(
            DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in topics
        )
    )


def test_some_partitions(both: Both, known: str) -> None:
    for wanted in (
        asking((known, (0,))),
        asking((known, (1, 0)), (EMPTY, (0,))),
        asking((known, (0,)), (known, (1,))),
        asking((known, (0, 0))),
    ):
        answer = both.same(wanted, VERSIONS)
        assert [topic.name for topic in answer.results[0].topics]


def test_everything(both: Both, known: str) -> None:
    answer = both.same(DescribeLogDirsRequest(topics=None), VERSIONS, where=OTHER_TOPICS)
    [sizes] = [
        {each.partition_index: each.partition_size for each in topic.partitions}
        for topic in answer.results[0].topics
        if topic.name == known
    ]
    assert sizes[0] > 1000 > sizes[1] > 0


def test_what_is_not_there(both: Both, known: str) -> None:
    for wanted in (
        asking(("not-there", (0,))),
        asking((known, (7, -1))),
        asking((known, ())),
        asking((known, (0, 9)), ("not-there", (0,))),
        DescribeLogDirsRequest(topics=()),
    ):
        both.same(wanted, VERSIONS)


# -- the tool

Described = Callable[..., tuple[int, Any]]


@pytest.fixture
def described(tools: KafkaTools, kafka: KafkaBroker, cluster: ServedCluster) -> Described:
    """What the tool prints against ours, which is what it prints against Kafka."""

    def run(*arguments: str) -> tuple[int, Any]:
        of_kafka, ours = (
            _read(tools, "--bootstrap-server", address, "--describe", *arguments)
            for address in (kafka.address, cluster.bootstrap)
        )
        assert ours == of_kafka
        return ours

    return run


def _read(tools: KafkaTools, *arguments: str) -> tuple[int, Any]:
    """Exit code, and what is said of broker 1; the control plane keeps no logs."""
    run = tools.run("LogDirsCommand", *arguments)
    if run.code:
        return run.code, None
    found = json.loads(run.lines[-1])
    for broker in found["brokers"]:
        for directory in broker["logDirs"]:
            assert directory.pop("logDir")
            directory["partitions"].sort(key=lambda partition: partition["partition"])
    return run.code, [broker for broker in found["brokers"] if broker["broker"]]


def test_the_tool(described: Described, known: str) -> None:
    code, [broker] = described("--topic-list", f"{known},{EMPTY}")
    assert (code, broker["broker"]) == (0, 1)
    [directory] = broker["logDirs"]
    assert directory["error"] is None
    assert [partition["partition"] for partition in directory["partitions"]] == [
        f"{known}-0",
        f"{known}-1",
        f"{EMPTY}-0",
    ]
    assert directory["partitions"][0]["size"] > 1000
    assert described("--topic-list", "not-there", "--broker-list", "1")[0] == 0
    assert described("--topic-list", known, "--broker-list", "1,9")[0] == 1


def test_the_tool_without_a_list(
    tools: KafkaTools, cluster: ServedCluster, both: Both, known: str
) -> None:
    del both
    code, [broker] = _read(tools, "--bootstrap-server", cluster.bootstrap, "--describe")
    assert code == 0
    names = {partition["partition"] for partition in broker["logDirs"][0]["partitions"]}
    assert {f"{known}-0", f"{known}-1", f"{EMPTY}-0"} <= names
