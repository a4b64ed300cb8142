"""A partition's files on their way from one broker's directory into another's."""

import shutil
from pathlib import Path

from sparklog.wire.records.batch import iter_batches
from tests.support.waiting import wait_for

#: Says which topic id a partition directory belongs to, and stays.
TOPIC_ID = "partition.metadata"


def move(source: Path, target: Path) -> None:
    """All files but the topic id, in place of those that are there."""
    for path in target.iterdir():
        if path.name != TOPIC_ID:
            path.unlink()
    for path in source.iterdir():
        if path.name != TOPIC_ID:
            shutil.copy(path, target)


def await_markers(partition_dir: Path, count: int) -> None:
    """Wait until so many transactions have their ends in the log.

    A coordinator answers before it writes them.
    """
    wait_for(lambda: _markers(partition_dir) == count)


def _markers(partition_dir: Path) -> int:
    logs = [path.read_bytes() for path in partition_dir.glob("*.log")]
    return sum(
        header.is_control for data in logs for header, _ in iter_batches(data, partial_tail=True)
    )


def log_of(partition_dir: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(partition_dir.glob("*.log")))
