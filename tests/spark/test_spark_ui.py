"""What Spark's UI shows of our jobs, and what becomes of a cluster whose jobs are killed there."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparklog.cluster import Cluster, connect, start
from sparklog.errors import ClosedError, StartError
from sparklog.session import create_session
from tests.spark.launcher_rig import TOPIC, broker_pids, is_whole, latest, produce, values
from tests.support.running import waiting_spares
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark

BROKERS = 2
#: What the UI sets for the thread that clicks, or a query of the user's own has.
PROPERTIES = (
    *("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"),
    *("callSite.short", "callSite.long", "spark.job.tags"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownJob:
    """A job as the UI's list has it."""

    number: int
    name: str
    description: str
    group: str
    stages: tuple[int, ...]
    is_running: bool


def shown_jobs(spark: Any) -> list[ShownJob]:
    scala = spark.sparkContext._jsc.sc()
    scala.listenerBus().waitUntilEmpty()  # the UI hears of jobs a moment later
    listed = scala.statusStore().jobsList(None)
    jobs = [listed.apply(index) for index in range(listed.size())]
    return [
        ShownJob(
            number=job.jobId(),
            name=job.name(),
            description=job.description().get() if job.description().isDefined() else "",
            group=job.jobGroup().get() if job.jobGroup().isDefined() else "",
            stages=tuple(job.stageIds().apply(index) for index in range(job.stageIds().size())),
            is_running=job.status().toString() == "RUNNING",
        )
        for job in jobs
    ]


def job_of(spark: Any, name: str) -> ShownJob:
    """The running job of a broker or a spare."""
    wait_for(lambda: any(job.is_running and job.name == name for job in shown_jobs(spark)))
    return next(job for job in shown_jobs(spark) if job.is_running and job.name == name)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = create_session(f"local[{BROKERS + 2}]", app_name="user interface tests")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def before(spark: Any) -> dict[str, str | None]:
    """The properties of the user's thread before the start, some of them the user's own."""
    context = spark.sparkContext
    context.setJobGroup("mine", "my own work")
    context.setLocalProperty("callSite.short", "my line")
    context.addJobTag("my-tag")
    return {name: context.getLocalProperty(name) for name in PROPERTIES}


