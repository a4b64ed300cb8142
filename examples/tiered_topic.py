"""Keep the history of a topic in a bucket, and read it without the brokers.

Run this example with ``python examples/tiered_topic.py``; it needs Java 17 or newer.  A folder
stands for the bucket.  With ``remote_dir="s3://bucket/folder"`` nothing else changes.
"""

import tempfile
import time
from typing import Any

import sparklog
from sparklog.session import create_session

RECORDS = 20_000
#: Small, so that there are many segments to copy, and soon.
SEGMENT_BYTES = 200_000
LOCAL_BYTES_MAX = 3 * SEGMENT_BYTES
COPIED_SECONDS_MAX = 60
#: How often a broker looks for what is to be copied, and for what may leave its disk.
SOON = {"remote.log.manager.task.interval.ms": 200, "log.retention.check.interval.ms": 500}


def main(spark: Any, cluster: sparklog.Cluster) -> None:
    configs = {
        "retention.ms": -1,  # in both tiers together
        "local.retention.bytes": SEGMENT_BYTES,  # in the files of the brokers
        "segment.bytes": SEGMENT_BYTES,  # a segment is copied once it is sealed
    }
    cluster.create_topic("clicks", partitions=1, tiered=True, configs=configs)
    clicks = spark.range(0, RECORDS, 1, 1).selectExpr(
        "rpad(concat('page ', id % 100), 200, ' ') AS value",
        "timestamp_seconds(1700000000 + id) AS timestamp",
    )
    cluster.write(clicks, "clicks", **{"kafka.batch.size": 20_000})

    await_copies(cluster)
    topic = cluster.topic("clicks")
    print(f"{topic.records} clicks, {topic.size_bytes:,} bytes of them in the brokers' files")
    print(f"the remote_dir has {topic.remote_bytes:,} bytes")

    # Spark's tasks read the history from the remote_dir, in parallel, and only the first segment.
    first = cluster.read("clicks").where("timestamp < timestamp_seconds(1700000500)")
    print(f"{first.count()} clicks in the first 500 seconds")
    print(f"{cluster.read('clicks').count()} clicks in both tiers")


def await_copies(cluster: sparklog.Cluster) -> None:
    """Wait until everything but the last segments is in the remote_dir only."""
    end = time.monotonic() + COPIED_SECONDS_MAX
    while cluster.topic("clicks").size_bytes > LOCAL_BYTES_MAX:
        if time.monotonic() > end:
            raise TimeoutError("the segments are not copied")
        time.sleep(0.2)


if __name__ == "__main__":
    session = create_session(brokers=1, app_name="sparklog tiered topic")
    with (
        tempfile.TemporaryDirectory() as data_dir,
        tempfile.TemporaryDirectory() as bucket,
        sparklog.start(
            session, brokers=1, data_dir=data_dir, remote_dir=bucket, settings=SOON
        ) as started,
    ):
        main(session, started)
    session.stop()
