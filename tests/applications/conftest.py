"""A served sparklog and a JVM for Kafka's applications, made once for all tests."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.applications.application_runner import ApplicationRunner
from tests.support.kafka_jars import KAFKA, KAFKA_APPLICATIONS, JarsUnavailableError, jars_of
from tests.support.served import ServedCluster, serving

FOLDER = Path(__file__).parent
COMPILE_SECONDS_MAX = 120.0
#: A member that was killed is missed after its session, which applications make short.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "4",
    "log.cleaner.backoff.ms": "500",
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.process)


@pytest.fixture(scope="session")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Kafka's jars, and our few classes."""
    compiler = shutil.which("javac")
    if compiler is None:
        pytest.skip("Kafka's applications need a JDK 17 or newer (javac)")
    try:
        jars = ":".join(str(jars_of(wanted) / "*") for wanted in (KAFKA, KAFKA_APPLICATIONS))
    except JarsUnavailableError as error:
        pytest.skip(str(error))
    classes = tmp_path_factory.mktemp("classes")
    command = [compiler, "-Werror", "-Xlint:all,-path", "-d", str(classes), "-cp", jars]
    done = subprocess.run(
        [*command, *map(str, sorted(FOLDER.glob("*.java")))],
        capture_output=True,
        text=True,
        timeout=COMPILE_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return f"{classes}:{jars}"


@pytest.fixture(scope="session")
def cluster(class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """Three brokers; in the end they must stop cleanly."""
    del class_path  # without Kafka's applications there is nothing to serve
    options = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    with serving(tmp_path_factory.mktemp("served") / "data", *options) as served:
        yield served


@pytest.fixture(scope="session")
def runner(
    class_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApplicationRunner]:
    found = ApplicationRunner(class_path, tmp_path_factory.mktemp("runner") / "jvm")
    yield found
    found.kill()


@pytest.fixture
def killed_runner(class_path: str, tmp_path: Path) -> Iterator[ApplicationRunner]:
    """Another JVM, which the test kills."""
    found = ApplicationRunner(class_path, tmp_path / "killed")
    yield found
    found.kill()
