"""What pip installs works: the data source is found without a registration, wherever Python was
started from, and the wheel with nothing but its requirements starts clusters."""

import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark.bare_environment import (
    ROOT,
    RUN_SECONDS_MAX,
    Environment,
    build_sdist,
    build_wheel,
    empty_environment,
    environment_with,
    environment_without,
    plain_variables,
    run,
)
from tests.spark.dataframe_rig import QUICK_JVM

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

#: A session as users make it, which says nothing of Python.
SESSION = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[5]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.log.level", "ERROR")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
"""

#: The option error comes from our code, so Spark found and ran the source.
PROBE = f"""
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
import pyspark_sparklog, sparklog.driver, sparklog.executors, sparklog.storage_backends
{SESSION}
reader = spark.read.format("sparklog").option("subscribe", "t")
frame = reader.option("kafka.bootstrap.servers", "127.0.0.1:1").load()
assert frame.columns[:2] == ["key", "value"], frame.columns
try:
    reader.option("kafka.bootstrap.servers", "nonsense").load()
except Exception as error:
    print("found:", "'nonsense' is not HOST:PORT" in str(error))
print("home:", pyspark_sparklog.__file__)
spark.stop()
"""

#: The README's DataFrame: a flight every six hours of July 1 to 7.
FLIGHTS = """
df = spark.range(28).selectExpr(
    "concat('N', id % 5) AS tailnum",
    "element_at(array('AA', 'UA'), int(id % 2) + 1) AS carrier",
    "timestamp '2013-07-01 00:00:00' + make_dt_interval(0, int(id) * 6) AS time_hour",
)
"""
FLIGHTS_SINCE_THE_4TH = 16
COUNTS_BY_CARRIER = [["AA", "14"], ["UA", "14"]]

#: A session of another application than the cluster's.
CONNECT = f"""
{SESSION}
import sparklog
with sparklog.connect(spark, sys.argv[1]) as cluster:
    if "numbers" not in cluster.topics():
        cluster.create_topic("numbers", partitions=2)
    spark.range(100).selectExpr("string(id) AS value").write.format("sparklog").option(
        "topic", "numbers").mode("append").save()
    print("read:", spark.read.format("sparklog").option("subscribe", "numbers").load().count())
    try:
        sparklog.to_records(spark.range(1), format="arrow")
    except sparklog.errors.ConfigError as error:
        print(error)
spark.stop()
"""

REFUSED = f"""
{SESSION}
import sparklog
for attempt in (lambda: sparklog.start(spark, data_dir="data"),
                lambda: sparklog.connect(spark, "127.0.0.1:1")):
    try:
        attempt()
    except sparklog.errors.StartError as error:
        print(error)
