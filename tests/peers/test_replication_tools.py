"""Kafka's tools for replicas, leaders and reassignments against three brokers, and kcat."""

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from both import batch
from kafka_tools import KafkaTools, ToolRun
from tool_words import said
from trios import Trios, moving

ROUND = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
CONFIG = "kafka.admin.ConfigCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
KCAT = Path("/usr/bin/kcat")
KCAT_SECONDS_MAX = 60.0

Same = Callable[..., ToolRun]
Plan = Callable[[str, Mapping[int, tuple[int, ...]]], str]


@pytest.fixture
def same(tools: KafkaTools, trios: Trios) -> Same:
    """Runs a tool against both; what it says must be the same.  Gives the run against us."""

    def run(tool: str, *arguments: str) -> ToolRun:
        of_kafka, ours = (
            tools.run(tool, "--bootstrap-server", cluster.bootstrap, *arguments)
            for cluster in trios.clusters
        )
        assert said(ours) == said(of_kafka)
        return ours

    return run


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A file with new replicas for some partitions of a topic."""

    def write(topic: str, moves: Mapping[int, tuple[int, ...]]) -> str:
        partitions = [
            {"topic": topic, "partition": number, "replicas": replicas}
            for number, replicas in moves.items()
        ]
        return _json(tmp_path / "plan.json", {"version": 1, "partitions": partitions})

    return write


def _json(path: Path, value: Any) -> str:
    path.write_text(json.dumps(value))
    return str(path)


def test_topics_are_described(same: Same, trios: Trios) -> None:
    trios.place("shown", ROUND)
    described = same("TopicCommand", "--describe", "--topic", "shown")
    assert "\tPartition: 1\tLeader: 2\tReplicas: 2,3,1\tIsr: 2,3,1\tElr: " in described.out
    for option in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        asked = ("--describe", "--topic", "shown", f"--{option}-partitions")
        assert same("TopicCommand", *asked).out == ""


def test_topics_are_made(same: Same) -> None:
    def create(name: str, *options: str) -> ToolRun:
        return same("TopicCommand", "--create", "--topic", name, *options)

    assert create("made", "--partitions", "2", "--replication-factor", "3").code == 0
    assert create("not-made", "--replication-factor", "4").code == 1
    assert create("hand-placed", "--replica-assignment", "1:2,2:3").code == 0
    assert create("not-placed", "--replica-assignment", "1:2,2:3:1").code == 1
    assert create("not-placed", "--replica-assignment", "1:9").code == 1
    strict = ("--replica-assignment", "3:1", "--config", "min.insync.replicas=2")
    assert create("strict", *strict).code == 0
    found = same("TopicCommand", "--describe", "--topic", "strict", "--at-min-isr-partitions")
    assert "Isr: 3,1" in found.out


def test_leaders_that_lead_already(same: Same, trios: Trios, tmp_path: Path) -> None:
    trios.place("led", ROUND)
    listed = {"partitions": [{"topic": "led", "partition": number} for number in (0, 2)]}
    chosen = _json(tmp_path / "partitions.json", listed)
    for kind in ("preferred", "unclean"):

        def elect(*which: str, kind: str = kind) -> ToolRun:
            return same("LeaderElectionCommand", "--election-type", kind, *which)

        elected = elect("--topic", "led", "--partition", "0")
        assert elected.out == "Valid replica already elected for partitions led-0\n"
        assert elect("--topic", "led", "--partition", "9").code == 1
        assert elect("--topic", "not-there", "--partition", "0").code == 1
        assert elect("--path-to-json-file", chosen).code == 0
        assert elect("--all-topic-partitions").code == 0


def test_replicas_are_put_in_another_order(same: Same, trios: Trios, plan: Plan) -> None:
    trios.place("reordered", ROUND)
    file = ("--reassignment-json-file", plan("reordered", {0: (3, 2, 1), 1: (2, 3)}))
    assert "Successfully started" in same(REASSIGN, "--execute", *file).out
    assert "reordered-0 is completed" in same(REASSIGN, "--verify", *file).out
    assert same(REASSIGN, "--list").out == "No partition reassignments found.\n"
    same("TopicCommand", "--describe", "--topic", "reordered")
    preferred = ("--election-type", "preferred", "--topic", "reordered", "--partition", "0")
    elected = same("LeaderElectionCommand", *preferred)
    assert elected.out.startswith("Successfully completed leader election (PREFERRED)")
    assert "Leader: 3" in same("TopicCommand", "--describe", "--topic", "reordered").out


def test_throttles_come_with_a_reassignment_and_go_with_its_end(
    same: Same, trios: Trios, plan: Plan
) -> None:
    trios.place("throttled", ROUND)
    file = ("--reassignment-json-file", plan("throttled", {0: (1, 2), 2: (2, 3)}))
    started = same(REASSIGN, "--execute", *file, "--throttle", "1000000")
    assert "The inter-broker throttle limit was set to 1000000 B/s" in started.out

    def settings() -> tuple[str, str]:
        topic = same(CONFIG, "--describe", "--topic", "throttled")
        return topic.out, same(CONFIG, "--describe", "--broker", "1").out

    before = settings()
    assert "leader.replication.throttled.replicas=0:1,0:2,0:3,2:1,2:2,2:3 " in before[0]
    assert "follower.replication.throttled.rate=1000000 " in before[1]
    same(REASSIGN, "--verify", *file, "--preserve-throttles")
    assert settings() == before
    same(REASSIGN, "--verify", *file)
    assert "throttled" not in settings()[1]
    assert "replication.throttled" not in settings()[0]
    assert same(REASSIGN, "--cancel", *file).code == 0


def test_reassignments_that_cannot_be(same: Same, trios: Trios, plan: Plan) -> None:
    trios.place("unmoved", ROUND)
    nowhere = ("--reassignment-json-file", plan("unmoved", {0: (1, 9)}))
    assert same(REASSIGN, "--execute", *nowhere).code == 1
    for topic, number in (("unmoved", 7), ("not-there", 0)):
        file = ("--reassignment-json-file", plan(topic, {number: (1, 2)}))
        assert same(REASSIGN, "--execute", *file).code == 1
        same(REASSIGN, "--verify", *file)
        same(REASSIGN, "--cancel", *file)
    same("TopicCommand", "--describe", "--topic", "unmoved")


def test_a_proposal_uses_the_brokers_that_it_may(
    tools: KafkaTools, trios: Trios, tmp_path: Path
) -> None:
    """Kafka's tool begins at a random broker."""
    trios.place("proposed", ((1, 2), (2, 1)))
    topics = _json(tmp_path / "topics.json", {"version": 1, "topics": [{"topic": "proposed"}]})
    done = tools.ok(
        REASSIGN,
        *("--bootstrap-server", trios.clusters[1].bootstrap, "--generate"),
        *("--topics-to-move-json-file", topics, "--broker-list", "1,3"),
    )
    present, proposed = (json.loads(line) for line in done.lines if line.startswith("{"))
    assert [p["replicas"] for p in present["partitions"]] == [[1, 2], [2, 1]]
    assert [sorted(p["replicas"]) for p in proposed["partitions"]] == [[1, 3], [1, 3]]


