"""The process with the Spark session: jobs come in on stdin, what they came to goes to stdout.

Owns: the session, with Spark's Kafka package on its class path.  Must not know what is compared.
Run by ``spark_process``; its argument is a comma list of jars.
"""

import os
import pickle
import re
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, BinaryIO

from tests.compat.spark_outcomes import Failure, Job, Outcome, Place, Rows, Stream, Written

#: The tasks of both connectors, side by side.
MASTER = "local[4]"
#: Tests are over before a second compiler has paid off.
QUICK_JVM = "--driver-java-options -XX:TieredStopAtLevel=1 pyspark-shell"


def serve(spark: Any, source: BinaryIO, sink: BinaryIO) -> None:
    """Job after job until there are no more; the formats of a read at the same time.

    A write has to come from this thread: in others Spark does not find a source made in Python.
    """
    with ThreadPoolExecutor() as pool:
        while True:
            try:
                job: Job | Stream = pickle.load(source)
            except EOFError:
                return
            if isinstance(job, Stream):
                pickle.dump([streamed(spark, job)], sink)
                sink.flush()
                continue
            run = map if job.sql else pool.map
            each = partial(outcome, spark, job)
            pickle.dump(list(run(each, job.formats)), sink)
            sink.flush()


def outcome(spark: Any, job: Job, name: str) -> Outcome:
    named = job.named(name)
    try:
        return read(spark, named, name) if job.sql is None else write(spark, named, name)
    except Exception as error:
        return Failure(message=said(str(error)))


def read(spark: Any, job: Job, name: str) -> Rows:
    reader = spark.read.format(name).options(**job.options)
    frame = (reader.schema(job.schema) if job.schema else reader).load()
    rows: dict[Place, list[tuple[Any, ...]]] = defaultdict(list)
    tasks: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for found in frame.selectExpr("*", "spark_partition_id() AS task").collect():
        rows[found.topic, found.partition].append(tuple(map(plain, found[:-1])))
        tasks[found.topic, found.partition, found.task].append(found.offset)
    pieces = [(*key[:2], min(offsets), max(offsets)) for key, offsets in tasks.items()]
    return Rows(schema=frame.schema.json(), rows=dict(rows), pieces=sorted(pieces))


def write(spark: Any, job: Job, name: str) -> Written:
    writer = spark.sql(job.sql).write.format(name).options(**job.options)
    (writer.mode(job.mode) if job.mode else writer).save()
    return Written()


def streamed(spark: Any, job: Stream) -> Written | Failure:
    for name, value in job.settings.items():
        spark.conf.set(name, value)
    try:
        frame = spark.readStream.format("kafka").options(**job.source).load()
        rows = frame.select("key", "value").writeStream.format("kafka").options(**job.sink)
        rows.trigger(availableNow=True).start().awaitTermination()
    except Exception as error:
        return Failure(message=said(str(error)))
    finally:
        for name in job.settings:
            spark.conf.unset(name)
    return Written()


def plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [tuple(map(plain, each)) for each in value]
    return value


def said(text: str) -> str:
    """The message: of an error in Python what follows its traceback, of one in Java its causes."""
    if "Traceback (most recent call last)" in text:
        return " ".join(re.findall(r"^sparklog\.errors\.\w+: .*", text, re.MULTILINE)) or text
    lines = [line.strip() for line in text.splitlines()]
    return " ".join(line for line in lines if not line.startswith("at "))


def session(jars: str) -> Any:
    from pyspark.sql import SparkSession

    from sparklog.session import session_settings

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_SUBMIT_ARGS"] = QUICK_JVM
    builder: Any = SparkSession.builder
    settings = {
        **session_settings(MASTER, "compatibility"),
        "spark.jars": jars,
        "spark.task.maxFailures": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    with os.fdopen(os.dup(1), "wb") as sink:
        os.dup2(2, 1)  # whatever else is printed must not be among the answers
        spark = session(sys.argv[1])
        pickle.dump("ready", sink)
        sink.flush()
        serve(spark, sys.stdin.buffer, sink)
        spark.stop()


if __name__ == "__main__":
    main()
