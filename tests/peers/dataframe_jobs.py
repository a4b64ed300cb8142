"""A Spark application that writes topics of a cluster and reads them again: a process of its own.

Owns: the session.  Must not know whose cluster it is.  Its argument is the jobs in JSON; it prints
what it has read of each topic: the numbers that values begin with, sorted.
"""

import json
import sys
from typing import Any

import sparklog
from sparklog.session import create_session

TASKS = 2


def run(spark: Any, servers: str, topic: str, sql: str) -> list[int]:
    cluster = {"kafka.bootstrap.servers": servers}
    written = spark.sql(sql).write.format("sparklog").options(**cluster, topic=topic)
    written.option("kafka.batch.size", "300000").mode("append").save()
    read = spark.read.format("sparklog").options(**cluster, subscribe=topic).load()
    numbers = read.selectExpr("int(string(value)) AS number").toArrow().column("number")
    return sorted(numbers.to_pylist())


def main() -> None:
    jobs = json.loads(sys.argv[1])
    spark = create_session(f"local[{TASKS}]", app_name="peers")
    try:
        with sparklog.connect(spark, jobs[0]["servers"]):
            print(json.dumps({job["topic"]: run(spark, **job) for job in jobs}))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
