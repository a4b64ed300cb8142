"""The data source class: cheap to import, and a pushdown reader only with pushdown."""

import subprocess
import sys
from types import ModuleType

import pytest
from pyspark.sql.types import StructType

from sparklog.dataframe import source
from sparklog.dataframe.options.options import OWN_SCAN_OPTION
from sparklog.dataframe.read.reader import PushdownTopicReader, TopicReader
from sparklog.dataframe.source import SparklogDataSource
from sparklog.errors import ConfigError

SCHEMA = StructType().add("value", "binary")
OPTIONS = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


@pytest.mark.parametrize(
    ("spark_pushes", "own_scan", "kind"),
    [
        (True, True, PushdownTopicReader),
        (True, False, TopicReader),
        (False, True, TopicReader),
        (False, False, TopicReader),
    ],
)
def test_filters_are_used_where_spark_pushes_them_into_a_scan_of_its_own(
    spark_pushes: bool, own_scan: bool, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, source._PUSHDOWN_WORKER, raising=False)
    if spark_pushes:
        worker = ModuleType(source._PUSHDOWN_WORKER)
        monkeypatch.setitem(sys.modules, source._PUSHDOWN_WORKER, worker)
    options = OPTIONS | ({OWN_SCAN_OPTION: "true"} if own_scan else {})
    assert type(SparklogDataSource(options).reader(SCHEMA)) is kind


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(ConfigError, match=r"a topic cannot be overwritten: use mode\('append'\)"):
        SparklogDataSource(OPTIONS).writer(SCHEMA, overwrite=True)


def test_wrong_options_are_heard_of_with_the_schema() -> None:
    with pytest.raises(ConfigError, match="did you mean subscribe"):
        SparklogDataSource({"kafka.bootstrap.servers": "h:1", "subscribes": "t"}).schema()


def test_processes_that_only_plan_a_write_do_not_pay_for_a_client() -> None:
    code = "import sys, pyspark_sparklog, sparklog.dataframe.write.writer; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = [name for name in done.stdout.split() if name.startswith("sparklog.")]
    assert not [name for name in loaded if name.startswith(("sparklog.client", "sparklog.wire"))]
