"""The launcher on ``local[5]``: brokers are tasks of the driver's JVM."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparklog.cluster import Cluster, connect, start
from sparklog.driver.launcher.spark_internals import active_executors
from sparklog.errors import StartError
from sparklog.session import create_session
from tests.spark.launcher_rig import (
    PARTITIONS,
    TOPIC,
    broker_pids,
    broker_processes,
    clean_markers,
    is_whole,
    kill,
    produce,
    statuses,
    values,
)
from tests.support.running import ours
from tests.support.s3_server import S3Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = create_session("local[5]", app_name="launcher tests")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def cluster(spark: Any, data: Path) -> Iterator[Cluster]:
    with start(spark, brokers=3, data_dir=data) as started:
        started.create_topic(TOPIC, PARTITIONS, configs={"retention.ms": -1})
        produce(started, 600)
        yield started


def test_it_tells_about_itself(cluster: Cluster, spark: Any, data: Path) -> None:
    assert (cluster.topics(), len(cluster.brokers())) == ([TOPIC], 3)
    told = f"<sparklog.Cluster {cluster.bootstrap_servers}: 3 of 3 brokers alive, data in {data}>"
    wait_for(lambda: repr(cluster) == told)  # a look that took too long says that
    wait_for(lambda: ">3</td>" in cluster._repr_html_())
    assert spark.conf.get("spark.sparklog.bootstrap.servers") == cluster.bootstrap_servers
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"


def test_a_second_connection_uses_the_same_cluster(cluster: Cluster, spark: Any) -> None:
    with connect(spark, cluster.bootstrap_servers) as other:
        assert (other.cluster_id, other.topics()) == (cluster.cluster_id, [TOPIC])
    spark.conf.set("spark.sparklog.bootstrap.servers", cluster.bootstrap_servers)
    wait_for(lambda: is_whole(cluster))


def test_a_second_cluster_on_the_same_folder_is_refused(
    cluster: Cluster, spark: Any, data: Path
) -> None:
    with pytest.raises(StartError, match=f"on this data_dir already: .* process {os.getpid()}"):
        start(spark, brokers=1, data_dir=data)
    wait_for(lambda: is_whole(cluster))


def test_too_few_slots_are_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(StartError) as caught:
        start(spark, brokers=5, data_dir=tmp_path)
    assert str(caught.value) == (
        "5 brokers need 6 task slots (one stays free for queries), but local[5] has 5; use a "
        'master such as "local[6]", or start fewer brokers'
    )
    assert os.listdir(tmp_path) == []


def test_a_host_without_a_rack_is_named(spark: Any, tmp_path: Path) -> None:
    [executor] = active_executors(spark.sparkContext)
    with pytest.raises(StartError, match=f"no rack for {executor.host}, where executors run"):
        start(spark, brokers=1, data_dir=tmp_path, racks={"another": "left"})
    assert os.listdir(tmp_path) == []


def test_a_port_in_use_is_named(spark: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"127.0.0.1:{port}: Address already in use"):
            start(spark, brokers=1, data_dir=tmp_path, port=port)


def test_the_folder_of_another_cluster_is_refused(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "broker-1"
    folder.mkdir()
    (folder / "meta.properties").write_text("version=1\ncluster.id=Another\nnode.id=1\n")
    with pytest.raises(StartError, match="Another"):
        start(spark, brokers=1, data_dir=tmp_path)


def test_a_killed_broker_is_restarted_in_place(cluster: Cluster) -> None:
    before = {node.node_id: node.endpoint for node in cluster.brokers()}
    victim = broker_processes()[0]
    supervisor = victim.ppid()
    kill(victim.pid)
    wait_for(lambda: victim.pid not in broker_pids() and is_whole(cluster))
    assert {node.node_id: node.endpoint for node in cluster.brokers()} == before
    assert supervisor in {process.ppid() for process in broker_processes()}
    assert values(cluster, 600) == set(range(600))


def test_a_killed_control_plane_comes_back_at_its_port(cluster: Cluster) -> None:
    launcher = cluster._launcher
    assert launcher is not None
    control = launcher.control_plane
    before, brokers = control.pid, broker_pids()
    assert before is not None
    kill(before)
    assert values(cluster, 600) == set(range(600))  # brokers serve meanwhile
    wait_for(lambda: control.pid not in (None, before))
    wait_for(lambda: is_whole(cluster))
    assert (str(control.endpoint), broker_pids()) == (cluster.bootstrap_servers, brokers)


def test_a_killed_supervisor_is_submitted_again(cluster: Cluster) -> None:
    victim = broker_processes()[0]
    supervisor = victim.ppid()
    kill(supervisor)
    wait_for(lambda: victim.pid not in broker_pids() and is_whole(cluster))
    assert supervisor not in {process.ppid() for process in broker_processes()}
    assert values(cluster, 600) == set(range(600))


def test_ctrl_c_cancels_the_query_and_no_broker(cluster: Cluster, spark: Any) -> None:
    before = broker_pids()
    context = spark.sparkContext
    jobs = context.statusTracker().getActiveJobsIds

    def interrupt_the_query() -> None:
        wait_for(lambda: len(jobs()) == 4)
        os.kill(os.getpid(), signal.SIGINT)

    def slow(number: int) -> int:
        time.sleep(60)
        return number

    wait_for(lambda: len(jobs()) == 3)
    interrupter = threading.Thread(target=interrupt_the_query)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        context.parallelize(range(2), 1).map(slow).collect()
    interrupter.join()
    assert spark.range(10).count() == 10
    wait_for(lambda: len(jobs()) == 3)
    wait_for(lambda: is_whole(cluster))
    assert broker_pids() == before


def test_after_a_clean_stop_the_next_start_recovers_nothing(
    cluster: Cluster, spark: Any, data: Path
) -> None:
    identity = cluster.cluster_id
    cluster.stop()
    assert (clean_markers(data), broker_processes()) == ([True] * 3, [])
    assert ours("sparklog.driver") == []
    assert spark.conf.get("spark.sparklog.bootstrap.servers", None) is None
    # Spark hears of the end of jobs a moment later.
    wait_for(lambda: spark.sparkContext.statusTracker().getActiveJobsIds() == [])
    assert repr(cluster).endswith("stopped>")
    with start(spark, brokers=3, data_dir=data) as again:
        assert (again.cluster_id, again.topics()) == (identity, [TOPIC])
        assert sum(status["bytes_scanned"] for status in statuses(again)) == 0
        assert sum(status["segments_recovered"] for status in statuses(again)) == 0
        assert values(again, 600) == set(range(600))


def test_a_cluster_that_knows_more_brokers_needs_their_slots(
    spark: Any, data: Path, cluster: Cluster
) -> None:
    assert cluster.is_stopped
    with start(spark, brokers=1, data_dir=data) as again:
        assert [node.node_id for node in again.brokers()] == [1, 2, 3]


@pytest.mark.s3
def test_a_journal_in_a_bucket_brings_everything_back(
    spark: Any, cluster: Cluster, s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    assert cluster.is_stopped
    where: dict[str, Any] = {
        "data_dir": tmp_path,
        "journal_dir": f"s3://{s3_bucket}/journal",
        "storage_options": s3_server.options,
    }
    with start(spark, brokers=1, **where) as first:
        first.create_topic(TOPIC, PARTITIONS)
        identity = first.cluster_id
        produce(first, 60)
    with start(spark, brokers=1, **where) as again:
        assert (again.cluster_id, again.topics()) == (identity, [TOPIC])
        assert values(again, 60) == set(range(60))
    assert not (tmp_path / "journal").exists()


def test_the_end_of_the_session_puts_everything_away(data: Path, cluster: Cluster) -> None:
    assert cluster.is_stopped
    session = create_session("local[5]")
    left = start(session, brokers=3, data_dir=data)
    session.stop()
    wait_for(lambda: left.is_stopped and not broker_processes() and not ours("sparklog.driver"))
    with pytest.raises(StartError, match="has been stopped"):
        start(session, brokers=3, data_dir=data)
