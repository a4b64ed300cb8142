"""The launcher on a standalone master: executors are processes of a worker, not of the driver."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

from sparklog.cluster import start
from sparklog.session import create_session
from tests.spark.launcher_rig import PARTITIONS, TOPIC, clean_markers, produce, values
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark

LOOPBACK = "127.0.0.1"


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master with one worker of five slots."""
    folder = tmp_path_factory.mktemp("standalone")
    port = free_port()
    address = f"spark://{LOOPBACK}:{port}"
    common = ("--host", LOOPBACK, "--webui-port", "0")
    daemons = [
        start_daemon(folder, "org.apache.spark.deploy.master.Master", *common, "--port", str(port))
    ]
    try:
        wait_for(lambda: can_connect(port))
        worker = ("--cores", "5", "--memory", "1g", "--work-dir", str(folder), *common)
        daemons.append(
            start_daemon(folder, "org.apache.spark.deploy.worker.Worker", address, *worker)
        )
        yield address
    finally:
        for daemon in reversed(daemons):
            end(daemon)


def start_daemon(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": LOOPBACK}
    with (folder / f"{name.rpartition('.')[2]}.log").open("wb") as log:
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), name, *arguments],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def end(daemon: subprocess.Popen[bytes]) -> None:
    """The script and the Java that it may have started."""
    for process in [*psutil.Process(daemon.pid).children(recursive=True), daemon]:
        with suppress(psutil.NoSuchProcess):  # an executor, which ends by itself
            process.terminate()
    daemon.wait(60)


def free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as server:
        return int(server.getsockname()[1])


def can_connect(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


@pytest.fixture(scope="module")
def spark(master: str) -> Iterator[Any]:
    os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    session = create_session(master, app_name="standalone tests")
    yield session
    session.stop()
    del os.environ["SPARK_LOCAL_IP"]


def test_records_survive_a_stop_and_a_start(spark: Any, tmp_path: Path) -> None:
    with start(spark, brokers=3, data_dir=tmp_path, host=LOOPBACK) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, configs={"retention.ms": -1})
        produce(cluster, 600)
    assert clean_markers(tmp_path) == [True] * 3
    with start(spark, brokers=3, data_dir=tmp_path, host=LOOPBACK) as cluster:
        assert values(cluster, 600) == set(range(600))
        topic = spark.read.format("sparklog").option("subscribe", TOPIC).load()
        assert topic.count() == 600
        more = spark.range(600, 100_600, 1, 3).selectExpr("string(id) AS value")
        more.write.format("sparklog").mode("append").option("topic", TOPIC).save()
        number = topic.selectExpr("int(string(value)) AS number")
        assert number.selectExpr("count(number)", "sum(number)").collect() == [
            (100_600, sum(range(100_600)))
        ]
