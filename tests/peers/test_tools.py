"""Kafka's command line tools against us, as against Kafka."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.wire.records.builder import decode_records
from tests.peers.both import Both, batch
from tests.peers.kafka_broker import KafkaBroker
from tests.peers.kafka_tools import KafkaTools, ToolRun
from tests.peers.same_words import Condition, anything, hides, prints, same_words, shows
from tests.support.proven import proves
from tests.support.served import ServedCluster
from tests.support.waiting import wait_for

FIRST = 1_700_000_000_000
CONFIG = "kafka.admin.ConfigCommand"
Same = Callable[..., ToolRun]


@pytest.fixture
def same(tools: KafkaTools, kafka: KafkaBroker, cluster: ServedCluster) -> Same:
    """As ``same_words``."""
    addresses = (kafka.address, cluster.bootstrap)

    def run(tool: str, *arguments: str, until: Condition | None = None) -> ToolRun:
        return same_words(tools, addresses, tool, arguments, until=until)

    return run


@proves("topics", "java")
@proves("metadata", "java")
def test_topics(same: Same) -> None:
    def topics(*arguments: str, until: Condition | None = None) -> ToolRun:
        return same("TopicCommand", *arguments, until=until)

    assert topics("--create", "--topic", "tool-a", "--partitions", "2").out == (
        "Created topic tool-a.\n"
    )
    assert topics("--create", "--topic", "tool-a").code == 1
    assert topics("--create", "--topic", "tool-a", "--if-not-exists").code == 0
    settings = ("--config", "retention.ms=3600000", "--config", "segment.bytes=2097152")
    assert topics("--create", "--topic", "tool-b", *settings).code == 0
    assert topics("--create", "--topic", "tool-c", "--replica-assignment", "1,1,1").code == 0
    assert topics("--create", "--topic", "tool-d", "--partitions", "0").code == 1
    assert topics("--create", "--topic", "tool-d", "--replication-factor", "2").code == 1
    assert topics("--create", "--topic", "tool-d", "--config", "no.such=1").code == 1
    assert topics("--create", "--topic", "tool d").code == 1
    topics("--list", "--topic", "tool-.*", until=prints("tool-a\ntool-b\ntool-c\n"))
    for options in ((), ("--unavailable-partitions",), ("--under-replicated-partitions",)):
        topics("--describe", "--topic", "tool-.*", *options, until=anything)
    assert topics("--describe", "--topic", "tool-d").code == 1
    assert topics("--alter", "--topic", "tool-a", "--partitions", "5").code == 0
    assert topics("--alter", "--topic", "tool-a", "--partitions", "3").code == 1
    topics("--describe", "--topic", "tool-a", until=shows("PartitionCount: 5"))
    for name in ("tool-a", "tool-b", "tool-c"):
        assert topics("--delete", "--topic", name).code == 0
    topics("--list", "--topic", "tool-.*", until=prints("\n"))
    assert topics("--delete", "--topic", "tool-a").code == 1


@proves("settings", "java")
def test_settings_of_topics(same: Same, both: Both) -> None:
    both.create("tool-settings")

    def configs(*arguments: str, until: Condition | None = None) -> ToolRun:
        return same(CONFIG, "--topic", "tool-settings", *arguments, until=until)

    changes = "retention.bytes=1000000,max.message.bytes=2000"
    assert configs("--alter", "--add-config", changes).code == 0
    configs("--describe", until=shows("max.message.bytes=2000"))
    assert configs("--alter", "--delete-config", "retention.bytes").code == 0
    configs("--describe", until=hides("retention.bytes"))
    assert configs("--alter", "--add-config", "max.message.bytes=-3").code == 1
    assert configs("--alter", "--add-config", "no.such.thing=3").code == 1
    assert configs("--alter", "--add-config", "cleanup.policy=[delete]").code == 0
    assert same(CONFIG, "--topic", "tool-nowhere", "--describe").code == 0
    missing = same(CONFIG, "--topic", "tool-nowhere", "--alter", "--add-config", "flush.ms=1")
    assert missing.code == 1


@proves("settings", "java")
def test_settings_of_a_broker(tools: KafkaTools, cluster: ServedCluster) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    shown = tools.ok(CONFIG, *server, "--broker", "1", "--describe", "--all")
    assert "  num.partitions=1 sensitive=false" in shown.out
    change = ("--add-config", "producer.id.expiration.ms=1000000")
    tools.ok(CONFIG, *server, "--broker-defaults", "--alter", *change)
    told = "  producer.id.expiration.ms=1000000 sensitive=false"
    shown_of_all = (CONFIG, *server, "--broker-defaults", "--describe")
    wait_for(lambda: told in tools.ok(*shown_of_all).out)
    undo = ("--delete-config", "producer.id.expiration.ms")
    tools.ok(CONFIG, *server, "--broker-defaults", "--alter", *undo)


@proves("offsets", "java")
def test_offsets(same: Same, both: Both) -> None:
    both.create("tool-offsets", 3)
    for number in range(3):
        late = batch(b"x", b"y", timestamp=FIRST + 1000)
        both.fill("tool-offsets", late, batch(b"z", timestamp=FIRST + number), partition=number)

    def offsets(*arguments: str) -> ToolRun:
        return same("GetOffsetShell", "--topic-partitions", "tool-offsets", *arguments)

    assert offsets().lines == [f"tool-offsets:{number}:3" for number in range(3)]
    times = ("latest", "earliest", "max-timestamp", "earliest-local", "latest-tiered")
    for when in (*times, "-1", "-2", "0", str(FIRST + 1), str(FIRST + 1001), str(FIRST + 2000)):
        assert offsets("--time", when).code == 0
    assert offsets("--time", "yesterday").code == 1
    assert same("GetOffsetShell", "--topic", "tool-nowhere").code == 1


@proves("deleted records", "java")
def test_deleting_records(same: Same, both: Both, tmp_path: Path) -> None:
    both.create("tool-shortened", 2)
    for number in range(2):
        both.fill("tool-shortened", batch(b"x", b"y"), batch(b"z"), partition=number)
    for offsets in ((1, -1), (3, 2), (4, 0)):
        places = [
            {"topic": "tool-shortened", "partition": number, "offset": offset}
            for number, offset in enumerate(offsets)
        ]
        wanted = tmp_path / "offsets.json"
        wanted.write_text(json.dumps({"partitions": places, "version": 1}))
        same("DeleteRecordsCommand", "--offset-json-file", str(wanted))
    same("GetOffsetShell", "--topic", "tool-shortened", "--time", "earliest")


@proves("versions", "java")
def test_versions(tools: KafkaTools, cluster: ServedCluster) -> None:
    done = tools.ok("BrokerApiVersionsCommand", "--bootstrap-server", cluster.bootstrap)
    nodes = re.findall(r"^\S+ \(id: (\d) rack: null isFenced: false\) -> \($", done.out, re.M)
    assert sorted(nodes) == ["0", "1"]
    usable = re.findall(r"^\t(\w+)\(\d+\): \d+ to (\d+) \[usable: (\d+)\]", done.out, re.M)
    assert {"Produce", "Fetch", "Metadata", "CreateTopics"} <= {name for name, _, _ in usable}
    assert [name for name, served, used in usable if used != served] == []


@proves("produce", "java")
def test_the_console_producer(tools: KafkaTools, cluster: ServedCluster, both: Both) -> None:
    both.ours.create("tool-console")
    lines = [f"key {number}:value {number}" for number in range(100)]
    options = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tools.ok(
        "ConsoleProducer",
        "--bootstrap-server",
        cluster.bootstrap,
        "--topic",
        "tool-console",
        "--compression-codec",
        "zstd",
        "--request-timeout-ms",
        "60000",
        *options,
        stdin="".join(line + "\n" for line in lines),
    )
    found = decode_records(both.ours.records("tool-console"))
    assert [f"{(r.key or b'').decode()}:{(r.value or b'').decode()}" for r in found] == lines


@proves("codecs", "java")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_performance_test(
    tools: KafkaTools, cluster: ServedCluster, both: Both, codec: str
) -> None:
    topic = f"tool-perf-{codec}"
    both.ours.create(topic)
    done = tools.ok(
        "ProducerPerformance",
        *("--bootstrap-server", cluster.bootstrap),
        *("--topic", topic, "--num-records", "5000", "--record-size", "100"),
        *("--throughput", "-1", "--command-property", f"compression.type={codec}"),
    )
    assert done.lines[-1].startswith("5000 records sent, ")
    assert len(decode_records(both.ours.records(topic))) == 5000


@proves("produce", "java")
def test_the_verifiable_producer(tools: KafkaTools, cluster: ServedCluster, both: Both) -> None:
    both.ours.create("tool-verifiable")
    done = tools.alone(
        "VerifiableProducer",
        *("--bootstrap-server", cluster.bootstrap),
        *("--topic", "tool-verifiable", "--max-messages", "500", "--acks", "-1"),
    )
    assert done.code == 0, done
    events = [json.loads(line) for line in done.lines]
    acked = [event for event in events if event["name"] == "producer_send_success"]
    assert [(event["value"], event["offset"]) for event in acked] == [
        (str(number), number) for number in range(500)
    ]
    assert (events[-1]["name"], events[-1]["sent"], events[-1]["acked"]) == ("tool_data", 500, 500)
    stored = decode_records(both.ours.records("tool-verifiable"))
    assert [record.value for record in stored] == [b"%d" % number for number in range(500)]
