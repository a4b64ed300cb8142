"""Partitions of the keys of a column: the hashes of Kafka's clients, in NumPy.

Owns: Java's murmur2 (``org.apache.kafka.common.utils.Utils``), librdkafka's CRC-32 and FNV-1a
(``rdcrc32.h``, ``rdfnv1a.c``), and the mapping of Arrow columns to partitions.  Must not know
producers or clusters.  Pure.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.client.partitioner import MURMUR2_M, MURMUR2_SEED, POSITIVE

_CRC_SEED: Final = 0xFFFFFFFF
#: Marks rows without a key in the result of ``partitions_of_keys``.
NO_PARTITION: Final = -1

UInt32s = npt.NDArray[np.uint32]
Int32s = npt.NDArray[np.int32]


def partitions_of_keys(keys: pa.Array, partition_count: int) -> Int32s:
    """Partitions for a binary (or string) Arrow array; ``NO_PARTITION`` where the key is null."""
    hashes = murmur2_column(keys)
    partitions = ((hashes & np.uint32(POSITIVE)) % np.uint32(partition_count)).astype(np.int32)
    if keys.null_count:
        partitions[keys.is_null().to_numpy(zero_copy_only=False)] = NO_PARTITION
    return partitions


def murmur2_column(keys: pa.Array) -> UInt32s:
    """The hash of every row of a binary or string array; null hashes as the empty key."""
    data, starts, sizes = _layout(keys)
    h = np.uint32(MURMUR2_SEED) ^ sizes.astype(np.uint32)
    # Longest rows first: the rows that still have a word are always a prefix.
    order = np.argsort(-sizes, kind="stable")
    sorted_starts, words = starts[order], sizes[order] >> 2
    hs = h[order]
    word_at = _unaligned_words(data)
    m = np.uint32(MURMUR2_M)
    most = int(words[0]) if len(words) else 0
    counts = np.searchsorted(-words, -np.arange(1, most + 1), side="right")
    for index, count in enumerate(counts):
        k = word_at[sorted_starts[:count] + 4 * index] * m
        k ^= k >> np.uint32(24)
        k *= m
        part = hs[:count]
        part *= m
        part ^= k
    h[order] = hs
    return _finish(h, data, starts, sizes)


def crc32_column(keys: pa.Array) -> UInt32s:
    """librdkafka's ``consistent``: zlib's CRC-32 of every row; null hashes as the empty key."""

    def step(h: UInt32s, byte: UInt32s) -> UInt32s:
        found: UInt32s = _CRC_TABLE[(h ^ byte) & np.uint32(0xFF)] ^ (h >> np.uint32(8))
        return found

    return ~_by_bytes(keys, _CRC_SEED, step)


def fnv1a_column(keys: pa.Array) -> UInt32s:
    """librdkafka's ``fnv1a``: the absolute value of the signed hash, as in Sarama."""

    def step(h: UInt32s, byte: UInt32s) -> UInt32s:
        return (h ^ byte) * np.uint32(0x01000193)

    signed = _by_bytes(keys, 0x811C9DC5, step).view(np.int32)
    return np.abs(signed.astype(np.int64)).astype(np.uint32)


def _by_bytes(keys: pa.Array, start: int, step: Callable[[UInt32s, UInt32s], UInt32s]) -> UInt32s:
    """Fold the bytes of every row into its hash, one byte of all rows at a time."""
    data, starts, sizes = _layout(keys)
    order = np.argsort(-sizes, kind="stable")  # longest first, as in ``murmur2_column``
    sorted_starts = starts[order]
    hs = np.full(len(sizes), start, np.uint32)
    most = int(sizes[order[0]]) if len(sizes) else 0
    counts = np.searchsorted(-sizes[order], -np.arange(1, most + 1), side="right")
    for index, count in enumerate(counts):
        hs[:count] = step(hs[:count], data[sorted_starts[:count] + index].astype(np.uint32))
    h = np.empty_like(hs)
    h[order] = hs
    return h


def _crc_table() -> UInt32s:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1)
    return table.astype(np.uint32)


_CRC_TABLE: Final = _crc_table()


def _finish(
    h: UInt32s, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: Any
) -> UInt32s:
    m = np.uint32(MURMUR2_M)
    rest = sizes & 3
    ends = starts + (sizes - rest)
    for index in (2, 1, 0):
        has = np.flatnonzero(rest > index)
        if len(has):
            h[has] ^= data[ends[has] + index].astype(np.uint32) << np.uint32(8 * index)
    has = np.flatnonzero(rest)
    h[has] *= m
    h ^= h >> np.uint32(13)
    h *= m
    h ^= h >> np.uint32(15)
    return h


def _layout(
    keys: pa.Array,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The bytes of all rows, and the start and length of each row."""
    if pa.types.is_large_binary(keys.type) or pa.types.is_large_string(keys.type):
        kind: Any = np.int64
    elif pa.types.is_binary(keys.type) or pa.types.is_string(keys.type):
        kind = np.int32
    else:
        raise TypeError(f"keys are {keys.type}; expected binary or string")
    _, offset_buffer, data_buffer = keys.buffers()
    count = len(keys)
    if offset_buffer is None or not count:
        none = np.zeros(count, np.int64)
        return np.zeros(0, np.uint8), none, none
    item = np.dtype(kind).itemsize
    offsets = np.frombuffer(offset_buffer, kind, count + 1, keys.offset * item).astype(np.int64)
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    sizes = np.diff(offsets)
    if keys.null_count:
        sizes[keys.is_null().to_numpy(zero_copy_only=False)] = 0
    return data, offsets[:-1], sizes


def _unaligned_words(data: npt.NDArray[np.uint8]) -> UInt32s:
    """``result[i]``: the little-endian 32-bit word that starts at byte ``i``."""
    if len(data) < 4:
        return np.zeros(0, np.uint32)
    return np.ndarray(shape=(len(data) - 3,), dtype="<u4", buffer=data.data, strides=(1,))
