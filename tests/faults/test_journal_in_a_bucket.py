"""The journal in a bucket: control planes, drivers and the bucket itself die, the cluster lives."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparklog.client.blocking import BlockingClient
from sparklog.cluster import Cluster, start_processes
from sparklog.errors import StartError
from tests.faults.load_rig import PARTITIONS, TOPIC, Load, kill_one, processes, stored
from tests.support.s3_server import S3Server, require_binary
from tests.support.served import ServedCluster
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.process, pytest.mark.s3, pytest.mark.timeout(180)]


@pytest.fixture
def own_server(s3_server: S3Server, tmp_path: Path) -> Iterator[S3Server]:
    """One that a test may stop."""
    server = S3Server(require_binary(), tmp_path / "s3")
    yield server
    server.stop()


def test_brokers_serve_on_while_control_plane_and_bucket_are_dead(
    own_server: S3Server, tmp_path: Path
) -> None:
    journal_dir = f"s3://{own_server.make_bucket('journals')}/one"
    with start_processes(
        3,
        data_dir=tmp_path / "data",
        journal_dir=journal_dir,
        storage_options=own_server.options,
    ) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        with Load(cluster.bootstrap_servers) as load:
            for _ in range(2):
                load.await_more(3_000)
                kill_one("sparklog.driver")
            cluster.create_topic("between", 1, configs={"retention.ms": 5})
            own_server.stop()
            kill_one("sparklog.driver")
            load.await_more(10_000)
            own_server.start()
            wait_for(lambda: processes("sparklog.driver") and is_whole(cluster))
            cluster.create_topic("afterwards", 1)
            load.await_more(3_000)
        assert load.failures == []
        found = stored(cluster.bootstrap_servers)
        assert found == {number: sorted(values) for number, values in load.acknowledged.items()}
        assert cluster.topics() == ["afterwards", "between", TOPIC]
    assert not (tmp_path / "data" / "journal").exists()


def is_whole(cluster: Cluster) -> bool:
    return [node.node_id for node in cluster.brokers() if not node.fenced] == [1, 2, 3]


def test_a_driver_on_another_host_finds_the_cluster_in_the_bucket(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    journal = ("--journal-dir", f"s3://{s3_bucket}/journal")
    first = ServedCluster(tmp_path / "first", *journal, brokers=2)
    try:
        before = make_and_describe(first.bootstrap)
        values = produce(first.bootstrap)
    finally:
        everything = first.process.pid, *first.broker_pids()
        first.kill()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in everything))
    # Executors keep their disks; of the driver's host, nothing is left.
    (tmp_path / "second").mkdir()
    for folder in (tmp_path / "first").glob("broker-*"):
        folder.rename(tmp_path / "second" / folder.name)
    shutil.rmtree(tmp_path / "first")

    second = ServedCluster(tmp_path / "second", *journal, brokers=2)
    try:
        assert describe(second.bootstrap) == before
        assert stored(second.bootstrap) == values
        more = produce(second.bootstrap)
        assert stored(second.bootstrap) == {n: values[n] + more[n] for n in range(PARTITIONS)}
        assert second.stop() == 0
    finally:
        second.kill()


def make_and_describe(bootstrap: str) -> dict[str, Any]:
    with BlockingClient(bootstrap) as client:
        client.admin.create_topic(TOPIC, PARTITIONS, configs={"segment.bytes": "123456"})
        client.admin.create_topic("other", 3)
    return describe(bootstrap)


def describe(bootstrap: str) -> dict[str, Any]:
    with BlockingClient(bootstrap) as client:
        cluster = client.admin.describe_cluster()
        topics = client.admin.list_topics()
        configs = client.admin.describe_topic_configs(TOPIC)
    return {
        "cluster": cluster.cluster_id,
        "nodes": [node.node_id for node in cluster.nodes],
        "topics": {name: topic.topic_id for name, topic in topics.items()},
        "segment.bytes": configs["segment.bytes"].value,
    }


def produce(bootstrap: str) -> dict[int, list[int]]:
    with Load(bootstrap) as load:
        load.await_more(2_000)
    assert load.failures == []
    return {number: sorted(values) for number, values in load.acknowledged.items()}


def test_a_bucket_is_for_journals_alone(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="only journal_dir may be in an object store"):
        start_processes(1, data_dir="s3://bucket/data", journal_dir=tmp_path)


def test_why_the_application_cannot_start_is_said_in_one_line(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    refused = ServedCluster(tmp_path / "data", "--journal-dir", "s3://no-such-bucket/journal")
    assert (refused.bootstrap, refused.wait()) == ("", 1)
    assert refused.errors.count("\n") == 1
    assert "the bucket does not exist; create it, or correct the URL" in refused.errors
