"""Clusters of processes whose brokers come, go, and lose their slots."""

import os
import re
import shutil
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from sparklog.client.blocking import BlockingClient
from sparklog.cluster import Cluster, start_processes
from sparklog.errors import KafkaError, StartError
from sparklog.types import OffsetSpec, TopicPartition
from tests.support.running import ours, waiting_spares
from tests.support.waiting import wait_for

pytestmark = pytest.mark.process
SUPERVISOR = "sparklog.executors.supervisor"


def supervisors() -> dict[int, int]:
    """Process ids of our supervisors that run a broker, by its id, which the broker's log tells.

    A process that is just being made has its supervisor's log still, ``spare-1-supervisor.log``.
    """
    found = {}
    for process in ours(SUPERVISOR):
        with suppress(psutil.Error, OSError):  # one that is just ending
            for broker in process.children():
                log = Path(os.readlink(f"/proc/{broker.pid}/fd/2")).name
                if told := re.fullmatch(r"broker-(\d+)\.log", log):
                    found[int(told[1])] = process.pid
    return found


def alive(cluster: Cluster) -> list[int]:
    return [node.node_id for node in cluster.brokers() if not node.fenced]


def test_a_spare_takes_the_broker_of_a_killed_supervisor(tmp_path: Path) -> None:
    with start_processes(2, spares=1, data_dir=tmp_path) as cluster:
        wait_for(lambda: waiting_spares(cluster) == 1)
        running = supervisors()
        [spare] = {process.pid for process in ours(SUPERVISOR)} - set(running.values())
        os.kill(running[1], signal.SIGKILL)
        wait_for(lambda: supervisors() == {1: spare, 2: running[2]})
        wait_for(lambda: alive(cluster) == [1, 2])
        wait_for(lambda: waiting_spares(cluster) == 1)
    assert ours(SUPERVISOR) == []
    markers = sorted(path.parent.name for path in tmp_path.glob("*/.kafka_cleanshutdown"))
    assert markers == ["broker-1", "broker-2"]


def test_brokers_are_added_to_a_running_cluster(tmp_path: Path) -> None:
    with start_processes(1, data_dir=tmp_path) as cluster:
        cluster.create_topic("before", partitions=2)
        cluster.scale(3, rebalance=False, progress=False)
        assert alive(cluster) == [1, 2, 3]
        cluster.create_topic("after", partitions=3)
        with BlockingClient(cluster.bootstrap_servers) as client:
            leads = {
                name: sorted(part.leader for part in topic.partitions.values())
                for name, topic in client.admin.describe_topics(["before", "after"]).items()
            }
        assert leads["before"] == [1, 1]
        assert {2, 3} <= set(leads["after"])
        with pytest.raises(StartError, match="at least one broker"):
            cluster.scale(0)
        with pytest.raises(StartError, match="there is no broker 9"):
            cluster.remove_brokers([9])
    with start_processes(1, data_dir=tmp_path) as again:
        assert alive(again) == [1, 2, 3]


def test_replicas_follow_the_brokers_that_come_and_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with start_processes(2, data_dir=tmp_path) as cluster:
        cluster.create_topic("t", partitions=4, replication_factor=2)
        with BlockingClient(cluster.bootstrap_servers) as client, client.producer() as producer:

            def produce(count: int) -> None:
                for number in range(count):
                    producer.send("t", str(number).encode(), partition=number % 4)
                producer.flush()

            produce(400)
            cluster.scale(4)
            assert replicas_by_broker(client) == {1: 2, 2: 2, 3: 2, 4: 2}
            produce(400)
            cluster.scale(2)
            assert replicas_by_broker(client) == {1: 4, 2: 4}
            produce(400)
            latest = dict.fromkeys((TopicPartition("t", n) for n in range(4)), OffsetSpec.LATEST)
            ends = [found.offset for found in client.list_offsets(latest).values()]
            assert ends == [300] * 4
        assert alive(cluster) == [1, 2]
        with pytest.raises(KafkaError, match=r"t-\d has 2 replicas, and 1 brokers would"):
            cluster.scale(1, progress=False)
        assert alive(cluster) == [1, 2]
    bars = capsys.readouterr().err
    assert "moving replicas" in bars
    assert "draining broker 3, 4" in bars
    with start_processes(1, data_dir=tmp_path) as again:
        assert alive(again) == [1, 2]