spark.stop()
"""

#: Prints two modules that are surely among them, too.
IMPORT_ALL = """
import importlib, pkgutil, sys, sparklog
for module in pkgutil.walk_packages(sparklog.__path__, "sparklog."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
import pyspark_sparklog
print(*(name for name in ("sparklog.cli", "pyspark_sparklog") if name in sys.modules))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel and what it requires."""
    folder = tmp_path_factory.mktemp("bare")
    return environment_with(build_wheel(folder), folder / "venv")


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The ``python3`` that is first on the PATH, which has no packages."""
    return empty_environment(tmp_path_factory.mktemp("empty") / "venv")


def variables(empty: Environment) -> dict[str, str]:
    path = f"{empty.folder / 'bin'}:{plain_variables()['PATH']}"
    return {"PATH": path, "PYSPARK_SUBMIT_ARGS": QUICK_JVM}


def probe(python: Path, folder: Path) -> list[str]:
    lines = run(python, PROBE, folder, {"PYSPARK_SUBMIT_ARGS": QUICK_JVM}).splitlines()
    return [line for line in lines if line.startswith(("found:", "home:"))]


def test_the_editable_install_is_found_from_an_empty_folder(tmp_path: Path) -> None:
    home = ROOT / "pyspark_sparklog.py"
    assert probe(Path(sys.executable), tmp_path) == ["found: True", f"home: {home}"]


def test_the_wheel_is_found_from_an_empty_folder(bare: Environment, tmp_path: Path) -> None:
    home = bare.site / "pyspark_sparklog.py"
    assert probe(bare.python, tmp_path) == ["found: True", f"home: {home}"]


def test_the_wheel_requires_no_tool_of_ours(bare: Environment) -> None:
    found = bare.distributions()
    assert {"sparklog", "pyspark", "py4j", "pyarrow", "typer"} <= found
    assert found.isdisjoint({"pandas", "kio", "pytest", "psutil", "cloudpickle", "confluent-kafka"})


def test_every_module_of_the_wheel_can_be_imported(bare: Environment, tmp_path: Path) -> None:
    """None reaches for what only an extra installs."""
    assert run(bare.python, IMPORT_ALL, tmp_path).split() == ["sparklog.cli", "pyspark_sparklog"]


def test_the_wheel_and_the_sdist_have_the_java(bare: Environment, tmp_path: Path) -> None:
    """An editable install and an archive for executors read the same folder."""
    folder = Path("sparklog/dataframe/jvm/java")
    wanted = {path.name for path in (ROOT / folder).iterdir()}
    assert len(wanted) > 20
    assert {path.name for path in (bare.site / folder).iterdir()} == wanted
    with tarfile.open(build_sdist(tmp_path)) as sdist:
        found = [Path(name) for name in sdist.getnames()]
    assert {path.name for path in found if path.suffix == ".java"} == wanted
    assert {path.parent.name for path in found if path.suffix == ".java"} == {"java"}


@pytest.mark.timeout(RUN_SECONDS_MAX + 60)
def test_the_readme_works_from_the_wheel_alone(
    bare: Environment, empty: Environment, tmp_path: Path
) -> None:
    """Word for word, and no environment is activated."""
    script = SESSION + FLIGHTS + readme_snippet() + "spark.stop()\n"
    out = run(bare.python, script, tmp_path, variables(empty))
    assert f"{FLIGHTS_SINCE_THE_4TH} flights since the 4th of July" in out.splitlines()
    assert sorted(re.findall(r"\|\s*(AA|UA)\|\s*(\d+)\|", out)) == [
        tuple(each) for each in COUNTS_BY_CARRIER
    ]
    assert (tmp_path / "sparklog-data" / "broker-3" / ".kafka_cleanshutdown").exists()


def readme_snippet() -> str:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (snippet,) = [block for block in blocks if "with sparklog.start(" in block]
    return str(snippet)


def test_a_served_cluster_is_used_from_other_applications(
    bare: Environment, empty: Environment, tmp_path: Path
) -> None:
    """By the ``python3`` of the PATH, which lacks everything, and by workers that lack sparklog."""
    lacks_sparklog = environment_without(bare, tmp_path / "venv")
    refusal = (
        "format='arrow' needs pandas, because PySpark's mapInArrow asks for it: "
        "pip install 'sparklog[arrow]'"
    )
    with serving(bare, empty, tmp_path) as bootstrap:
        script = CONNECT.replace("sys.argv[1]", repr(bootstrap))
        for rows, chosen in ((100, {}), (200, {"PYSPARK_PYTHON": str(lacks_sparklog.python)})):
            out = run(bare.python, script, tmp_path, variables(empty) | chosen)
            assert out.splitlines() == [f"read: {rows}", refusal]


@contextmanager
def serving(bare: Environment, empty: Environment, folder: Path) -> Iterator[str]:
    """``sparklog serve`` in Spark, from the wheel; its bootstrap address."""
    command = [str(bare.folder / "bin" / "sparklog"), "serve", "--engine", "spark", "--port", "0"]
    with (folder / "serve.log").open("wb") as log:
        served = subprocess.Popen(
            [*command, "--brokers", "1", "--data-dir", str(folder / "data")],
            cwd=folder,
            env=plain_variables() | variables(empty),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert served.stdout is not None
        line = served.stdout.readline()
        assert line.startswith("ready bootstrap="), (folder / "serve.log").read_text()
        yield line.strip().removeprefix("ready bootstrap=")
        served.send_signal(signal.SIGTERM)
        assert served.wait(60) == 0, (folder / "serve.log").read_text()
    finally:
        served.kill()
        served.wait()


def test_a_python_without_sparklog_that_was_asked_for_is_named(
    bare: Environment, empty: Environment, tmp_path: Path
) -> None:
    """The session keeps what the user chose, and both errors have a line to copy."""
    chosen = {"PYSPARK_PYTHON": str(empty.python)}
    lines = run(bare.python, REFUSED, tmp_path, variables(empty) | chosen).splitlines()
    told = (
        f"Spark cannot run format('sparklog'): {empty.python} lacks pyspark_sparklog, sparklog, "
        "crc32c, fsspec, numpy, pyarrow; before the Spark session is created (in a notebook: "
        "restart the kernel, then set it in os.environ), set: "
        f"export PYSPARK_PYTHON={bare.python}"
    )
    assert lines == [told, told]
    assert list(tmp_path.iterdir()) == []
