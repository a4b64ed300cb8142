"""The launcher on ``local-cluster``: executors are processes of their own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparklog.cluster import Cluster, start
from sparklog.driver.launcher.fleet import Fleet
from sparklog.driver.launcher.spark_internals import active_executors
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
    values,
)
from tests.support.running import ours, waiting_spares
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = create_session("local-cluster[2,3,1024]", app_name="launcher tests")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def cluster(spark: Any, data: Path) -> Iterator[Cluster]:
    wait_for(lambda: hosts(spark))
    racks = dict.fromkeys(hosts(spark), "left")
    with start(spark, brokers=3, spares=1, data_dir=data, racks=racks) as started:
        started.create_topic(TOPIC, PARTITIONS, configs={"retention.ms": -1})
        produce(started, 600)
        yield started


def hosts(spark: Any) -> set[str]:
    return {executor.host for executor in active_executors(spark.sparkContext)}


def fleet_of(cluster: Cluster) -> Fleet:
    launcher = cluster._launcher
    assert launcher is not None
    assert launcher._fleet is not None
    return launcher._fleet


def test_brokers_and_spares_spread_over_the_executors(cluster: Cluster, spark: Any) -> None:
    slot_allocator = fleet_of(cluster)._slot_allocator
    executors = [executor.executor_id for executor in active_executors(spark.sparkContext)]
    wait_for(lambda: sorted(slot_allocator.used(executor) for executor in executors) == [2, 2])
    assert values(cluster, 600) == set(range(600))


def test_executors_pack_what_is_written(cluster: Cluster, spark: Any) -> None:
    """Each of them compiles the packer; none has a class of ours."""
    cluster.create_topic("packed", 2)
    numbers = spark.range(0, 1000, 1, 4).selectExpr("string(id % 500) AS value")
    frame = numbers.groupBy("value").count().select("value")  # a step that travels with its code
    frame.write.format("sparklog").mode("append").option("topic", "packed").save()
    spark._jsc.sc().listenerBus().waitUntilEmpty()  # Spark is told of executions a moment later
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    plan = executions.apply(executions.size() - 1).physicalPlanDescription()
    assert "PackRecords" in plan
    read = spark.read.format("sparklog").option("subscribe", "packed").load()
    assert sorted(int(row.value) for row in read.select("value").collect()) == list(range(500))


def test_a_killed_executor_is_replaced_and_spares_take_its_brokers(
    cluster: Cluster, spark: Any
) -> None:
    before = active_executors(spark.sparkContext)
    wait_for(lambda: waiting_spares(cluster) == 1)
    broker_hosts = [executor_of(process) for process in broker_processes()]
    crowded = max(set(broker_hosts), key=broker_hosts.count)  # the spare is on the other one
    victims = {p.pid for p in broker_processes() if executor_of(p) == crowded}
    kill(crowded)
    wait_for(lambda: not victims & broker_pids() and is_whole(cluster), seconds=90)
    wait_for(lambda: active_executors(spark.sparkContext) != before)
    assert [(n.node_id, n.rack) for n in cluster.brokers()] == [(i, "left") for i in (1, 2, 3)]
    names = [keeper.job_name for keeper in fleet_of(cluster)._keepers.values()]
    taken = [name for name in names if name.startswith("spare-")]
    assert len(taken) in (1, 2)  # another spare takes the place of the first, perhaps in time
    assert values(cluster, 600) == set(range(600))


def executor_of(process: psutil.Process) -> int:
    """The process id of the executor above a process."""
    [executor] = [parent for parent in process.parents() if "--executor-id" in parent.cmdline()]
    pid: int = executor.pid
    return pid


def test_a_killed_supervisor_is_submitted_again(cluster: Cluster) -> None:
    victim = broker_processes()[0]
    kill(victim.ppid())
    wait_for(lambda: victim.pid not in broker_pids() and is_whole(cluster))
    assert values(cluster, 600) == set(range(600))


def test_a_stop_leaves_clean_markers_and_no_process(cluster: Cluster, data: Path) -> None:
    cluster.stop()
    assert (clean_markers(data), broker_processes(), ours("sparklog.driver")) == (
        [True] * 3,
        [],
        [],
    )
