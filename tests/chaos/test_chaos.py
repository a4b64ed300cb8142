"""Two minutes of chaos: nothing acknowledged is lost, doubled or reordered, and all heals."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.chaos_run import MINUTES_IN_TESTS

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 600


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.timeout(SECONDS_MAX + 30)
def test_a_cluster_in_spark_survives_two_minutes_of_kills() -> None:
    """In a process of its own, because a process has one Spark context."""
    command = [sys.executable, "-m", "tests.chaos.chaos_run", "--minutes", str(MINUTES_IN_TESTS)]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-3000:]
