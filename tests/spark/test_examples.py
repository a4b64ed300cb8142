"""The examples and the demo run as they stand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.cluster import start_processes
from tests.spark.dataframe_rig import QUICK_JVM
from tests.spark.notebook_cells import code_cells, load

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]


def run(*command: str, folder: Path) -> str:
    environment = {"PYSPARK_SUBMIT_ARGS": QUICK_JVM, **os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=450,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_quickstart(tmp_path: Path) -> None:
    out = run(str(EXAMPLES / "quickstart.py"), folder=tmp_path)
    assert "|sensor-9|      10|  499.5|" in out
    assert "any Kafka client reads the same records at 127.0.0.1:" in out


def test_kafka_client(tmp_path: Path) -> None:
    with start_processes(1, data_dir=tmp_path / "data") as cluster:
        out = run(str(EXAMPLES / "kafka_client.py"), cluster.bootstrap_servers, folder=tmp_path)
    assert out.splitlines()[0] == "0 0 b'k0' b'hello 0'"
    assert len(out.splitlines()) == 10


def test_failover(tmp_path: Path) -> None:
    lines = run(str(EXAMPLES / "failover.py"), folder=tmp_path).splitlines()
    assert lines[0].startswith("killed broker ")
    assert lines[-1] == "300 records were acknowledged, 300 are there"


def test_the_notebook_gives_what_it_shows(tmp_path: Path) -> None:
    """Every cell of a copy gives what stands in the file; HTML says when a look took too long."""
    copy = tmp_path / "notebook.ipynb"
    copy.write_text((EXAMPLES / "notebook.ipynb").read_text())
    run(str(Path(__file__).with_name("notebook_cells.py")), str(copy), folder=tmp_path)
    assert shown(copy) == shown(EXAMPLES / "notebook.ipynb")


def shown(path: Path) -> list[str]:
    """What the cells print, and their values as text."""
    outputs = [output for cell in code_cells(load(path)) for output in cell["outputs"]]
    texts = [output.get("text") or output["data"]["text/plain"] for output in outputs]
    return ["".join(lines) for lines in texts]


def test_the_demo(tmp_path: Path) -> None:
    """``make demo``: every figure that it prints was checked by itself."""
    out = run("-m", "sparklog.cli", "demo", folder=tmp_path)
    assert "336,776 flights through a topic of six partitions" in out
    assert [path for path in tmp_path.iterdir() if path.name.startswith("sparklog-demo-")] == []
