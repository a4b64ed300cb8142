"""A cluster inside Spark in a few lines: start it, write a DataFrame, read it back by time.

Run this example with ``python examples/quickstart.py``; it needs Java 17 or newer.
"""

import tempfile

import sparklog
from sparklog.session import create_session


def main() -> None:
    spark = create_session(brokers=1, app_name="sparklog quickstart")
    with (
        tempfile.TemporaryDirectory() as folder,
        sparklog.start(spark, brokers=1, data_dir=folder) as cluster,
    ):
        # The timestamps are of 2023.  The default retention (seven days) would delete the records.
        cluster.create_topic("measurements", partitions=2, configs={"retention.ms": -1})
        measurements = spark.range(1000).selectExpr(
            "concat('sensor-', id % 10) AS key",
            "to_json(named_struct('reading', id * 0.5)) AS value",
            "timestamp_seconds(1700000000 + id) AS timestamp",
        )
        topic = {"topic": "measurements"}
        measurements.write.format("sparklog").options(**topic).mode("append").save()

        back = spark.read.format("sparklog").option("subscribe", "measurements").load()
        back.createOrReplaceTempView("measurements")
        late = spark.sql(
            """
            SELECT string(key) AS sensor, count(*) AS readings,
                   max(from_json(string(value), 'reading DOUBLE').reading) AS highest
            FROM measurements
            WHERE timestamp >= timestamp_seconds(1700000900)
            GROUP BY key ORDER BY sensor
            """
        )
        late.show()
        print(f"any Kafka client reads the same records at {cluster.bootstrap_servers}")
    spark.stop()


if __name__ == "__main__":
    main()
