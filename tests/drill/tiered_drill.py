"""The life and death of a tiered topic on ``local-cluster``, as an operator may see it in a year.

Owns: the story.  A topic with small segments is written while brokers, executors, helper processes
and the bucket die; it is waited for until the disks hold a tenth of it; librdkafka, Kafka's
consumer for Java and a DataFrame read all of it, equal, while brokers die; then every process and
every disk is lost, and the cluster is restored from its journal and the bucket.
"""

import argparse
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import Message, Producer

import sparklog
from sparklog.session import create_session
from tests.chaos.cluster_processes import ClusterProcesses, send
from tests.chaos.journal_watch import JournalWatch
from tests.chaos.troubles import dealt
from tests.drill.measures import Measure, measure_of, prefix_of, value_of
from tests.drill.readers import with_dataframe, with_java, with_librdkafka
from tests.spark.launcher_rig import bytes_out
from tests.support.s3_server import S3Server, require_binary
from tests.support.waiting import wait_for

BROKERS: Final = 3
PARTITIONS: Final = 4
#: Executors of one core each: three brokers, and the queries.
MASTER: Final = "local-cluster[4,1,1024]"
TOPIC: Final = "history"
VALUE_BYTES: Final = 1_000
#: With less, LOCAL_SHARE of a partition is hardly more than an active segment of the smallest size.
MEGABYTES_MIN: Final = 10.0
SEGMENT_BYTES_MIN: Final = 100_000
#: A batch must fit into the smallest segments.
BATCH_BYTES: Final = 60_000
#: The share of the records that the disks hold in the end.
LOCAL_SHARE: Final = 0.10
#: What a restore brings back at least.
RESTORED_SHARE: Final = 0.9
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "6000",
    "broker.replacement.delay.ms": "1000",
    "replica.lag.time.max.ms": "2000",
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "0",
}
#: What dies, each as often as the others: a drill of any size has every kind of trouble.
TROUBLES: Final = ("brokers", "executors", "helpers", "buckets")
#: Each of TROUBLES comes at most once per so many megabytes; a large drill ends before that.
MEGABYTES_PER_ROUND: Final = 10.0
#: Seconds between two troubles, and for which the bucket is away.
CALM_S: Final = (1.0, 4.0)
AWAY_S: Final = 3.0
#: Seconds between two looks for a cluster that is whole.
LOOK_S: Final = 0.05
HEAL_SECONDS_MAX: Final = 180.0
TIER_SECONDS_MAX: Final = 900.0


@dataclass(slots=True)
class Drill:
    """The folders, the bucket and what has been acknowledged."""

    folder: Path
    megabytes: float
    bucket: S3Server
    chance: random.Random
    began_s: float = field(default_factory=time.monotonic)
    checksums: list[list[int]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    failures: list[str] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    @property
    def places(self) -> dict[str, Any]:
        return {
            "data_dir": self.data_dir,
            "journal_dir": self.folder / "journal",
            "remote_dir": "s3://segments/log",
            "storage_options": self.bucket.options,
            "settings": SETTINGS,
        }

    @property
    def expected(self) -> dict[int, Measure]:
        return {number: measure_of(each) for number, each in enumerate(self.checksums)}

    def has_had_every_trouble(self) -> bool:
        """Whether every kind of trouble has come, or a failure has ended them."""
        return bool(self.failures) or all(self.counters[kind] for kind in TROUBLES)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began_s:6.1f} s  {text}", flush=True)

    def local_bytes(self) -> int:
        """Bytes of the topic's logs on the disks of all brokers."""
        total = 0
        for path in self.data_dir.rglob(f"{TOPIC}-*/*.log"):
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue
        return total


def run(drill: Drill) -> None:
    """The whole story.  Raises AssertionError for the first thing that is wrong."""
    drill.bucket.make_bucket("segments")
    spark = create_session(MASTER, BROKERS, "drill")
    try:
        with sparklog.start(spark, BROKERS, **drill.places) as cluster:
            _create_topic(drill, cluster)
            _live(drill, spark, cluster.bootstrap_servers)
            _kill_everything()
    finally:
        spark.stop()
    shutil.rmtree(drill.data_dir)
    drill.say("every process and every disk is gone")
    _restore(drill)


