"""What a power loss, or the loss of a disk, leaves of the directory of a broker that is dead.

Owns: which bytes go.  Must not know whether they may (``fault_bound``), nor processes.

A killed process alone keeps its page cache, and would pass without replication.  ``cut_to_flushed``
takes from every partition what lies behind a point that is nowhere before the last recovery point
the broker wrote down: what it had flushed by then is durable, of the rest a disk may hold any part.
Topics that promise a flush before they answer must not be in the directory.
"""

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sparklog.errors import DecodeError, KafkaError
from sparklog.executors.log.checkpoint import decode_offsets
from sparklog.executors.log.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    STATS_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    offsets_with,
)
from sparklog.executors.log_dirs.broker_dir import RECOVERY_POINTS
from sparklog.executors.log_dirs.partition_dirs import parse_partition_dir
from sparklog.types import TopicPartition
from sparklog.wire.records.batch import iter_batches

#: Files that say nothing the log does not: a crash may leave them in any state.
_DERIVED = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, STATS_SUFFIX)
_GARBAGE_BYTES_MAX = 300


@dataclass(frozen=True, slots=True)
class Place:
    """A byte of a log: the base offset of its segment, and the position in it."""

    segment: int
    position: int


def cut_to_flushed(log_dir: Path, chance: random.Random) -> dict[TopicPartition, int]:
    """Cut every partition to a random place; the bytes that each lost."""
    flushed = _recovery_points(log_dir)
    lost: dict[TopicPartition, int] = {}
    for partition_dir in sorted(log_dir.iterdir()):
        tp = parse_partition_dir(partition_dir.name) if partition_dir.is_dir() else None
        if tp is not None:
            lost[tp] = cut_partition(partition_dir, flushed.get(tp, 0), chance)
    return lost


def lose_log_dir(log_dir: Path, trash: Path) -> None:
    """The disk is gone at once: the broker's next start finds no directory."""
    trash.mkdir(parents=True, exist_ok=True)
    log_dir.rename(trash / f"{log_dir.name}-{len(list(trash.iterdir()))}")


def cut_partition(partition_dir: Path, recovery_point: int, chance: random.Random) -> int:
    """Cut one partition's log at or behind the recovery point; the bytes that it lost."""
    sizes = {
        base: (partition_dir / file_name(base, LOG_SUFFIX)).stat().st_size
        for base in _bases(partition_dir)
    }
    start = _place_of(partition_dir, list(sizes), recovery_point)
    if start is None:
        return 0
    place = choose_cut(sizes, start, chance)
    end = max(sizes)
    lost = sum(size for base, size in sizes.items() if base > place.segment)
    lost += sizes[place.segment] - place.position
    if not lost:
        return 0
    _damage_derived(partition_dir, recovery_point, place, chance)
    for base in sizes:
        if base > place.segment:
            for suffix in SEGMENT_SUFFIXES:
                (partition_dir / file_name(base, suffix)).unlink(missing_ok=True)
    _cut_file(
        partition_dir / file_name(place.segment, LOG_SUFFIX),
        place.position,
        chance,
        is_last=place.segment == end,
    )
    return lost


def choose_cut(sizes: dict[int, int], start: Place, chance: random.Random) -> Place:
    """A place from ``start`` to the end of the last segment; often one of the last kilobytes."""
    left = sum(size for base, size in sizes.items() if base >= start.segment) - start.position
    kept = chance.randint(max(0, left - 4096) if chance.random() < 0.5 else 0, left)
    position = start.position
    for base in sorted(base for base in sizes if base >= start.segment):
        if kept <= sizes[base] - position:
            return Place(base, position + kept)
        kept -= sizes[base] - position
        position = 0
    raise AssertionError("more bytes to keep than there are")


def _place_of(partition_dir: Path, bases: Sequence[int], recovery_point: int) -> Place | None:
    """Where the first batch that was not flushed begins; None when there is none."""
    below = [base for base in bases if base <= recovery_point]
    for base in sorted(base for base in bases if base >= max(below, default=0)):
        data = (partition_dir / file_name(base, LOG_SUFFIX)).read_bytes()
        with suppress(KafkaError, DecodeError):  # damaged before, and not recovered since
            for header, position in iter_batches(data, partial_tail=True):
                if header.base_offset >= recovery_point:
                    return Place(base, position)
    return None


def _damage_derived(partition_dir: Path, flushed: int, place: Place, chance: random.Random) -> None:
    """Indexes from the cut segment on and snapshots behind the flush: as they are, cut or gone."""
    touched = [
        partition_dir / file_name(base, suffix)
        for base in _bases(partition_dir)
        if base >= place.segment
        for suffix in _DERIVED
    ]
    snapshots = offsets_with([path.name for path in partition_dir.iterdir()], SNAPSHOT_SUFFIX)
    touched += [partition_dir / file_name(at, SNAPSHOT_SUFFIX) for at in snapshots if at > flushed]
    for path in touched:
        what = chance.randrange(3)
        if what == 0:
            path.unlink(missing_ok=True)
        elif what == 1 and path.exists():
            with path.open("r+b") as file:
                file.truncate(chance.randint(0, path.stat().st_size))


def _cut_file(path: Path, position: int, chance: random.Random, *, is_last: bool) -> None:
    """The bytes behind ``position`` are gone, or their blocks are there with other contents."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(position)
        file.seek(position)
        what = chance.randrange(4) if is_last else 0
        if what == 1:
            file.write(bytes(size - position))
        elif what == 2:
            file.write(chance.randbytes(min(size - position, _GARBAGE_BYTES_MAX)))


def _bases(partition_dir: Path) -> list[int]:
    return offsets_with([path.name for path in partition_dir.iterdir()], LOG_SUFFIX)


def _recovery_points(log_dir: Path) -> dict[TopicPartition, int]:
    try:
        return decode_offsets((log_dir / RECOVERY_POINTS).read_bytes())
    except (FileNotFoundError, DecodeError):
        return {}
