"""A served sparklog with everything that is read, and a Spark with its Kafka package, made once."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.client.blocking import BlockingClient
from tests.compat.compat_topics import fill, write_transactions
from tests.compat.spark_process import SparkProcess
from tests.support.kafka_jars import SPARK_PACKAGE, JarsUnavailableError, jars_of
from tests.support.served import ServedCluster

#: Records of these tests are old, and must stay nevertheless; a group has nobody to wait for.
SETTINGS = ("--set", "log.retention.ms=-1", "--set", "group.initial.rebalance.delay.ms=0")


@pytest.fixture(scope="session")
def jars() -> Path:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or newer")
    try:
        return jars_of(SPARK_PACKAGE)
    except JarsUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def bootstrap(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One broker of ours, with everything that is read."""
    del jars  # without Spark's package there is nothing to compare with
    folder = tmp_path_factory.mktemp("compat") / "data"
    served = ServedCluster(folder, *SETTINGS, brokers=1)
    try:
        assert served.bootstrap, served.errors
        with BlockingClient(served.bootstrap) as client:
            fill(client)
        assert served.stop() == 0
        write_transactions(folder)
        served = ServedCluster(folder, *SETTINGS, brokers=1)
        assert served.bootstrap, served.errors
        yield served.bootstrap
        assert served.stop() == 0
    finally:
        served.kill()


@pytest.fixture(scope="session")
def client(bootstrap: str) -> Iterator[BlockingClient]:
    with BlockingClient(bootstrap) as found:
        yield found


@pytest.fixture(scope="session")
def spark(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProcess]:
    process = SparkProcess(jars, tmp_path_factory.mktemp("spark") / "errors")
    yield process
    process.close()
