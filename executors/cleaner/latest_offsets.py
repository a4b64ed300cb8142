"""The latest offset of every key in a slice of the dirty head, exactly.

Owns: the keys and offsets, their bound in memory, and whether a record is the latest of its key.
Must not know batches or files.

Kafka keeps hashes of keys; a collision would lose a record, so the keys are kept whole here.  They
are grouped by Arrow, one part of them at a time, because grouping takes several times the memory of
the grouped keys.  Records inside the slice are looked up by their offset: the map holds the offset
of every record that is the latest of its key.  Records below the slice are looked up by key.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.wire.records.varints import Ints

Mask = npt.NDArray[np.bool_]

#: Grouping takes up to so many times the bytes of a part besides the part itself [measured]: in the
#: hash table, which doubles when it grows, and in the result.
_COPIES: Final = 5
#: The parts, as bits of a number.
_PART_BITS: Final = 4
#: An array of keys has 32 bits for their ends.
_PART_BYTES_MAX: Final = 1 << 30
#: The bytes of a key that choose its part: distances from its end, and from its middle.
_FROM_END: Final = (1, 2, 3, 4)
_FROM_MIDDLE: Final = (0, 1)
_FACTOR, _MIX = np.uint32(31), np.uint32(0x9E3779B1)


class _Part:
    """Some of the keys, with their offsets: several arrays before ``group``, one array after it."""

    __slots__ = ("_is_grouped", "bytes", "keys", "offsets")

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self.offsets: list[Ints] = []
        self.bytes = 0
        self._is_grouped = True

    def add(self, keys: Any, offsets: Ints) -> None:
        self.keys.append(keys)
        self.offsets.append(offsets)
        self.bytes += keys.nbytes + offsets.nbytes
        self._is_grouped = False

    def group(self) -> None:
        """Keep the last offset of each key."""
        if self._is_grouped:
            return
        table = pa.table(
            {"key": pa.chunked_array(self.keys), "offset": np.concatenate(self.offsets)}
        )
        self.keys, self.offsets = [], []
        grouped = table.group_by("key", use_threads=False).aggregate([("offset", "max")])
        keys = grouped.column("key").combine_chunks()
        offsets = grouped.column("offset_max").to_numpy()
        self.keys, self.offsets = [keys], [offsets]
        self.bytes = keys.nbytes + offsets.nbytes
        self._is_grouped = True


class LatestOffsets:
    """The map from keys to latest offsets.

    Call ``add`` in the order of offsets, then ``finish``, then the lookups.  The map takes at most
    about ``memory_bytes``.
    """

    def __init__(self, first_offset: int, memory_bytes: int) -> None:
        self.first_offset = first_offset
        self._memory_bytes = memory_bytes
        self._parts = [_Part() for _ in range(1 << _PART_BITS)]
        self._latest: Ints = np.empty(0, np.int64)

    def __len__(self) -> int:
        """The number of keys, after ``finish``."""
        return len(self._latest)

    @property
    def key_bytes(self) -> int:
        """The memory of the keys, after ``finish``."""
        return sum(part.bytes for part in self._parts)

    @property
    def is_full(self) -> bool:
        """Whether the slice must end here."""
        if self._load() <= 1:
            return False
        self._group()
        # Less room than a quarter would be used up, and grouped again, too soon.
        return self._load() > 0.75

    def add(self, keys: Any, offsets: Ints) -> None:
        """Add records: a binary array without nulls, and their offsets."""
        for part, rows in self._divide(keys):
            part.add(keys.take(pa.array(rows)), offsets[rows])

    def finish(self) -> None:
        """Group the keys, because no more records follow."""
        self._group()
        found = [offsets for part in self._parts for offsets in part.offsets]
        if found:
            self._latest = np.sort(np.concatenate(found))
        for part in self._parts:
            part.offsets = []

    def hold(self, offsets: Ints) -> Mask:
        """For each record inside the slice, whether it is the latest of its key."""
        if not len(self._latest):
            return np.ones(len(offsets), np.bool_)
        return _are_in(offsets, self._latest)

    def supersede(self, keys: Any) -> Mask:
        """For each record below the slice, whether the slice has a later record of its key."""
        found = np.zeros(len(keys), np.bool_)
        for part, rows in self._divide(keys):
            if part.keys:
                wanted = keys.take(pa.array(rows))
                known = pc.is_in(wanted, value_set=part.keys[0])
                found[rows] = known.to_numpy(zero_copy_only=False)
        return found

    def _divide(self, keys: Any) -> Iterator[tuple[_Part, Ints]]:
        """The parts of these keys, and the rows of the keys in the order of the parts."""
        if not len(keys):
            return
        numbers = _part_numbers(keys)
        order = np.argsort(numbers, kind="stable")
        edges = np.searchsorted(numbers[order], np.arange(len(self._parts) + 1))
        for part, (start, end) in zip(self._parts, pairwise(edges.tolist()), strict=True):
            if start < end:
                yield part, order[start:end]

    def _group(self) -> None:
        for part in self._parts:
            part.group()

    def _load(self) -> float:
        """The share of the memory that grouping would need."""
        largest = max(part.bytes for part in self._parts)
        needed = sum(part.bytes for part in self._parts) + _COPIES * largest
        return max(needed / self._memory_bytes, largest / _PART_BYTES_MAX)


def _part_numbers(keys: Any) -> npt.NDArray[np.uint8]:
    """The part of each key, by a function of its bytes that spreads keys evenly."""
    _, edges, data = keys.buffers()
    ends = np.frombuffer(edges, np.int32, len(keys) + 1, keys.offset * 4)
    start, end = ends[:-1], ends[1:]
    mixed = (end - start).astype(np.uint32)
    if data is not None and data.size:
        octets = np.frombuffer(data, np.uint8)
        places = [end - distance for distance in _FROM_END]
        places += [(start + (end - start) // 2) + distance for distance in _FROM_MIDDLE]
        for place in places:
            is_inside = (place >= start) & (place < end)
            picked = octets.take(np.where(is_inside, place, 0))
            mixed = mixed * _FACTOR + np.where(is_inside, picked, 0)
    found: npt.NDArray[np.uint8] = (mixed * _MIX >> np.uint32(32 - _PART_BITS)).astype(np.uint8)
    return found


def _are_in(offsets: Ints, latest: Ints) -> Mask:
    """Whether each offset is one of ``latest``, which is sorted."""
    at = np.minimum(np.searchsorted(latest, offsets), len(latest) - 1)
    found: Mask = latest[at] == offsets
    return found
