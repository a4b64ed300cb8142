"""Kill a broker while a producer writes: no acknowledged record is lost.

Run this example with ``python examples/failover.py``.  It runs brokers as plain processes, so it
needs no Java.  It finds these processes through /proc, so it needs Linux.
"""

import os
import signal
import tempfile
import time
from pathlib import Path

from sparklog.client.blocking import BlockingClient
from sparklog.cluster import start_processes
from sparklog.types import OffsetSpec, TopicPartition

TOPIC = TopicPartition("orders", 0)
ROUNDS = 300


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, start_processes(3, data_dir=folder) as cluster:
        # Three brokers keep every record.  It is acknowledged only if at least two are in sync.
        cluster.create_topic("orders", 1, 3, configs={"min.insync.replicas": 2})
        with BlockingClient(cluster.bootstrap_servers) as client, client.producer() as producer:
            longest_s = 0.0
            for number in range(ROUNDS):
                if number == ROUNDS // 2:
                    victim = leader(client)
                    os.kill(process_of(victim, folder), signal.SIGKILL)
                    print(f"killed broker {victim}, which led {TOPIC}")
                began = time.monotonic()
                producer.send("orders", f"order {number}".encode(), partition=0)
                producer.flush()  # returns once the record is acknowledged
                longest_s = max(longest_s, time.monotonic() - began)
            end = client.list_offsets({TOPIC: OffsetSpec.LATEST})[TOPIC].offset
            print(f"broker {leader(client)} leads now; the longest wait was {longest_s:.2f} s")
            print(f"{ROUNDS} records were acknowledged, {end} are there")


def leader(client: BlockingClient) -> int:
    """The node id of the broker that leads the topic's partition."""
    return client.admin.describe_topics(["orders"])["orders"].partitions[0].leader


def process_of(broker_id: int, folder: str) -> int:
    """The id of the process whose standard error is this broker's log."""
    log = f"{folder}/logs/broker-{broker_id}.log"
    for descriptor in Path("/proc").glob("[0-9]*/fd/2"):
        try:
            if os.readlink(descriptor) == log:
                return int(descriptor.parts[2])
        except OSError:
            continue  # the process belongs to another user, or has just ended
    raise LookupError(f"no process writes {log}")


if __name__ == "__main__":
    main()
