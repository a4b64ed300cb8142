"""What 100,000 remote segments cost the process that keeps the manifests of one broker.

Owns: the manifests, and the process that reads them as a start does.  Must not know a broker.

``python -m benchmarks.remote_segments FOLDER`` is that process.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from typing import Final
from uuid import UUID

import psutil
from rich.console import Console

from benchmarks.harness import Row
from sparklog.plurals import counted
from sparklog.remote_log import names
from sparklog.remote_log.manifest_log import ManifestLog
from sparklog.remote_log.manifest_records import SegmentAdded
from sparklog.remote_log.remote_segment import EpochStart, Part, PartName, RemoteSegment
from sparklog.storage_backends.registry import open_backend

TOPIC_ID: Final = UUID(int=1)
SEGMENTS: Final = 100_000
#: Manifests, and segments of each: a broker with many partitions, and one with a single one.
SHAPES: Final = ((100, SEGMENTS // 100), (1, SEGMENTS))
PER_COMMIT: Final = 500
OFFSETS: Final = 10_000
LOOKUPS: Final = 10_000
EPOCH: Final = 3
#: Sizes of the parts of an indexes object, as those of a segment of 16 MiB.
PARTS: Final = dict.fromkeys(PartName, 4_000)


def rows(console: Console) -> list[Row]:
    """Return three rows for each shape; there are no goals."""
    found: list[Row] = []
    for partitions, segments in SHAPES:
        shape = f"{counted(partitions, 'manifest')} of {segments:,} segments"
        with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as folder:
            console.print(f"remote segments: {shape}")
            for partition in range(partitions):
                _write(folder, partition, segments)
            command = [sys.executable, "-m", "benchmarks.remote_segments", folder, str(partitions)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        figures = json.loads(done.stdout)
        found += [
            Row(what=f"{shape}: {what}", unit=unit, ours=figures[unit], base=None, asked=None)
            for what, unit in (
                ("a start reads them in", "s"),
                ("their memory", "MB"),
                ("the lookup of an offset", "us"),
            )
        ]
    return found


def _write(folder: str, partition: int, segments: int) -> None:
    log = ManifestLog(open_backend(folder), TOPIC_ID, partition)
    log.begin_leadership(EPOCH, "writer", 0)
    for first in range(0, segments, PER_COMMIT):
        added = [_segment(number) for number in range(first, min(first + PER_COMMIT, segments))]
        log.commit([SegmentAdded(segment=each) for each in added], first)


def _segment(number: int) -> RemoteSegment:
    parts, offset = {}, 0
    for name, size in PARTS.items():
        parts[name] = Part(offset, size, number * 2654435761 % 2**32)
        offset += size
    base = number * OFFSETS
    return RemoteSegment(
        segment_id=names.segment_id(base, EPOCH, number, number.to_bytes(8, "big")),
        base_offset=base,
        next_offset=base + OFFSETS,
        log_size=16 * 1024 * 1024,
        max_timestamp=1_700_000_000_000 + number,
        leader_epochs=(EpochStart(EPOCH, base),),
        parts=parts,
    )


def _read(folder: str, partitions: int) -> dict[str, float]:
    """What a start does: it reads the manifests, and then looks offsets up."""
    store = open_backend(folder)
    before, began = psutil.Process().memory_info().rss, time.perf_counter()
    manifests = [ManifestLog(store, TOPIC_ID, each).load() for each in range(partitions)]
    seconds = time.perf_counter() - began
    memory = psutil.Process().memory_info().rss - before
    end = SEGMENTS // partitions * OFFSETS
    chance = random.Random(1)
    asked = [(chance.choice(manifests), chance.randrange(end)) for _ in range(LOOKUPS)]
    began = time.perf_counter()
    for manifest, offset in asked:
        assert manifest.segment_at(offset) is not None
    microseconds = (time.perf_counter() - began) / LOOKUPS * 1e6
    return {"s": seconds, "MB": memory / 1e6, "us": microseconds}


if __name__ == "__main__":
    print(json.dumps(_read(sys.argv[1], int(sys.argv[2]))))
