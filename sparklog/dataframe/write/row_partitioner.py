"""The partitions of rows, and the grouping of rows by partition.

Owns: the rules (first the partition column, then the partitioner), and the grouping.  Must not know
the client or Spark.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.client.column_partitioner import (
    NO_PARTITION,
    crc32_column,
    fnv1a_column,
    murmur2_column,
)
from sparklog.dataframe.partitioners import DEFAULT, Hash, Partitioner
from sparklog.errors import ConfigError
from sparklog.plurals import counted
from sparklog.types import MAX_INT32

#: Smallest batch of rows without keys, in bytes: fewer partitions are used instead.
RUN_BYTES_MIN = 64 * 1024

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Rows of a group, in order, that go to one partition."""

    partition: int
    rows: pa.Table


class RowPartitioner:
    """Partitions the groups of one topic; keeps the partition of the next keyless run."""

    def __init__(
        self,
        topic: str,
        partition_count: int,
        first_run: int,
        partitioner: Partitioner = DEFAULT,
    ) -> None:
        """``first_run``: the first partition of keyless rows; random per task, to spread load."""
        self._topic = topic
        self._count = partition_count
        self._partitioner = partitioner
        self._next_run = first_run % partition_count

    def partition(self, group: pa.Table) -> list[PartitionRows]:
        """The group by partition, each row once and in its order.  Raises ConfigError."""
        partition = _column(group, "partition")
        if partition is not None and partition.null_count == len(partition):
            partition = None
        hashed = self._hashed(group)
        if partition is None and hashed is None and self._partitioner.spread == "runs":
            return self._runs(group)
        numbers = np.full(group.num_rows, NO_PARTITION, np.int64) if hashed is None else hashed
        if partition is not None:
            self._apply_column(numbers, partition)
        keyless = np.flatnonzero(numbers == NO_PARTITION)
        if len(keyless):
            numbers[keyless] = self._spread(len(keyless))
        return _by_number(group, numbers)

    def next_partition(self) -> int:
        """The partition of the next piece of keyless rows."""
        found = self._next_run
        self._next_run = (found + 1) % self._count
        return found

    def _hashed(self, group: pa.Table) -> Ints | None:
        """The partitions by key; ``NO_PARTITION`` for rows to spread, None to spread all rows."""
        rule, key = self._partitioner, _column(group, "key")
        if rule.hash is None:
            return None
        if key is None:
            key = pa.nulls(group.num_rows, pa.binary())
        if key.null_count == len(key) and not rule.hashes_null:
            return None
        numbers: Ints = (_hash(rule.hash, key) % np.uint32(self._count)).astype(np.int64)
        if key.null_count and not rule.hashes_null:
            numbers[key.is_null().to_numpy(zero_copy_only=False)] = NO_PARTITION
        if not rule.hashes_empty:
            empty = pc.equal(pc.binary_length(key), 0).fill_null(True)
            numbers[empty.to_numpy(zero_copy_only=False)] = NO_PARTITION
        return numbers

    def _apply_column(self, numbers: Ints, partition: Any) -> None:
        chosen = partition.is_valid().to_numpy(zero_copy_only=False)
        given = partition.drop_null().to_numpy(zero_copy_only=False)
        wrong = given[(given < 0) | (given >= self._count)]
        if len(wrong):
            raise ConfigError(
                f"the column partition has {int(wrong[0])}, but topic {self._topic} has "
                f"{counted(self._count, 'partition')} (0 to {self._count - 1})"
            )
        numbers[chosen] = given

    def _runs(self, group: pa.Table) -> list[PartitionRows]:
        """The runs of neighbouring rows, one per partition: large batches, and no row is copied."""
        runs = min(self._count, max(1, group.nbytes // RUN_BYTES_MIN))
        edges = np.linspace(0, group.num_rows, runs + 1).astype(int)
        pieces = [
            PartitionRows((self._next_run + number) % self._count, group.slice(start, stop - start))
            for number, (start, stop) in enumerate(pairwise(edges))
            if stop > start
        ]
        self._next_run = (self._next_run + len(pieces)) % self._count
        return pieces

    def _spread(self, rows: int) -> Ints:
        """Partitions of keyless rows: neighbours together, or round robin."""
        in_turn = self._partitioner.spread == "round_robin"
        steps = np.arange(rows) if in_turn else np.arange(rows) * self._count // rows
        first = self._next_run
        self._next_run = (first + (rows if in_turn else 1)) % self._count
        return np.asarray((first + steps) % self._count, np.int64)


def _hash(kind: Hash, keys: pa.Array) -> Any:
    """Unsigned hashes, ready for the modulo that the client with this hash uses."""
    if kind == "crc32":
        return crc32_column(keys)
    if kind == "fnv1a":
        return fnv1a_column(keys)
    return murmur2_column(keys) & np.uint32(MAX_INT32)


def split_by_topic(group: pa.Table) -> list[tuple[str, pa.Table]]:
    """The group by its column ``topic``.  Raises ConfigError for a row without a topic."""
    topics = _column(group, "topic")
    assert topics is not None
    if topics.null_count:
        raise ConfigError("a row has a null topic: fill the column topic, or give option('topic')")
    encoded = topics.dictionary_encode()
    names: Sequence[str] = encoded.dictionary.to_pylist()
    pieces = _by_number(group, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64))
    return [(names[piece.partition], piece.rows) for piece in pieces]


def _by_number(group: pa.Table, numbers: Ints) -> list[PartitionRows]:
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    if len(found) == 1:
        return [PartitionRows(int(found[0]), group)]
    moved = group.take(pa.array(order))
    stops = [*starts[1:], len(order)]
    return [
        PartitionRows(int(number), moved.slice(int(start), int(stop - start)))
        for number, start, stop in zip(found, starts, stops, strict=True)
    ]


def _column(group: pa.Table, name: str) -> Any:
    """The column as one contiguous array; None if the group has no such column."""
    if name not in group.column_names:
        return None
    column = group.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks() if column.num_chunks else pa.array([], column.type)