@pytest.fixture(scope="module")
def cluster(
    spark: Any, before: dict[str, str | None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    data: Path = tmp_path_factory.mktemp("data")
    with start(spark, brokers=BROKERS, spares=1, data_dir=data) as started:
        started.create_topic(TOPIC, 6, replication_factor=2, configs={"retention.ms": -1})
        produce(started, 600)
        yield started


def test_jobs_say_whose_they_are(cluster: Cluster, spark: Any) -> None:
    for name, group, description in (
        (
            "sparklog broker 1",
            "broker-1",
            "sparklog broker 1: runs until the cluster stops, and is started again when killed",
        ),
        (
            "sparklog broker 2",
            "broker-2",
            "sparklog broker 2: runs until the cluster stops, and is started again when killed",
        ),
        (
            "sparklog spare-1",
            "spare-1",
            "sparklog spare-1: takes over a broker that loses its executor or its job",
        ),
    ):
        job = job_of(spark, name)
        assert job.description == description
        assert job.group.startswith("sparklog-")
        assert job.group.endswith(f"-{group}")
    jobs = shown_jobs(spark)
    assert {job.name for job in jobs} >= {"sparklog looks at the executors' Python"}
    for job in jobs:
        assert "NativeMethodAccessorImpl" not in job.name
        stages = spark.sparkContext._jsc.sc().statusStore()
        for stage in job.stages:
            shown = stages.lastStageAttempt(stage)
            assert (shown.name(), "NativeMethod" in shown.details()) == (job.name, False)


def test_the_threads_of_the_user_keep_their_properties(
    cluster: Cluster, spark: Any, before: dict[str, str | None]
) -> None:
    context = spark.sparkContext
    assert {name: context.getLocalProperty(name) for name in PROPERTIES} == before
    ours = [job for job in shown_jobs(spark) if job.name.startswith("sparklog")]
    assert ours
    assert not {job.number for job in ours} & set(context.statusTracker().getJobIdsForGroup("mine"))
    context.parallelize([1], 1).collect()
    mine = [job for job in shown_jobs(spark) if job.group == "mine"]
    assert [job.description for job in mine] == ["my own work"]


def kill_by_job(context: Any, job: ShownJob) -> None:
    context._jsc.sc().cancelJob(job.number)


def kill_by_group(context: Any, job: ShownJob) -> None:
    context.cancelJobGroup(job.group)


def kill_by_stage(context: Any, job: ShownJob) -> None:
    context._jsc.sc().cancelStage(job.stages[-1])


def kill_all(context: Any, job: ShownJob) -> None:
    context.cancelAllJobs()


@pytest.mark.parametrize("kill", [kill_by_job, kill_by_group, kill_by_stage, kill_all])
def test_a_broker_whose_job_is_killed_comes_back_with_its_records(
    cluster: Cluster, spark: Any, kill: Callable[[Any, ShownJob], None]
) -> None:
    records = latest(cluster)
    produce(cluster, 60)
    victim = job_in(spark, cluster, broker_id=1)
    pids = broker_pids()
    kill(spark.sparkContext, victim)
    wait_for(lambda: not is_running(spark, victim))
    wait_for(lambda: len(broker_pids() - pids) > 0)
    await_whole(cluster, spark)
    assert latest(cluster) == records + 60
    assert values(cluster, 600) == set(range(600))
    assert spark.range(10).count() == 10


def test_a_spare_whose_job_is_killed_is_replaced(cluster: Cluster, spark: Any) -> None:
    await_whole(cluster, spark)
    busy = {job_in(spark, cluster, broker_id).number for broker_id in (1, 2)}
    [spare] = [job for job in running_jobs(spark) if job.number not in busy]
    pids = broker_pids()
    kill_by_job(spark.sparkContext, spare)
    wait_for(lambda: not is_running(spark, spare))
    await_whole(cluster, spark)
    assert broker_pids() == pids


def test_the_end_of_the_application_is_told_at_once(cluster: Cluster, spark: Any) -> None:
    with connect(spark, cluster.bootstrap_servers) as other:
        topic, frame = cluster.topic(TOPIC), spark.range(1).selectExpr("string(id) AS value")
        spark.stop()
        for use in (lambda: other.read(TOPIC), lambda: other.write(frame, TOPIC)):
            with pytest.raises(StartError, match="this Spark session has been stopped; make a new"):
                use()
        wait_for(lambda: cluster.is_stopped)
        for look in (cluster.topics, topic.partitions, lambda: cluster.read(TOPIC)):
            with pytest.raises(ClosedError, match="this cluster ended with its Spark application"):
                look()


def running_jobs(spark: Any) -> list[ShownJob]:
    return [job for job in shown_jobs(spark) if job.is_running and job.name.startswith("sparklog")]


def is_running(spark: Any, wanted: ShownJob) -> bool:
    return any(job.number == wanted.number for job in running_jobs(spark))


def job_in(spark: Any, cluster: Cluster, broker_id: int) -> ShownJob:
    """The job that a broker runs in: its own, or that of a spare that took it."""
    launcher = cluster._launcher
    assert launcher is not None
    assert launcher._fleet is not None
    name = launcher._fleet._keepers[broker_id].job_name
    wait_for(lambda: any(job.group.endswith(f"-{name}") for job in running_jobs(spark)))
    return next(job for job in running_jobs(spark) if job.group.endswith(f"-{name}"))


def await_whole(cluster: Cluster, spark: Any) -> None:
    """Every broker and the spare are there, in a job each."""
    wait_for(lambda: is_whole(cluster, BROKERS))
    wait_for(lambda: waiting_spares(cluster) == 1)
    wait_for(lambda: len(running_jobs(spark)) == BROKERS + 1)
