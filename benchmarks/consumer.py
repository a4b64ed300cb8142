"""One ``sparklog.Consumer``, with and without fetches ahead of the application.

Owns: the records, and the ways to read them.  Must not know how a row is shown.

Every way reads the same topic, from its first record to its last.  The application of a row either
does nothing with the records, or works on them for as long as it takes to add up their bytes.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

import sparklog
from benchmarks.harness import Row, in_turns
from benchmarks.servers import serve
from sparklog.client.blocking import BlockingClient
from sparklog.types import Endpoint, TopicPartition
from sparklog.wire.records.builder import Record, encode_batch

TOPIC = "bench-consumer"
PARTITIONS = 4
#: Records that ``poll_arrow`` reads; single records are slower, so they are fewer.
ROWS = 1_000_000
SINGLE_ROWS = 100_000
VALUE_BYTES = 100
_BATCH_ROWS = 1000
_ROUNDS = 5


def rows(console: Console) -> list[Row]:
    """Return every row.  The console shows what is being measured."""
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="sparklog-bench-") as name,
        serve(Path(name) / "data", brokers=1) as served,
    ):
        console.print(f"consumer: writing {ROWS:,} records")
        _fill(served.bootstrap)
        for what, read in WAYS.items():
            console.print(f"consumer: {what}")
            speed = partial(_speed, str(served.bootstrap), read)
            ours, base = in_turns(partial(speed, ahead=True), partial(speed, ahead=False), _ROUNDS)
            found.append(
                Row(
                    what=f"{what}, beside a consumer that fetches nothing ahead",
                    unit="k records/s",
                    ours=ours,
                    base=base,
                    asked=None,
                )
            )
    return found


def poll_arrow(consumer: sparklog.Consumer) -> int:
    """Record batches, with which nothing is done."""
    count = 0
    while count < ROWS:
        count += consumer.poll_arrow(5).num_rows
    return count


def poll_arrow_and_work(consumer: sparklog.Consumer) -> int:
    """Record batches, whose values are sorted."""
    from pyarrow import compute

    count = 0
    while count < ROWS:
        batch = consumer.poll_arrow(5)
        compute.sort_indices(batch.column("value"))
        count += batch.num_rows
    return count


def poll(consumer: sparklog.Consumer) -> int:
    """Lists of single records."""
    count = 0
    while count < SINGLE_ROWS:
        count += len(consumer.poll(5))
    return count


def iterate(consumer: sparklog.Consumer) -> int:
    """Single records."""
    count = 0
    for _ in consumer:
        count += 1
        if count == SINGLE_ROWS:
            break
    return count


WAYS: dict[str, Callable[[sparklog.Consumer], int]] = {
    "poll_arrow": poll_arrow,
    "poll_arrow, and sorting the values": poll_arrow_and_work,
    "poll": poll,
    "iteration": iterate,
}


def _speed(bootstrap: str, read: Callable[[sparklog.Consumer], int], *, ahead: bool) -> float:
    """Thousands of records a second."""
    options: dict[str, Any] = {} if ahead else {"prefetch_max_bytes": 0}
    with sparklog.Consumer(bootstrap, **options) as consumer:
        consumer.assign({TopicPartition(TOPIC, number): 0 for number in range(PARTITIONS)})
        began = time.perf_counter()
        count = read(consumer)
        return count / (time.perf_counter() - began) / 1000


def _fill(bootstrap: Endpoint) -> None:
    records = [
        Record(key=b"%015d" % n, value=b"%0*d" % (VALUE_BYTES, n * 7919))
        for n in range(_BATCH_ROWS)
    ]
    batch = encode_batch(records)
    with BlockingClient([bootstrap], client_id="bench", timeout_s=300) as client:
        client.admin.create_topic(TOPIC, PARTITIONS)
        for number in range(ROWS // _BATCH_ROWS):
            client.produce(TopicPartition(TOPIC, number % PARTITIONS), [batch], acks=1)
