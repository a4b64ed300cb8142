"""What holds for every test: one clear line instead of many failures where Java is missing, an S3
server for those who ask for one, and how Hypothesis looks for examples.

There is no deadline for single examples nor for making them, because a busy machine is no failure
(pytest-timeout ends what hangs), and the examples are the same in every run, so that a change is
judged by itself: ``pytest --hypothesis-profile=search`` looks for new ones.

Where tests run beside each other (``--numprocesses``), those of a file stay together, and those of
folders whose servers are made once (``TOGETHER``).
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from sparklog.driver.launcher.java import require_java
from sparklog.errors import StartError
from tests.support.kafka_jars import (
    KAFKA,
    KAFKA_APPLICATIONS,
    KAFKA_TIERED,
    SPARK_PACKAGE,
    JarSet,
    JarsUnavailableError,
    jars_of,
)
from tests.support.s3_server import S3Missing, S3Server, require_binary
from tests.support.sampling import WHOLE, left_out
from tests.support.time_by_folder import time_by_folder

settings.register_profile(
    "whole", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.register_profile("sparklog", settings.get_profile("whole"), max_examples=15)
settings.register_profile("search", settings.get_profile("whole"), derandomize=False)
settings.load_profile("whole" if WHOLE else "sparklog")

ROOT = Path(__file__).resolve().parents[1]
#: Folders whose tests share servers.
TOGETHER = ("tests/peers/", "tests/compat/", "tests/applications/")
#: What a file says whose tests share the Spark session and the cluster of ``tests/spark``.
SHARES_CLUSTER = "\nSHARES_CLUSTER = True\n"
#: Under which pytest keeps the reports of calls; setups and teardowns that passed have no name.
OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
#: The jars that the tests of a folder need, in the order in which they are fetched.
JARS_OF_FOLDERS: dict[str, tuple[JarSet, ...]] = {
    "peers": (KAFKA, KAFKA_TIERED),
    "applications": (KAFKA, KAFKA_APPLICATIONS),
    "compat": (SPARK_PACKAGE,),
    "drill": (KAFKA,),
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only ``make test-whole`` runs, unless single tests are asked for."""
    if WHOLE or any("::" in each for each in config.args):
        return
    out = set(left_out(item.nodeid for item in items))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in out])
    items[:] = [item for item in items if item.nodeid not in out]


def pytest_collection_finish(session: pytest.Session) -> None:
    if any(item.get_closest_marker("s3") for item in session.items):
        _prepare_s3()
    folders = {name for item in session.items for name in item.path.parts}
    for folder, jar_sets in JARS_OF_FOLDERS.items():
        if folder in folders:
            for wanted in jar_sets:
                _prepare_jars(wanted)
    if any(item.get_closest_marker("spark") for item in session.items):
        _require_java()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Before there are processes, each of which would fail on its own: Spark's tests are theirs."""
    _require_java()


def _require_java() -> None:
    try:
        require_java()
    except StartError as error:
        pytest.exit(f"the Spark tests cannot run: {error}", returncode=1)


class TogetherByServers(LoadFileScheduling):  # type: ignore[misc]  # xdist is not typed
    """Which tests one process takes after each other: those that share servers."""

    def _split_scope(self, nodeid: str) -> str:
        folders = [folder for folder in TOGETHER if nodeid.startswith(folder)]
        if folders:
            return folders[0]
        file = str(super()._split_scope(nodeid))
        return "tests/spark" if _shares_cluster(file) else file


@cache
def _shares_cluster(file: str) -> bool:
    return file.startswith("tests/spark/") and SHARES_CLUSTER in (ROOT / file).read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> TogetherByServers:
    return TogetherByServers(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [each for kind in ("", *OUTCOMES) for each in terminalreporter.stats.get(kind, [])]
    for line in time_by_folder(each for each in reports if isinstance(each, pytest.TestReport)):
        terminalreporter.write_line(line)


def _prepare_s3() -> None:
    """Here, because the first build takes longer than a test may; what fails is told later."""
    try:
        require_binary()
    except S3Missing:
        return


def _prepare_jars(wanted: JarSet) -> None:
    """For the same reason: Maven may take long to fetch them."""
    with suppress(JarsUnavailableError, AssertionError):
        jars_of(wanted)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        server = S3Server(require_binary(), tmp_path_factory.mktemp("s3"))
    except S3Missing as error:
        pytest.skip(f"needs versitygw, which needs Go or its Python package: {error}")
    yield server
    server.stop()


@pytest.fixture
def s3_bucket(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of an empty bucket."""
    return s3_server.make_bucket(tmp_path_factory.mktemp("bucket").name.replace("_", "-"))
