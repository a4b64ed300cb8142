"""What Spark's own Kafka source and sink do with our brokers, ``format("sparklog")`` does too."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_topics import fill, write_transactions
from kafka_jars import SPARK_PACKAGE, JarsUnavailableError, jars_of
from read_cases import CASES as READ_CASES
from read_cases import Read
from served import ServedCluster
from spark_outcomes import Failure, Job, Outcome, Rows
from spark_process import SparkProcess
from stated_differences import MEANT, NOT_YET

from sparklog.client.blocking import BlockingClient

pytestmark = [pytest.mark.spark, pytest.mark.process]

BOTH = ("kafka", "sparklog")
#: Records of these tests are old, and must stay nevertheless.
RETENTION = ("--set", "log.retention.ms=-1")


@pytest.fixture(scope="module")
def jars() -> Path:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or newer")
    try:
        return jars_of(SPARK_PACKAGE)
    except JarsUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def bootstrap(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One broker of ours, with everything that is read."""
    del jars  # without Spark's package there is nothing to compare with
    folder = tmp_path_factory.mktemp("compat") / "data"
    served = ServedCluster(folder, *RETENTION, brokers=1)
    try:
        assert served.bootstrap, served.errors
        with BlockingClient(served.bootstrap) as client:
            fill(client)
        assert served.stop() == 0
        write_transactions(folder)
        served = ServedCluster(folder, *RETENTION, brokers=1)
        assert served.bootstrap, served.errors
        yield served.bootstrap
        assert served.stop() == 0
    finally:
        served.kill()


@pytest.fixture(scope="module")
def spark(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProcess]:
    process = SparkProcess(jars, tmp_path_factory.mktemp("spark") / "errors")
    yield process
    process.close()


def agree(name: str, kafka: Outcome, ours: Outcome, says: str | None = None) -> None:
    """The same, failures with what ``says`` so, or different as it is stated."""
    if name in MEANT:
        assert MEANT[name].ours(ours), ours
        return
    if says is None:
        same = ours == kafka
    else:
        same = isinstance(ours, Failure) and has(ours, says)
    if name in NOT_YET and not same:
        pytest.xfail(NOT_YET[name])
    assert same, f"ours: {ours}, Kafka: {kafka}"


def has(failure: Failure, says: str) -> bool:
    return re.search(says, failure.message, re.IGNORECASE) is not None


@pytest.mark.parametrize("case", READ_CASES, ids=lambda case: case.name)
def test_a_read(spark: SparkProcess, bootstrap: str, case: Read) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, **case.options}
    given = {name: value for name, value in options.items() if value}
    kafka, ours = spark.run(Job(formats=BOTH, options=given))
    if case.fails is None:
        assert isinstance(kafka, Rows), kafka
        assert kafka.count == case.rows
    else:
        assert isinstance(kafka, Failure), kafka
        assert has(kafka, case.kafka or case.fails), kafka
    agree(case.name, kafka, ours, case.fails)


def test_a_schema_of_the_user(spark: SparkProcess, bootstrap: str) -> None:
    """Spark's source refuses one; ours takes it as a projection."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "numbs"}
    schema = "topic string, partition int, offset bigint"
    kafka, ours = spark.run(Job(formats=BOTH, options=options, schema=schema))
    assert isinstance(kafka, Failure), kafka
    assert isinstance(ours, Rows), ours
    assert ours.rows == {("numbs", 0): [("numbs", 0, n) for n in range(3)]}


def test_differences_are_those_of_cases() -> None:
    names = {case.name for case in READ_CASES}
    assert len(names) == len(READ_CASES)
    assert names >= MEANT.keys()
    assert names >= NOT_YET.keys()
