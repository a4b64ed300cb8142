"""``python -m benchmarks.quick``: every ratio in under five minutes.

``--only broker`` (or another part) measures that part alone; parts that take longer are measured
only when they are named.  ``kafka_quick`` is a small piece of ``make bench``: one broker beside
Apache Kafka.  It is left out if Maven cannot fetch Kafka.  Exits with 1 when a figure misses its
goal.
"""

import argparse
import sys
import time
from importlib import import_module

from rich.console import Console

from benchmarks.harness import Row, report

PARTS = ("broker", "partitions", "dataframe", "kafka_quick")
#: Parts that are measured only when ``--only`` names them.
LONG_PARTS = (
    "consumer",
    "scaling",
    "replication",
    "failover",
    "control_plane",
    "groups",
    "aborted",
    "committed_reads",
    "transaction_ids",
    "tiering",
    "tiered_frames",
    "remote_segments",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick")
    parser.add_argument("--only", choices=(*PARTS, *LONG_PARTS), help="measure this part alone")
    only = parser.parse_args().only
    console = Console()
    began = time.monotonic()
    rows: list[Row] = []
    for part in PARTS if only is None else (only,):
        # Imported here, because the DataFrame part brings Spark along.
        rows += import_module(f"benchmarks.{part}").rows(console)
    report(rows, console)
    console.print(f"{time.monotonic() - began:.0f} s")
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
