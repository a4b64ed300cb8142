"""Parts of bounded size: how bytes reach a store that takes them piece by piece.

Owns: the size of a part, and the cutting of chunks into parts.  Must not know any store.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from sparklog.storage_backends.base import Buffer

#: Bytes of every part of an upload but the last one.  S3 takes 10,000 parts of 5 MiB or more, so an
#: object may have up to 78 GiB.
PART_BYTES: Final = 8 * 1024 * 1024


def bounded_parts(chunks: Iterable[Buffer], part_bytes: int) -> Iterator[memoryview]:
    """The bytes of the chunks in parts of ``part_bytes``; only the last one is shorter.

    No part is empty.  All parts are in the same memory: each is gone when the next one is asked
    for.
    """
    memory = memoryview(bytearray(part_bytes))
    filled = 0
    for chunk in chunks:
        rest = memoryview(chunk)
        while len(rest):
            step = min(len(rest), part_bytes - filled)
            memory[filled : filled + step] = rest[:step]
            rest, filled = rest[step:], filled + step
            if filled == part_bytes:
                yield memory
                filled = 0
    if filled:
        yield memory[:filled]
