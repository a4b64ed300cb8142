"""``python -m benchmarks.journal s3://BUCKET/FOLDER``: the cost of a journal in a bucket.

Creates topics one after another, with the journal in a local folder and in the bucket, in turns.
Prints medians and the worst of a hundred.  Endpoint and credentials come from the environment.

Owns: the measurement.  Must not know how a journal is stored.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from uuid import uuid4

from sparklog.cluster import Cluster, start_processes

TOPICS = 300
TURN = 20


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.journal")
    parser.add_argument("place", help="a folder of a bucket, such as s3://bucket/benchmark")
    place = f"{parser.parse_args().place}/{uuid4()}"
    with (
        tempfile.TemporaryDirectory() as folder,
        start_processes(1, data_dir=Path(folder) / "a") as local,
        start_processes(1, data_dir=Path(folder) / "b", journal_dir=place) as remote,
    ):
        times: dict[str, list[float]] = {"a local folder": [], place: []}
        for turn in range(0, TOPICS, TURN):
            for cluster, name in ((local, "a local folder"), (remote, place)):
                times[name] += [_create(cluster, f"t{turn + n}") for n in range(TURN)]
    for name, taken in times.items():
        taken.sort()
        worst = taken[len(taken) * 99 // 100]
        print(f"{name}: {median(taken):.1f} ms per topic, 99 % below {worst:.1f} ms")


def _create(cluster: Cluster, name: str) -> float:
    began = time.perf_counter()
    cluster.create_topic(name, 1)
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    main()
