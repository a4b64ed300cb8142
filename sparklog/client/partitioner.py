"""The partition of a key, as in Kafka's Java client.

Owns: murmur2 (``org.apache.kafka.common.utils.Utils``) of one key.  Must not know producers or
clusters.  Pure.  Columns of keys are hashed by ``column_partitioner``: NumPy and Arrow would more
than double the memory of a process that hashes single keys.
"""

from typing import Final

MURMUR2_SEED: Final = 0x9747B28C
MURMUR2_M: Final = 0x5BD1E995
POSITIVE: Final = 0x7FFFFFFF
_MASK: Final = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """The hash as an unsigned 32-bit number."""
    size = len(key)
    h = (MURMUR2_SEED ^ size) & _MASK
    whole = size & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(key[start : start + 4], "little") * MURMUR2_M & _MASK
        k = (k ^ k >> 24) * MURMUR2_M & _MASK
        h = (h * MURMUR2_M & _MASK) ^ k
    tail = key[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * MURMUR2_M & _MASK
    h = (h ^ h >> 13) * MURMUR2_M & _MASK
    return h ^ h >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition that Java's default partitioner chooses for a key."""
    return (murmur2(key) & POSITIVE) % partition_count
