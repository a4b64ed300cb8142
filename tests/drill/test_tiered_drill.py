"""The smallest drill: a tiered topic of 10 MB under one kill of each kind, and its restore."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.drill.tiered_drill import MEGABYTES_MIN
from tests.spark.dataframe_rig import QUICK_JVM
from tests.support.kafka_jars import JarsUnavailableError, kafka_jars
from tests.support.s3_server import S3Missing, require_binary

ROOT = Path(__file__).resolve().parents[2]
#: The drill takes some 70 to 100 seconds on two cores that have nothing else to do.
SECONDS_MAX = 600


@pytest.fixture
def prepared() -> None:
    """Java's compiler, Kafka's consumer and the S3 server are there."""
    if shutil.which("javac") is None:
        pytest.skip("the drill's reader in Java needs a JDK 17 or newer (javac)")
    try:
        kafka_jars()
        require_binary()
    except (JarsUnavailableError, S3Missing) as error:
        pytest.skip(str(error))


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.s3
@pytest.mark.timeout(SECONDS_MAX + 30)
@pytest.mark.usefixtures("prepared")
def test_a_small_tiered_topic_survives_kills_and_the_loss_of_every_disk(tmp_path: Path) -> None:
    """In a process of its own, because a process has one Spark context."""
    command = [sys.executable, "-m", "tests.drill.tiered_drill", "--megabytes", str(MEGABYTES_MIN)]
    drill = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        cwd=ROOT,
        # A drill that is killed leaves its folder in the test's.
        env=os.environ | {"TMPDIR": str(tmp_path), "PYSPARK_SUBMIT_ARGS": QUICK_JVM},
    )
    assert drill.returncode == 0, drill.stdout[-6000:] + drill.stderr[-3000:]
    assert list(tmp_path.glob("*drill*")) == []