@pytest.mark.skipif(not KCAT.exists(), reason="kcat is not installed")
def test_kcat_lists_replicas(trios: Trios) -> None:
    trios.place("listed", ROUND)
    found = [_listed(cluster.bootstrap, "listed") for cluster in trios.clusters]
    assert found[0] == found[1]
    assert found[1][1] == (2, [2, 3, 1], [2, 3, 1])


def _listed(bootstrap: str, topic: str) -> list[tuple[int, list[int], list[int]]]:
    """Leader, replicas and ISR of each partition."""
    done = subprocess.run(
        [str(KCAT), "-L", "-J", "-b", bootstrap, "-t", topic],
        capture_output=True,
        timeout=KCAT_SECONDS_MAX,
        check=True,
    )
    [shown] = json.loads(done.stdout)["topics"]
    return [
        (p["leader"], [r["id"] for r in p["replicas"]], [r["id"] for r in p["isrs"]])
        for p in sorted(shown["partitions"], key=lambda p: int(p["partition"]))
    ]


# -- while a broker hangs


def test_topics_are_described_while_a_broker_hangs(
    same: Same, tools: KafkaTools, trios: Trios, plan: Plan
) -> None:
    topic = trios.place("tool-hung", ROUND, min_insync_replicas="3")
    loose = trios.place("tool-loose", ((3, 1), (2, 1)))
    alone = trios.place("tool-alone", ((3,),))

    def describe(*options: str) -> str:
        return same("TopicCommand", "--describe", "--topic", "tool-(hung|loose)", *options).out

    moves = ("--reassignment-json-file", plan(loose, {1: (1, 3)}))
    preferred = ("--election-type", "preferred", "--topic", topic, "--partition", "2")
    unclean = ("--election-type", "unclean", "--topic", alone, "--partition", "0")
    trios.hang(3, topic)
    try:
        assert "Replicas: 3,1,2\tIsr: 1,2\tElr: 3\t" in describe()
        for option, shown in (("under-replicated", 4), ("under-min-isr", 3), ("at-min-isr", 1)):
            assert len(describe(f"--{option}-partitions").splitlines()) == shown
        assert describe("--unavailable-partitions") == ""
        asked = ("--describe", "--topic", alone, "--unavailable-partitions")
        ours = ("--bootstrap-server", trios.clusters[1].bootstrap)
        assert "Leader: none" in tools.ok("TopicCommand", *ours, *asked).out
        for elected in (preferred, unclean):
            assert same("LeaderElectionCommand", *elected).code == 1
        if KCAT.exists():
            assert _listed(trios.clusters[0].bootstrap, topic) == (
                _listed(trios.clusters[1].bootstrap, topic)
            )
        trios.same(moving(loose, {1: (1, 3)}), 1)  # the tool wants all brokers to be there
        assert "is still in progress" in same(REASSIGN, "--verify", *moves).out
        assert "replicas: 1,3,2. adding: 3. removing: 2." in same(REASSIGN, "--list").out
        describe()
    finally:
        trios.resume(3, topic)
    describe()
    trios.await_partitions(loose, lambda all_: len(all_[1].replica_nodes) == 2)
    assert "is completed" in same(REASSIGN, "--verify", *moves).out
    assert "Successfully completed" in same("LeaderElectionCommand", *preferred).out
    describe()


