import os
from pathlib import Path
from typing import Any

import pytest

from sparklog.cluster import start, start_processes
from sparklog.errors import ConfigError, StartError
from sparklog.session import default_master, session_settings


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"brokers": 0}, StartError, "at least one broker"),
        ({"port": 70000}, ConfigError, "expected 0 to 65535"),
        ({"settings": {"num.partition": 3}}, ConfigError, "did you mean num.partitions"),
        ({"settings": {"num.partitions": "x"}}, ConfigError, "expected int"),
        ({"data_dir": "memory://x"}, StartError, "local folders"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(
    tmp_path: Path, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        start_processes(**{"data_dir": tmp_path / "data", **options})
    assert os.listdir(tmp_path) == []


def test_start_needs_a_classic_session(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="needs a classic Spark session"):
        start(object(), data_dir=tmp_path)


def test_sessions_of_our_own_have_room_for_queries_and_stay_on_this_machine() -> None:
    settings = session_settings(default_master(3), "test")
    assert settings == {
        "spark.master": "local[5]",
        "spark.app.name": "test",
        "spark.dynamicAllocation.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    assert "spark.driver.host" not in session_settings("spark://host:7077")
