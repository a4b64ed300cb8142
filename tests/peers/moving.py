"""A partition's files on their way from one broker's folder into another's."""

import shutil
from pathlib import Path

#: Says which topic id a folder belongs to, and stays.
TOPIC_ID = "partition.metadata"


def move(source: Path, target: Path) -> None:
    """All files but the topic id, in place of those that are there."""
    for path in target.iterdir():
        if path.name != TOPIC_ID:
            path.unlink()
    for path in source.iterdir():
        if path.name != TOPIC_ID:
            shutil.copy(path, target)


def log_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