def test_a_throttled_reassignment_is_slow_and_can_be_cancelled(
    same: Same, trios: Trios, plan: Plan
) -> None:
    topic = trios.place("tool-slow", ((1,),))
    trios.fill(topic, *[batch(bytes(500_000))] * 8)  # more than one fetch takes
    file = ("--reassignment-json-file", plan(topic, {0: (2,)}))
    started = same(REASSIGN, "--execute", *file, "--throttle", "1000")
    assert "Successfully started" in started.out
    assert "is still in progress" in same(REASSIGN, "--verify", *file).out
    assert "adding: 2. removing: 1." in same(REASSIGN, "--list").out
    throttled = same(CONFIG, "--describe", "--topic", topic).out
    assert "leader.replication.throttled.replicas=0:1 " in throttled
    assert "follower.replication.throttled.replicas=0:2 " in throttled
    cancelled = same(REASSIGN, "--cancel", *file)
    assert "Successfully cancelled" in cancelled.out
    assert "Replicas: 1\tIsr: 1" in same("TopicCommand", "--describe", "--topic", topic).out
    assert "throttled" not in same(CONFIG, "--describe", "--topic", topic).out
    same(REASSIGN, "--execute", *file, "--throttle", "1000")
    faster = same(REASSIGN, "--execute", *file, "--throttle", "100000000", "--additional")
    assert "limit was set to 100000000 B/s" in faster.out
    trios.await_partitions(topic, lambda all_: all_[0].replica_nodes == (2,))
    assert "is completed" in same(REASSIGN, "--verify", *file).out
    assert "throttled" not in same(CONFIG, "--describe", "--broker", "2").out
