"""A batch job that goes on where its last run ended.

Run this example with ``python examples/incremental.py``; it needs Java 17 or newer.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import sparklog
from sparklog.session import create_session


def run_job(cluster: sparklog.Cluster, ends_file: Path) -> int:
    """Sum up the orders that arrived since the last run, and return their number."""
    ends = {number: end for number, (_, end) in cluster.topic("orders").offsets.items()}
    options: dict[str, Any] = {"endingOffsets": {"orders": ends}}
    if ends_file.exists():
        options["startingOffsets"] = {"orders": json.loads(ends_file.read_text())}

    orders = sparklog.from_records(
        cluster.read("orders", **options), "customer string, amount bigint"
    )
    sums = orders.groupBy("customer").sum("amount").toDF("customer", "amount")
    cluster.write(sparklog.to_records(sums, key="customer"), "sums")

    ends_file.write_text(json.dumps(ends))  # the last step, so that a failed run is repeated
    return int(orders.count())


def main(spark: Any, cluster: sparklog.Cluster, folder: Path) -> None:
    cluster.create_topic("orders", partitions=3)
    for run, count in enumerate((1000, 10)):
        orders = spark.range(count).selectExpr(
            "concat('customer-', id % 4) AS customer", "id AS amount"
        )
        cluster.write(sparklog.to_records(orders, key="customer"), "orders")
        print(f"run {run}: {run_job(cluster, folder / 'ends.json')} new orders")
    print(f"{cluster.topic('sums').records} sums written")


if __name__ == "__main__":
    session = create_session(brokers=1, app_name="sparklog incremental job")
    with (
        tempfile.TemporaryDirectory() as data_dir,
        sparklog.start(session, brokers=1, data_dir=data_dir) as started,
    ):
        main(session, started, Path(data_dir))
    session.stop()
