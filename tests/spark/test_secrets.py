"""What opens a cluster's stores is a secret: neither Spark nor the processes show it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparklog.cluster import start
from sparklog.session import create_session, session_settings
from tests.spark.launcher_rig import TOPIC, broker_pids, kill
from tests.support.running import waiting_spares
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark

SECRET = "hush-hush-hush"


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Any]:
    """A session that writes an event log."""
    from pyspark.sql import SparkSession

    events = tmp_path / "events"
    events.mkdir()
    create_session("local[4]").stop()  # it sets Spark's Python
    settings = session_settings("local[4]") | {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    builder: Any = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


def shown_by_processes() -> str:
    """The arguments and the environments of all processes below this one."""
    texts = []
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            texts.append(f"{process.cmdline()} {process.environ()}")
        except psutil.Error:
            continue
    return "\n".join(texts)


def test_secrets_are_in_no_log_configuration_or_environment(spark: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    places = {"data_dir": data, "remote_dir": tmp_path / "remote"}
    with start(spark, brokers=1, spares=1, **places, storage_options={"secret": SECRET}) as cluster:
        cluster.create_topic(TOPIC, tiered=True)
        wait_for(lambda: waiting_spares(cluster) == 1)
        before = broker_pids()
        kill(min(before))
        wait_for(lambda: bool(broker_pids()) and broker_pids() != before)
        shown = [shown_by_processes(), str(spark.sparkContext.getConf().getAll())]
        shown += [repr(cluster), cluster._repr_html_()]
    spark.stop()  # the event log is whole
    events = [path for path in (tmp_path / "events").rglob("*") if path.is_file()]
    assert any("sparklog broker" in path.read_text(errors="replace") for path in events)
    files = [path for path in (*events, *data.rglob("*")) if path.is_file()]
    shown += [path.read_text(errors="replace") for path in files]
    assert not any(SECRET in text for text in shown)