def test_a_removal_that_a_driver_has_left_is_taken_back_or_done(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with start_processes(2, data_dir=tmp_path) as cluster:
        cluster.create_topic("t", partitions=4)
        mark_as_draining(cluster, 1)
    with start_processes(2, data_dir=tmp_path) as again:
        assert "the removal of broker 1 was interrupted" in caplog.text
        with BlockingClient(again.bootstrap_servers) as client:
            described = client.async_admin.replicas.describe
            wait_for(lambda: all(x.replicas == (2,) for x in client.run(described()).values()))
            again.scale(2, progress=False)
            assert replicas_by_broker(client) == {1: 2, 2: 2}
            mark_as_draining(again, 1)
            again.scale(1, progress=False)
            assert replicas_by_broker(client) == {2: 4}
        assert alive(again) == [2]


def mark_as_draining(cluster: Cluster, broker_id: int) -> None:
    """As a removal does before it is killed."""
    assert cluster._launcher is not None
    _, calls = cluster._launcher._running()
    calls.drain_brokers([broker_id])


def test_a_directory_that_is_gone_is_replaced_once_others_lead_what_it_had(tmp_path: Path) -> None:
    with start_processes(3, data_dir=tmp_path) as cluster:
        # With a minimum of one, the broker that stops last is the only one that can lead.
        configs = {"min.insync.replicas": 2}
        cluster.create_topic("t", partitions=3, replication_factor=3, configs=configs)
        with BlockingClient(cluster.bootstrap_servers) as client, client.producer() as producer:
            for number in range(300):
                producer.send("t", str(number).encode(), partition=number % 3)
            producer.flush()
    shutil.rmtree(tmp_path / "broker-3")
    settings = {"broker.replacement.delay.ms": 1000}
    with start_processes(3, data_dir=tmp_path, settings=settings) as again:
        with BlockingClient(again.bootstrap_servers) as client:
            described = client.async_admin.replicas.describe
            wait_for(lambda: all(len(x.isr) == 3 for x in client.run(described(["t"])).values()))
            assert replicas_by_broker(client) == {1: 3, 2: 3, 3: 3}
            latest = dict.fromkeys((TopicPartition("t", n) for n in range(3)), OffsetSpec.LATEST)
            assert [each.offset for each in client.list_offsets(latest).values()] == [100] * 3
        assert (tmp_path / "broker-3" / "meta.properties").exists()


def test_a_directory_with_the_only_replica_is_not_replaced(tmp_path: Path) -> None:
    with start_processes(2, data_dir=tmp_path) as cluster:
        cluster.create_topic("t", partitions=2)
    shutil.rmtree(tmp_path / "broker-2")
    with pytest.raises(StartError, match="no executor has the directory of broker 2, which was"):
        start_processes(2, data_dir=tmp_path, settings={"broker.replacement.delay.ms": 0})
    assert not (tmp_path / "broker-2").exists()


def test_a_broker_that_hangs_is_removed_and_its_replicas_are_made_anew(tmp_path: Path) -> None:
    settings = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
    with start_processes(3, data_dir=tmp_path, settings=settings) as cluster:
        cluster.create_topic("t", partitions=3, replication_factor=2)
        hung = psutil.Process(broker_pid(3))
        hung.suspend()
        cluster.remove_brokers([3], progress=False)
        wait_for(lambda: has_ended(hung))
        with BlockingClient(cluster.bootstrap_servers) as client:
            assert replicas_by_broker(client) == {1: 3, 2: 3}
        wait_for(lambda: alive(cluster) == [1, 2])  # sessions are short here


def replicas_by_broker(client: BlockingClient) -> Counter[int]:
    """All of them in sync."""
    partitions = client.run(client.async_admin.replicas.describe(["t"])).values()
    assert all(set(each.isr) == set(each.replicas) for each in partitions)
    return Counter(broker for each in partitions for broker in each.replicas)


def has_ended(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return True


def broker_pid(broker_id: int) -> int:
    supervisor = psutil.Process(supervisors()[broker_id])
    [broker] = supervisor.children()
    pid: int = broker.pid
    return pid