def _create_topic(drill: Drill, cluster: Any) -> None:
    partition_bytes = int(drill.megabytes * 1e6) // PARTITIONS
    segment_bytes = max(partition_bytes // 250, SEGMENT_BYTES_MIN)
    # Local retention leaves up to one segment more than its limit.
    local_bytes = int(
        min(partition_bytes * LOCAL_SHARE * 0.8, partition_bytes * LOCAL_SHARE - segment_bytes)
    )
    cluster.create_topic(
        TOPIC,
        PARTITIONS,
        replication_factor=BROKERS,
        tiered=True,
        configs={
            "min.insync.replicas": "2",
            "segment.bytes": str(segment_bytes),
            "local.retention.bytes": str(local_bytes),
            "retention.ms": "-1",
        },
    )


def _live(drill: Drill, spark: Any, bootstrap: str) -> None:
    """Write, wait for the bucket, and read; something dies all the time."""
    with _troubles(drill):
        _write(drill, bootstrap)
        written = sum(map(len, drill.checksums))
        drill.say(f"{written:,} records of {VALUE_BYTES} bytes are acknowledged")
        bound = BROKERS * drill.megabytes * 1e6 * LOCAL_SHARE
        wait_for(lambda: drill.local_bytes() < bound, TIER_SECONDS_MAX, "the disks stay full")
        drill.say(f"the disks hold {drill.local_bytes() / BROKERS / 1e6:.1f} MB of each replica")
        assert drill.failures == [], drill.failures[:3]
        readers: dict[str, Callable[[], dict[int, Measure]]] = {
            "librdkafka": lambda: with_librdkafka(bootstrap, TOPIC, PARTITIONS),
            "Java": lambda: with_java(bootstrap, TOPIC, PARTITIONS),
            "DataFrame": lambda: with_dataframe(spark, bootstrap, TOPIC),
        }
        for name, read in readers.items():
            found = read()
            assert found == drill.expected, f"{name}: {found}, not {drill.expected}"
            drill.say(f"{name} has read all of it")
        wait_for(drill.has_had_every_trouble, HEAL_SECONDS_MAX, "a kind of trouble never came")


def _write(drill: Drill, bootstrap: str) -> None:
    """One idempotent producer.  What is acknowledged counts, in the order of its offsets."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": BATCH_BYTES,
            "delivery.timeout.ms": 300_000,
            "queue.buffering.max.kbytes": 64 * 1024,
            "topic.metadata.refresh.interval.ms": 1_000,
            "log_level": 0,
        }
    )

    def delivered(error: object, message: Message) -> None:
        if error is not None:
            drill.failures.append(str(error))
            return
        partition, value = message.partition(), message.value()
        assert partition is not None
        assert value is not None
        done = drill.checksums[partition]
        if message.offset() != len(done):
            drill.failures.append(f"{partition}: offset {message.offset()} after {len(done)}")
        done.append(zlib.crc32(value))

    for number in range(int(drill.megabytes * 1e6 / VALUE_BYTES)):
        value, partition = value_of(number, VALUE_BYTES), number % PARTITIONS
        while True:
            try:
                producer.produce(TOPIC, value, partition=partition, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(300) == 0


@contextmanager
def _troubles(drill: Drill) -> Iterator[None]:
    """One thing dies after the other, each when all replicas are in sync again."""
    over = threading.Event()
    journal = JournalWatch(drill.folder / "journal", lambda _: None)
    processes = ClusterProcesses(drill.data_dir)
    thread = threading.Thread(target=_trouble, args=(drill, journal, processes, over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert drill.failures == [], drill.failures[:3]
    told = ", ".join(f"{count} {name}" for name, count in sorted(drill.counters.items()))
    drill.say(f"killed: {told}")


def _trouble(
    drill: Drill, journal: JournalWatch, processes: ClusterProcesses, over: threading.Event
) -> None:
    rounds = math.ceil(drill.megabytes / MEGABYTES_PER_ROUND)
    kinds = dealt(dict.fromkeys(TROUBLES, 1), drill.chance)
    for kind in islice(kinds, rounds * len(TROUBLES)):
        if over.wait(drill.chance.uniform(*CALM_S)):
            return
        end = time.monotonic() + HEAL_SECONDS_MAX
        while not (journal.is_whole() and _strike(drill, kind, processes, over)):
            if over.wait(LOOK_S):
                return
            if time.monotonic() > end:
                missing = "replicas are missing" if not journal.is_whole() else f"no {kind}"
                drill.failures.append(f"{missing} {HEAL_SECONDS_MAX} s after a kill")
                return
        drill.counters[kind] += 1


def _strike(drill: Drill, kind: str, processes: ClusterProcesses, over: threading.Event) -> bool:
    """Whether the victim was there to be killed; the bucket is back on return."""
    if kind == "buckets":
        drill.bucket.stop()
        over.wait(AWAY_S)
        drill.bucket.start()
        return True
    find = {
        "brokers": processes.broker,
        "executors": processes.executor,
        "helpers": processes.tiering,
    }
    found = find[kind](drill.chance.randint(1, BROKERS))
    return found is not None and send(found, signal.SIGKILL)


def _kill_everything() -> None:
    """All children but the JVM of the driver, which Spark's ``stop`` wants to talk to."""
    for child in psutil.Process().children(recursive=True):
        try:
            is_ours = any(word.startswith("sparklog.") for word in child.cmdline())
        except psutil.Error:
            continue
        if is_ours:
            send(child, signal.SIGKILL)


def _restore(drill: Drill) -> None:
    spark = create_session(MASTER, BROKERS, "drill")
    try:
        restored = sparklog.restore(spark, **drill.places)
        with restored.cluster as cluster:
            drill.say("the cluster is restored")
            found = with_librdkafka(cluster.bootstrap_servers, TOPIC, PARTITIONS)
            for number, measure in found.items():
                written = drill.checksums[number]
                assert prefix_of(written, measure), f"partition {number}: {measure}"
                share = measure.records / len(written)
                assert share >= RESTORED_SHARE, f"partition {number}: only {share:.0%} are back"
            back, all_ = sum(m.records for m in found.values()), sum(map(len, drill.checksums))
            drill.say(f"{back:,} of {all_:,} records are back")
            _check_direct_read(drill, spark, cluster, found)
    finally:
        spark.stop()


def _check_direct_read(
    drill: Drill, spark: Any, cluster: Any, expected: dict[int, Measure]
) -> None:
    """A DataFrame reads all records of the restored topic from the bucket: the disks have none.

    No process dies meanwhile, so the counters of the brokers say whether they have sent records.
    """
    before = bytes_out(cluster, TOPIC)
    found = with_dataframe(spark, cluster.bootstrap_servers, TOPIC)
    assert found == expected, f"DataFrame: {found}, not {expected}"
    sent = bytes_out(cluster, TOPIC) - before
    assert sent == 0, f"the brokers have sent {sent:,} bytes of records in the bucket"
    drill.say("a DataFrame has read all of them from the bucket")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tiered_drill.py", description=__doc__)
    parser.add_argument("--megabytes", type=float, default=1_000.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.megabytes < MEGABYTES_MIN:
        parser.error(
            f"--megabytes must be at least {MEGABYTES_MIN:.0f}: smaller logs stay on the disks"
        )
    folder = Path(tempfile.mkdtemp(prefix="sparklog-drill-"))
    bucket = S3Server(require_binary(), folder / "s3")
    drill = Drill(folder, options.megabytes, bucket, random.Random(options.seed))
    try:
        run(drill)
    finally:
        bucket.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    try:
        status = main()
    except Exception:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    os._exit(status)  # threads of Spark's gateway may be left
