"""Two minutes of chaos: nothing acknowledged is lost, doubled or reordered, and all heals."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from chaos_run import MINUTES_IN_TESTS

HERE = Path(__file__).parent
SECONDS_MAX = 600


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.timeout(SECONDS_MAX + 30)
def test_a_cluster_in_spark_survives_two_minutes_of_kills() -> None:
    """In a process of its own, because a process has one Spark context."""
    command = [sys.executable, str(HERE / "chaos_run.py"), "--minutes", str(MINUTES_IN_TESTS)]
    folders = [str(HERE.parent / "simulation"), os.environ.get("PYTHONPATH", "")]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))},
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-3000:]
