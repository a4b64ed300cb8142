"""Two minutes of chaos: nothing acknowledged is lost, doubled or reordered, and all heals.

One topic is tiered, and its bucket goes away and comes back.
"""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.chaos.chaos_run import MINUTES_IN_TESTS
from tests.support.s3_server import S3Missing, require_binary

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 600


def bucket_option() -> list[str]:
    """Where there is no S3 server, a run without a bucket is better than none."""
    try:
        require_binary()
    except S3Missing as error:
        warnings.warn(f"chaos without a bucket, which needs versitygw: {error}", stacklevel=1)
        return []
    return ["--bucket"]


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.s3
@pytest.mark.timeout(SECONDS_MAX + 30)
def test_a_cluster_in_spark_survives_two_minutes_of_kills() -> None:
    """In a process of its own, because a process has one Spark context."""
    command = [sys.executable, "-m", "tests.chaos.chaos_run", *bucket_option()]
    command += ["--minutes", str(MINUTES_IN_TESTS)]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-3000:]
