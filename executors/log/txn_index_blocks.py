"""What the blocks of a transaction index hold, so that a lookup reads only blocks with a result.

Owns: the offsets of every block of ``BLOCK_ENTRIES`` entries, 24 bytes a block
(``TxnIndexBlocks``).  Must not know files.

Markers and last stable offsets ascend, so that both ends of a range are found by bisection. First
offsets do not ascend: while one transaction is open for long, the last stable offset stands, and
many others begin and end behind it. Their blocks, and groups of blocks, are skipped by their
earliest first offset.
"""

import struct
from array import array
from bisect import bisect_left
from typing import Final

#: Entries of a block, all but the last block.
BLOCK_ENTRIES: Final = 1024
_FIELDS: Final = "hqqqq"
_ENTRY_BYTES: Final = struct.calcsize(f">{_FIELDS}")
#: Blocks of a group, all but the last group.
_GROUP_BLOCKS: Final = 32
#: Bytes of a block.
BLOCK_BYTES: Final = BLOCK_ENTRIES * _ENTRY_BYTES


class TxnIndexBlocks:
    """The blocks of the first ``entries`` entries of one index."""

    __slots__ = (
        "_first_offsets",
        "_group_first_offsets",
        "_last_offsets",
        "_last_stable_offsets",
        "entries",
    )

    def __init__(self) -> None:
        self.entries = 0
        #: The earliest first offset in each block.
        self._first_offsets = array("q")
        #: The earliest first offset in each group of blocks.
        self._group_first_offsets = array("q")
        #: The last offset, and the last stable offset, of the last entry in each block.
        self._last_offsets = array("q")
        self._last_stable_offsets = array("q")

    @property
    def last_offset(self) -> int:
        """The offset of the last marker; -1 without entries."""
        return self._last_offsets[-1] if self.entries else -1

    def add(self, first_offset: int, last_offset: int, last_stable_offset: int) -> None:
        """Add the entry behind the known ones."""
        if self.entries % BLOCK_ENTRIES:
            self._last_offsets[-1] = last_offset
            self._last_stable_offsets[-1] = last_stable_offset
            if first_offset < self._first_offsets[-1]:
                self._first_offsets[-1] = first_offset
                self._group_first_offsets[-1] = min(self._group_first_offsets[-1], first_offset)
        else:
            self._add_block(first_offset, last_offset, last_stable_offset)
        self.entries += 1

    def add_blocks(self, data: bytes) -> None:
        """Add the entries in ``data`` behind the known ones, which fill whole blocks."""
        assert not self.entries % BLOCK_ENTRIES
        for start in range(0, len(data), BLOCK_BYTES):
            count = min(len(data) - start, BLOCK_BYTES) // _ENTRY_BYTES
            fields = struct.unpack_from(f">{_FIELDS * count}", data, start)
            self._add_block(min(fields[2::5]), fields[-2], fields[-1])
            self.entries += count

    def cut(self, entries: int) -> None:
        """Keep whole blocks among the first ``entries`` entries."""
        if entries < self.entries:
            blocks = entries // BLOCK_ENTRIES
            for offsets in (self._first_offsets, self._last_offsets, self._last_stable_offsets):
                del offsets[blocks:]
            whole_groups = blocks // _GROUP_BLOCKS
            del self._group_first_offsets[whole_groups:]
            left = self._first_offsets[whole_groups * _GROUP_BLOCKS :]
            if left:
                self._group_first_offsets.append(min(left))
            self.entries = blocks * BLOCK_ENTRIES

    def block_ending_from(self, offset: int) -> int:
        """The first block with a marker at or after ``offset``; else the number of blocks."""
        return bisect_left(self._last_offsets, offset)

    def find(self, start: int, end: int) -> tuple[list[int], bool]:
        """The blocks that may have transactions with offsets in [start, end).

        The second value tells whether no later entry, and no later segment, has such a transaction.
        """
        blocks = len(self._last_offsets)
        stop = bisect_left(self._last_stable_offsets, end)
        begin, behind = self.block_ending_from(start), min(stop + 1, blocks)
        found: list[int] = []
        for group in range(begin // _GROUP_BLOCKS, -(-behind // _GROUP_BLOCKS)):
            if self._group_first_offsets[group] < end:
                first = group * _GROUP_BLOCKS
                found += [
                    block
                    for block in range(max(begin, first), min(behind, first + _GROUP_BLOCKS))
                    if self._first_offsets[block] < end
                ]
        return found, stop < blocks

    def _add_block(self, first_offset: int, last_offset: int, last_stable_offset: int) -> None:
        if len(self._first_offsets) % _GROUP_BLOCKS:
            self._group_first_offsets[-1] = min(self._group_first_offsets[-1], first_offset)
        else:
            self._group_first_offsets.append(first_offset)
        self._first_offsets.append(first_offset)
        self._last_offsets.append(last_offset)
        self._last_stable_offsets.append(last_stable_offset)
