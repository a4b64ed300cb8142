"""What a reader says of a partition, in a form that every reader can compute alike.

Owns: the measure and its sums.  Must not know who reads.
"""

import zlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

#: The weight of a record is its offset modulo this, so that records in another order show.
WEIGHTS: Final = 1009


class Measure(NamedTuple):
    """``records`` with the offsets from 0 on, the sum of the CRC-32 of their values, and that
    sum with the weights of their offsets."""

    records: int
    checksum: int
    weighted: int


def measure_of(checksums: Iterable[int]) -> Measure:
    """The measure of records whose values have these CRC-32, in the order of their offsets."""
    count = checksum = weighted = 0
    for each in checksums:
        checksum += each
        weighted += each * (count % WEIGHTS)
        count += 1
    return Measure(count, checksum, weighted)


def prefix_of(checksums: Sequence[int], found: Measure) -> bool:
    """Whether a measure is that of the first records."""
    return measure_of(checksums[: found.records]) == found


def value_of(number: int, size: int) -> bytes:
    """The value of a record: hardly compressible, and another one for each number."""
    seed = zlib.crc32(b"%d" % number)
    return ((b"%016d" % number + b"%08x" % seed) * (size // 24 + 1))[:size]
