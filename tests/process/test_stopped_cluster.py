"""After ``stop()`` a cluster and its topics say so at once, whatever they are asked."""

import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparklog.cluster import Cluster, start_processes
from sparklog.errors import ClosedError
from sparklog.topic import Topic

pytestmark = pytest.mark.process

#: What a stopped cluster still tells.
TOLD = {Cluster: {"bootstrap_servers", "is_stopped", "stop"}, Topic: {"name"}}
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "create_topic": ("t",),
    "delete_topic": ("t",),
    "topic": ("t",),
    "scale": (2,),
    "remove_brokers": ([1],),
}
#: Arguments of methods that two classes share.
OF_BOTH: dict[tuple[type, str], tuple[Any, ...]] = {
    (Cluster, "read"): ("t",),
    (Cluster, "write"): (None, "t"),
    (Topic, "write"): (None,),
}
#: No call of a stopped cluster waits for anything.
SECONDS_MAX = 5.0


def uses(thing: Cluster | Topic) -> dict[str, Callable[[], Any]]:
    """A use of every public method and property but those that a stopped cluster still has."""
    kind = type(thing)
    names = [n for n in dir(kind) if not n.startswith("_") and n not in TOLD[kind]]

    def use(name: str) -> Any:
        if not callable(inspect.getattr_static(kind, name)):
            return getattr(thing, name)
        arguments = OF_BOTH.get((kind, name), ARGUMENTS.get(name, ()))
        return getattr(thing, name)(*arguments)

    return {name: lambda name=name: use(name) for name in names}  # type: ignore[misc]


def expect_refusals(thing: Cluster | Topic, reason: str) -> None:
    for name, use in uses(thing).items():
        with pytest.raises(ClosedError) as caught:
            use()
        assert str(caught.value) == reason, name


def test_a_stopped_cluster_and_its_topics_say_so_at_once(tmp_path: Path) -> None:
    with start_processes(1, data_dir=tmp_path) as cluster:
        cluster.create_topic("t", 1)
        topic = cluster.topic("t")
        assert topic.offsets == {0: (0, 0)}
        other = Cluster(cluster.bootstrap_servers)  # what ``connect`` gives
        assert other.topics() == ["t"]
        the_topic_there = other.topic("t")
        other.stop()
        assert cluster.topics() == ["t"]  # only the connection was closed
        closed = (
            f"this connection to {cluster.bootstrap_servers} was closed by stop(); "
            f"sparklog.connect(spark, '{cluster.bootstrap_servers}') opens another"
        )
        expect_refusals(other, closed)
        expect_refusals(the_topic_there, closed)
    started = time.monotonic()
    reason = (
        f"this cluster was stopped; start it again on its data_dir ({tmp_path}), "
        "and it has all its records"
    )
    expect_refusals(cluster, reason)
    expect_refusals(topic, reason)
    cluster.stop()
    assert repr(cluster) == f"<sparklog.Cluster {cluster.bootstrap_servers}: stopped>"
    assert reason in cluster._repr_html_()
    assert "spark.read" not in cluster._repr_html_()  # there is nothing to read
    assert repr(topic) == "<sparklog.Topic t>"
    assert topic._repr_html_().endswith(f"{reason}</span>")
    assert time.monotonic() - started < SECONDS_MAX


def test_the_walk_uses_what_the_classes_have() -> None:
    """A new method of either class is walked, or its arguments are missing here."""
    cluster = {"read", "write", "topics", "topic", "scale", "rebalance", "cluster_id", "brokers"}
    assert cluster <= set(dir(Cluster)) - TOLD[Cluster]
    assert {"preview", "partitions", "offsets", "records", "configs"} <= set(dir(Topic))
