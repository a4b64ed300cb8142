"""Kafka's tools for consumer groups, and its Java consumer, against us as against Kafka."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.executors.cleaner.job import CleaningJob, SourceSegment
from sparklog.executors.cleaner.rewrite import clean
from sparklog.executors.log.cleaned_segments import CLEANED_SUFFIX
from sparklog.storage_backends.local import LocalBackend
from sparklog.types import MAX_INT64
from sparklog.wire.records.batch import iter_batches
from tests.peers.both import Both, batch
from tests.peers.group_story import await_coordinator
from tests.peers.kafka_broker import KafkaBroker
from tests.peers.kafka_tools import KafkaTools, ToolRun
from tests.peers.same_words import Condition, same_words
from tests.support.proven import proves
from tests.support.served import ServedCluster

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FIRST = 1_700_000_000_000
GROUP = "grouped-console"
EACH = 30
PARTITIONS = 3
Same = Callable[..., ToolRun]


@pytest.fixture
def groups(tools: KafkaTools, kafka: KafkaBroker, cluster: ServedCluster, both: Both) -> Same:
    """Runs ConsumerGroupCommand against both and compares what it says."""
    del both
    addresses = (kafka.address, cluster.bootstrap)

    def run(*arguments: str, until: Condition | None = None) -> ToolRun:
        return same_words(tools, addresses, GROUPS, arguments, until=until)

    return run


def filled(both: Both, name: str) -> str:
    both.create(name, PARTITIONS)
    for number in range(PARTITIONS):
        for start in range(0, EACH, 10):
            values = [b"%d" % offset for offset in range(start, start + 10)]
            both.fill(name, batch(*values, timestamp=FIRST + start), partition=number)
    return name


def console(server: str, topic: str, group: str, *more: str) -> tuple[str, ...]:
    return (
        *("--bootstrap-server", server, "--topic", topic, "--group", group),
        *("--from-beginning", "--timeout-ms", "20000", *more),
    )


@proves("group", "java")
def test_the_console_consumer_reads_with_a_group_and_commits(
    tools: KafkaTools, cluster: ServedCluster, kafka: KafkaBroker, both: Both, groups: Same
) -> None:
    topic = filled(both, "grouped-consumed")
    for server in (kafka.address, cluster.bootstrap):
        done = tools.run(CONSOLE, *console(server, topic, GROUP, "--max-messages", "90"))
        assert sorted(map(int, done.lines)) == sorted(list(range(EACH)) * PARTITIONS)
        assert "Processed a total of 90 messages" in done.err
    shown = groups("--describe", "--group", "grouped-console")
    assert "has no active members" in shown.out + shown.err
    assert len(re.findall(r"^grouped-console +\S+ +\d +30 +30 +0 ", shown.out, re.M)) == 3


@proves("group tools", "java")
@proves("reset offsets", "java")
def test_offsets_are_reset_shifted_and_deleted(both: Both, groups: Same) -> None:
    topic, group = filled(both, "grouped-reset"), "grouped-resetting"
    await_coordinator(both, group)

    def reset(*how: str) -> ToolRun:
        return groups("--reset-offsets", "--group", group, "--topic", topic, *how)

    assert reset("--to-earliest", "--execute").code == 0
    assert reset("--to-latest", "--dry-run").code == 0
    groups("--describe", "--group", group, "--offsets")
    for how in (
        ("--to-offset", "7"),
        ("--shift-by", "5"),
        ("--shift-by", "-100"),
        ("--to-datetime", "2023-11-14T22:13:20.010"),
        ("--to-latest",),
        ("--to-offset", "1000"),
    ):
        assert reset(*how, "--execute").code == 0
        groups("--describe", "--group", group, "--offsets")
    assert reset("--to-current", "--export").code == 0
    assert groups("--delete-offsets", "--group", group, "--topic", topic + ":1").code == 0
    groups("--describe", "--group", group, "--offsets")
    assert groups("--delete-offsets", "--group", group, "--topic", "missing").code == 0
    assert groups("--delete", "--group", group).code == 0
    groups("--describe", "--group", group)
    assert groups("--delete", "--group", group).code == 0


@proves("group tools", "java")
def test_groups_are_listed_with_states_and_types(
    tools: KafkaTools, kafka: KafkaBroker, cluster: ServedCluster, both: Both, groups: Same
) -> None:
    topic, group = filled(both, "grouped-listed"), "grouped-listing"
    await_coordinator(both, group)
    arguments = ("--reset-offsets", "--group", group, "--topic", topic, "--to-latest", "--execute")
    assert groups(*arguments).code == 0
    for more in ((), ("--state",), ("--type",), ("--state", "Stable"), ("--state", "Nonsense")):
        of_kafka, ours = (
            tools.run(GROUPS, "--bootstrap-server", server, "--list", *more)
            for server in (kafka.address, cluster.bootstrap)
        )
        shown = [[line.split() for line in run.lines if group in line] for run in (of_kafka, ours)]
        assert (ours.code, shown[1]) == (of_kafka.code, shown[0]), more
    shown_members = groups("--describe", "--group", group, "--members")
    assert "has no active members" in shown_members.out + shown_members.err


@proves("group", "java")
def test_the_verifiable_consumer(tools: KafkaTools, cluster: ServedCluster, both: Both) -> None:
    topic = filled(both, "grouped-verified")
    done = tools.alone(
        "VerifiableConsumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic),
        *("--group-id", "grouped-verifying", "--max-messages", "90", "--reset-policy", "earliest"),
        *("--group-protocol", "classic", "--verbose"),
    )
    assert done.code == 0, done
    events = [json.loads(line) for line in done.lines]
    read = [(e["partition"], e["offset"]) for e in events if e["name"] == "record_data"]
    assert sorted(read) == [(p, o) for p in range(PARTITIONS) for o in range(EACH)]
    committed = [e for e in events if e["name"] == "offsets_committed"]
    assert committed
    assert all(e["success"] for e in committed)


@proves("fetch", "java")
def test_the_performance_test_consumes_with_a_group(
    tools: KafkaTools, cluster: ServedCluster, both: Both
) -> None:
    topic = filled(both, "grouped-consumer-perf")
    done = tools.run(
        "ConsumerPerformance",
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--num-records", "90"),
    )
    assert done.code == 0, done
    assert int(done.lines[-1].split(", ")[4]) == EACH * PARTITIONS


@proves("log files", "java")
def test_kafkas_dump_tool_reads_our_offsets(
    tools: KafkaTools, cluster: ServedCluster, kafka: KafkaBroker, both: Both, groups: Same
) -> None:
    topic, group = filled(both, "grouped-dumped"), "grouped-dumping"
    await_coordinator(both, group)
    arguments = ("--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "5")
    assert groups(*arguments, "--execute").code == 0
    for server in (kafka.address, cluster.bootstrap):
        tools.run(CONSOLE, *console(server, topic, group, "--max-messages", "75"))
    payloads = {}
    for root in (kafka.log_dir, cluster.data_dir / "broker-1"):
        found: list[str] = []
        for path in sorted(root.glob("__consumer_offsets-*/*.log")):
            shown = tools.ok("DumpLogSegments", "--offsets-decoder", "--files", str(path))
            found += [_plain(line) for line in shown.lines if group in line]
        payloads[root] = sorted(set(found))
    of_kafka, ours = payloads.values()
    assert {line[: line.index(',"data"')] for line in of_kafka} == {
        ' key: {"type":"1"',
        ' key: {"type":"2"',
    }
    assert ours == of_kafka


def _plain(line: str) -> str:
    """Key and payload of a dumped record, without what either side makes up."""
    text = line[line.index(" key: ") :]
    text = re.sub(r'"(\w*[tT]imestamp\w*)":\d+', r'"\1":"a time"', text)
    text = re.sub(r'"topicId":"[^"]+"', '"topicId":"an id"', text)
    return re.sub(
        r"console-consumer[\w-]*",
        "a member",
        re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "id", text),
    )


def test_kafkas_dump_tool_reads_our_cleaned_offsets(
    tools: KafkaTools, cluster: ServedCluster, both: Both, tmp_path: Path
) -> None:
    """Of a copy of the offsets topic: the tool shows the last record of each key."""
    topic, group = filled(both, "grouped-cleaned"), "grouped-cleaning"
    await_coordinator(both, group)
    for offset in (5, 7):
        arguments = ("--reset-offsets", "--execute", "--to-offset", str(offset))
        where = ("--bootstrap-server", cluster.bootstrap, "--group", group, "--topic", topic)
        assert tools.run(GROUPS, *where, *arguments).code == 0
    (log,) = (cluster.data_dir / "broker-1").glob("__consumer_offsets-*/*.log")
    copy = Path(shutil.copy(log, tmp_path))
    before = dumped_offsets(tools, copy)
    clean_copy(copy)
    after = dumped_offsets(tools, copy)
    last = dict(before)
    assert sorted(after) == sorted(last.items())
    assert len([key for key, _ in after if group in key]) == PARTITIONS < len(before)


def dumped_offsets(tools: KafkaTools, path: Path) -> list[tuple[str, str]]:
    """The keys and values of a file of the offsets topic, as Kafka's tool decodes them."""
    shown = tools.run("DumpLogSegments", "--offsets-decoder", "--files", str(path))
    assert shown.code == 0, shown
    found = [line.partition(" key: ")[2] for line in shown.lines if " key: " in line]
    return [(key, value) for key, _, value in (each.partition(" payload: ") for each in found)]


def clean_copy(log: Path) -> None:
    """Clean a file of whole batches, and put the result in its place."""
    *_, (header, start) = iter_batches(log.read_bytes())
    source = SourceSegment(
        base_offset=int(log.stem), next_offset=header.next_offset, size=start + header.size
    )
    job = CleaningJob(
        url="",
        partition_dir=log.parent.name,
        groups=((source,),),
        first_dirty=source.base_offset,
        end_offset=source.next_offset,
        now_ms=0,
        delete_horizon_ms=MAX_INT64,
    )
    clean(LocalBackend(log.parent.parent), job)
    log.with_name(log.name + CLEANED_SUFFIX).rename(log)
