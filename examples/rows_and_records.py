"""Rows through a topic and back: one JSON object per record, or many rows per Arrow record.

Run this example with ``python examples/rows_and_records.py``; it needs Java 17 or newer, and
pandas for Arrow records (``pip install 'sparklog[arrow]'``).
"""

import tempfile
from typing import Any

import sparklog
from sparklog.session import create_session


def main(spark: Any, cluster: sparklog.Cluster) -> None:
    rows = spark.range(20_000).selectExpr(
        "id",
        "concat('sensor-', id % 10) AS sensor",
        "timestamp_seconds(1700000000 + id) AS measured_at",
        "named_struct('celsius', id % 30 + 0.5D, 'ok', id % 100 > 0) AS reading",
    )
    for format, records in (
        ("json", sparklog.to_records(rows, key="sensor")),
        ("arrow", sparklog.to_records(rows, format="arrow")),
    ):
        name = f"readings-in-{format}"
        cluster.create_topic(name, partitions=2)
        cluster.write(records, name)
        back = sparklog.from_records(cluster.read(name), rows.schema, format=format)
        assert back.exceptAll(rows).isEmpty()
        topic = cluster.topic(name)
        print(f"{format}: {back.count()} rows in {topic.records} records")
    late = sparklog.from_records(
        cluster.read("readings-in-json"), rows.schema, keep=["partition", "offset"]
    )
    late.where("reading.celsius > 29").orderBy("id").show(3, truncate=False)


if __name__ == "__main__":
    session = create_session(brokers=1, app_name="sparklog rows and records")
    with (
        tempfile.TemporaryDirectory() as folder,
        sparklog.start(session, brokers=1, data_dir=folder) as started,
    ):
        main(session, started)
    session.stop()
