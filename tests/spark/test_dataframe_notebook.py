"""What people type in notebooks: read, write, look, and rows instead of records."""

from datetime import UTC, datetime
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from sparklog import from_records, to_records
from sparklog.dataframe.records import Format
from sparklog.errors import ConfigError, KafkaError
from tests.spark.dataframe_rig import Rig
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: A column of every kind that JSON could spoil.
EVERY_KIND = """
SELECT id, string(id) AS text, if(id % 3 = 0, NULL, double(id) / 7) AS ratio, id % 2 = 0 AS even,
  timestamp_micros(1700000000123456 + id) AS at, timestamp_ntz'2024-03-31 02:30:00.000001' AS wall,
  date_add(date'2024-02-28', int(id)) AS day, decimal(id) / 3 AS amount,
  binary(string(id)) AS bytes, array(id, NULL) AS list, map(string(id), id) AS by_name,
  named_struct('x', id, 'y', named_struct('z', 'ü"')) AS nested, float('NaN') AS nan
FROM range(2500)
"""


@pytest.mark.parametrize("format", ["json", "arrow"])
def test_rows_come_back_as_they_were(rig: Rig, format: Format) -> None:
    topic = rig.new_topic(2)
    rows = rig.spark.sql(EVERY_KIND)
    rig.cluster.write(to_records(rows, format=format), topic)
    records = rig.cluster.read(topic)
    back = from_records(records, rows.schema, format=format)
    assert back.schema.simpleString() == rows.schema.simpleString()
    assert sorted(map(repr, back.collect())) == sorted(map(repr, rows.collect()))
    learnt = from_records(records, format=format, keep=["partition", "timestamp"])
    assert learnt.columns[:2] == ["partition", "timestamp"]
    assert sorted(learnt.columns[2:]) == sorted(rows.columns)
    assert learnt.selectExpr("count(*)", "sum(id)").collect() == [(2500, 2499 * 1250)]
    if format == "arrow":
        assert records.count() < 10


def test_records_get_keys_topics_and_times_from_columns(rig: Rig) -> None:
    topic = rig.new_topic(1)
    rows = rig.spark.sql(
        f"SELECT 7 AS id, '{topic}' AS to, timestamp_millis(1700000000123) AS at, "
        "named_struct('a', 1) AS who"
    )
    rig.cluster.write(to_records(rows, key="id", topic="to", timestamp="at"))
    rig.cluster.write(to_records(rows.select("id", "who"), key="who"), topic)
    found = [(r.key, r.value) for r in rig.consume(topic)]
    assert found[1] == (b'{"a":1}', b'{"id":7,"who":{"a":1}}')
    assert found[0][0] == b"7"
    assert rig.consume(topic)[0].timestamp == 1_700_000_000_123


def test_what_is_no_row_is_null_or_an_error(rig: Rig) -> None:
    topic = rig.new_topic(1)
    frame = rig.spark.sql("SELECT explode(array('{\"a\": 1}', NULL, 'x')) AS value").coalesce(1)
    rig.cluster.write(frame, topic)
    records = rig.cluster.read(topic)
    rows = from_records(records, "a int", keep=["offset"]).orderBy("offset").collect()
    assert rows == [(0, 1), (1, None), (2, None)]
    with pytest.raises(Exception, match="MALFORMED_RECORD_IN_PARSING"):
        from_records(records, "a int", mode="FAILFAST").collect()
    with pytest.raises(PySparkException, match="a value is no Arrow IPC stream"):
        from_records(records, "a int", format="arrow").collect()


def test_a_schema_is_learnt_from_more_than_the_first_record(rig: Rig) -> None:
    """Nulls are left out of JSON, so that a field may be missing in any record."""
    topic = rig.new_topic(1)
    texts = ('{"a": 1}', "x", "[1]", '{"b": "2"}', '{"a": 1.5, "c": {"d": null}}')
    frame = rig.spark.createDataFrame([(text,) for text in texts], "value string").coalesce(1)
    rig.cluster.write(frame, topic)
    rows = from_records(rig.cluster.read(topic), keep=["offset"]).orderBy("offset")
    assert rows.schema.simpleString() == (
        "struct<offset:bigint,a:double,b:string,c:struct<d:string>>"
    )
    assert [row.a for row in rows.collect()] == [1.0, None, None, None, 1.5]
    with pytest.raises(ConfigError, match=r"the first record is no JSON object but 'x'"):
        from_records(rig.cluster.read(topic).where("value = 'x'"))


def test_helpers_say_what_they_cannot_do(rig: Rig) -> None:
    frame = rig.spark.range(1)
    empty = rig.cluster.read(rig.new_topic(1))
    wrong: Any = "xml"
    for call, message in (
        (lambda: to_records(frame, key="id", format="arrow"), "key: an Arrow record holds many"),
        (lambda: to_records(frame, format=wrong), "format='xml': expected json or arrow"),
        (lambda: from_records(empty), "there is no record to learn the schema from"),
        (lambda: from_records(empty, "offset int", keep=["offset"]), "have a column offset too"),
        (lambda: from_records(empty, "array<int>"), "is not one of columns"),
    ):
        with pytest.raises(ConfigError, match=message):
            call()
    with pytest.raises(PySparkException, match=r"let sparklog\.to_records"):
        rig.cluster.write(frame, "t")


def test_the_examples_of_rows_and_of_a_job(
    rig: Rig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the session that is there: another one would cost more than they do."""
    run_path(str(EXAMPLES / "incremental.py"))["main"](rig.spark, rig.cluster, tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        "run 0: 1000 new orders",
        "run 1: 10 new orders",
        "8 sums written",
    ]
    run_path(str(EXAMPLES / "rows_and_records.py"))["main"](rig.spark, rig.cluster)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "json: 20000 rows in 20000 records"
    assert lines[1].startswith("arrow: 20000 rows in ")


def test_a_topic_shows_what_it_has(rig: Rig) -> None:
    name = rig.new_topic(2)
    topic = rig.cluster.topic(name)
    assert (topic.records, topic.preview(), topic.size_bytes) == (0, [], 0)
    rows = rig.spark.sql(
        "SELECT '<' || id AS value, string(id) AS key, int(id % 2) AS partition, "
        "timestamp_millis(1700000000000 + id) AS timestamp FROM range(0, 20, 1, 1)"
    )
    topic.write(rows)
    assert topic.offsets == {0: (0, 10), 1: (0, 10)}
    assert topic.records == 20
    assert topic.size_bytes > 200
    assert [record.value for record in topic.preview(3)] == [b"<17", b"<18", b"<19"]
    assert topic.configs["retention.ms"] == "-1"
    since = datetime.fromtimestamp(1_700_000_000.015, UTC)
    assert topic.read(startingTimestamp=since, schema="value binary").count() == 5
    assert rig.cluster.read([name], startingOffsets={name: {0: 9, 1: 10}}).count() == 1
    newest = (">2023-11-14 22:13:20.019</td>", ">19</td>", ">&lt;19</td>")
    wait_for(lambda: holds(topic._repr_html_(), "20 records in 2 partitions", *newest))
    assert repr(topic) == f"<sparklog.Topic {name}>"


def holds(text: str, *parts: str) -> bool:
    """A look takes two seconds at most, and says when that was too short."""
    return all(part in text for part in parts)


def test_a_topic_that_is_not_there_says_so(rig: Rig) -> None:
    topic = rig.cluster.topic("nowhere-at-all")
    with pytest.raises(KafkaError, match="topic 'nowhere-at-all' does not exist"):
        topic.partitions()
    wait_for(lambda: holds(topic._repr_html_(), "does not exist"))
