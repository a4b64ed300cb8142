"""``python -m benchmarks.beside_kafka``: Apache Kafka and sparklog in turns, in one run.

Needs Maven once, to fetch Kafka and Spark's package for it, and Java.  ``--only clients`` or
``--only dataframes`` measures one half; ``--rows``, ``--messages``, ``--rounds`` and
``--latency-seconds`` say how much is moved.  Exits with 1 when a figure misses what is asked.
"""

import argparse
import sys
import time
from importlib import import_module

from rich.console import Console

from benchmarks.harness import Row, report
from benchmarks.kafka_nodes import HEAP
from benchmarks.scale import Scale

PARTS = {"clients": "kafka_clients", "dataframes": "kafka_dataframes"}


def main() -> int:
    usual = Scale()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside_kafka")
    parser.add_argument("--only", choices=tuple(PARTS), help="measure this half alone")
    parser.add_argument("--rows", type=int, default=usual.rows)
    parser.add_argument("--messages", type=int, default=usual.messages, help="of 100 bytes")
    parser.add_argument("--rounds", type=int, default=usual.rounds)
    parser.add_argument("--latency-seconds", type=float, default=usual.latency_seconds)
    given = parser.parse_args()
    scale = Scale(
        rows=given.rows,
        messages=given.messages,
        rounds=given.rounds,
        latency_seconds=given.latency_seconds,
    )
    console = Console()
    began = time.monotonic()
    rows: list[Row] = []
    for part in PARTS if given.only is None else (given.only,):
        # Only here, because DataFrames bring Spark along.
        rows += import_module(f"benchmarks.{PARTS[part]}").rows(console, scale)
    report(rows, console)
    console.print(f"{scale}; Kafka with a heap of {HEAP} a node", highlight=False)
    console.print(f"{time.monotonic() - began:.0f} s")
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
