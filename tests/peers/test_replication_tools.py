"""Kafka's tools for replicas, leaders and reassignments against three brokers, and kcat."""

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.peers.both import batch
from tests.peers.kafka_tools import KafkaTools, ToolRun
from tests.peers.same_words import Condition, anything, hides, lists, prints, same_words, shows
from tests.peers.trios import Trios, moving
from tests.support.proven import proves
from tests.support.waiting import wait_for

ROUND = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
CONFIG = "kafka.admin.ConfigCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
KCAT = Path("/usr/bin/kcat")
KCAT_SECONDS_MAX = 60.0

Same = Callable[..., ToolRun]
Plan = Callable[[str, Mapping[int, tuple[int, ...]]], str]


@pytest.fixture
def same(tools: KafkaTools, trios: Trios) -> Same:
    """As ``same_words``."""
    addresses = [cluster.bootstrap for cluster in trios.clusters]

    def run(tool: str, *arguments: str, until: Condition | None = None) -> ToolRun:
        return same_words(tools, addresses, tool, arguments, until=until)

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


@proves("replicas", "java")
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
    asked = ("--describe", "--topic", "strict", "--at-min-isr-partitions")
    same("TopicCommand", *asked, until=shows("Isr: 3,1"))


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


@proves("reassignments", "java")
def test_replicas_are_put_in_another_order(same: Same, trios: Trios, plan: Plan) -> None:
    trios.place("reordered", ROUND)
    file = ("--reassignment-json-file", plan("reordered", {0: (3, 2, 1), 1: (2, 3)}))
    assert "Successfully started" in same(REASSIGN, "--execute", *file).out
    same(REASSIGN, "--verify", *file, until=shows("reordered-0 is completed"))
    same(REASSIGN, "--list", until=prints("No partition reassignments found.\n"))
    described = ("TopicCommand", "--describe", "--topic", "reordered")
    same(*described, until=shows("Replicas: 3,2,1"))
    preferred = ("--election-type", "preferred", "--topic", "reordered", "--partition", "0")
    elected = same("LeaderElectionCommand", *preferred)
    assert elected.out.startswith("Successfully completed leader election (PREFERRED)")
    same(*described, until=shows("Leader: 3"))


def test_throttles_come_with_a_reassignment_and_go_with_its_end(
    same: Same, trios: Trios, plan: Plan
) -> None:
    trios.place("throttled", ROUND)
    file = ("--reassignment-json-file", plan("throttled", {0: (1, 2), 2: (2, 3)}))
    started = same(REASSIGN, "--execute", *file, "--throttle", "1000000")
    assert "The inter-broker throttle limit was set to 1000000 B/s" in started.out

    def settings(of_topic: Condition, of_broker: Condition) -> tuple[str, str]:
        topic = same(CONFIG, "--describe", "--topic", "throttled", until=of_topic)
        return topic.out, same(CONFIG, "--describe", "--broker", "1", until=of_broker).out

    throttled = (
        shows("leader.replication.throttled.replicas=0:1,0:2,0:3,2:1,2:2,2:3 "),
        shows("follower.replication.throttled.rate=1000000 "),
    )
    before = settings(*throttled)
    same(REASSIGN, "--verify", *file, "--preserve-throttles", until=anything)
    assert settings(*throttled) == before
    same(REASSIGN, "--verify", *file, until=anything)
    settings(hides("replication.throttled"), hides("throttled"))
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


@proves("replicas", "kcat")
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

    def describe(*options: str, until: Condition = anything) -> None:
        asked = ("--describe", "--topic", "tool-(hung|loose)", *options)
        same("TopicCommand", *asked, until=until)

    moves = ("--reassignment-json-file", plan(loose, {1: (1, 3)}))
    preferred = ("--election-type", "preferred", "--topic", topic, "--partition", "2")
    unclean = ("--election-type", "unclean", "--topic", alone, "--partition", "0")
    trios.hang(3, topic)
    try:
        describe(until=shows("Replicas: 3,1,2\tIsr: 1,2\tElr: 3\t"))
        for option, shown in (("under-replicated", 4), ("under-min-isr", 3), ("at-min-isr", 1)):
            describe(f"--{option}-partitions", until=lists(shown))
        describe("--unavailable-partitions", until=prints(""))
        asked = ("--describe", "--topic", alone, "--unavailable-partitions")
        ours = ("--bootstrap-server", trios.clusters[1].bootstrap)
        wait_for(lambda: "Leader: none" in tools.ok("TopicCommand", *ours, *asked).out)
        for elected in (preferred, unclean):
            assert same("LeaderElectionCommand", *elected).code == 1
        if KCAT.exists():
            assert _listed(trios.clusters[0].bootstrap, topic) == (
                _listed(trios.clusters[1].bootstrap, topic)
            )
        trios.same(moving(loose, {1: (1, 3)}), 1)  # the tool wants all brokers to be there
        same(REASSIGN, "--verify", *moves, until=shows("is still in progress"))
        moving_now = "replicas: 1,3,2. adding: 3. removing: 2."
        same(REASSIGN, "--list", until=shows(moving_now))
        describe()
    finally:
        trios.resume(3, topic)
    describe()
    trios.await_partitions(loose, lambda all_: len(all_[1].replica_nodes) == 2)
    same(REASSIGN, "--verify", *moves, until=shows("is completed"))
    assert "Successfully completed" in same("LeaderElectionCommand", *preferred).out
    describe()


def test_a_throttled_reassignment_is_slow_and_can_be_cancelled(
    same: Same, trios: Trios, plan: Plan
) -> None:
    topic = trios.place("tool-slow", ((1,),))
    trios.await_topic(topic)
    trios.fill(topic, *[batch(bytes(500_000))] * 8)  # more than one fetch takes
    file = ("--reassignment-json-file", plan(topic, {0: (2,)}))
    started = same(REASSIGN, "--execute", *file, "--throttle", "1000")
    assert "Successfully started" in started.out
    same(REASSIGN, "--verify", *file, until=shows("is still in progress"))
    same(REASSIGN, "--list", until=shows("adding: 2. removing: 1."))
    settings = (CONFIG, "--describe", "--topic", topic)
    throttled = same(*settings, until=shows("leader.replication.throttled.replicas=0:1 ")).out
    assert "follower.replication.throttled.replicas=0:2 " in throttled
    cancelled = same(REASSIGN, "--cancel", *file)
    assert "Successfully cancelled" in cancelled.out
    described = ("TopicCommand", "--describe", "--topic", topic)
    same(*described, until=shows("Replicas: 1\tIsr: 1"))
    same(*settings, until=hides("throttled"))
    same(REASSIGN, "--execute", *file, "--throttle", "1000")
    faster = same(REASSIGN, "--execute", *file, "--throttle", "100000000", "--additional")
    assert "limit was set to 100000000 B/s" in faster.out
    trios.await_partitions(topic, lambda all_: all_[0].replica_nodes == (2,))
    same(REASSIGN, "--verify", *file, until=shows("is completed"))
    same(CONFIG, "--describe", "--broker", "2", until=hides("throttled"))
