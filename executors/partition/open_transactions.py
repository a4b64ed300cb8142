"""The transactions of one partition that limit the last stable offset.

Owns: ongoing transactions, ended transactions whose marker is not below the high watermark yet
(``ProducerStateManager.ongoingTxns`` and ``unreplicatedTxns``), and ended transactions whose marker
is not flushed yet.  Must not know producers' epochs, batches or files.
"""

from collections import OrderedDict
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final

#: Ended transactions that are remembered one by one until their markers are flushed.
UNFLUSHED_MAX: Final = 100


class OpenTransactions:
    """Transactions by their first offsets, which are unique."""

    __slots__ = (
        "_ended_first_offsets",
        "_first_unstable_offset",
        "_ongoing",
        "_unflushed",
        "unreplicated",
    )

    def __init__(self) -> None:
        # The first entry of an OrderedDict is found at once, however many entries before it are
        # gone; a dict steps over each of them.
        #: Producer ids by first offset; offsets ascend, so the first entry is the earliest.
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        #: The offsets of the markers of ended transactions, by first offset; the markers ascend.
        self.unreplicated: OrderedDict[int, int] = OrderedDict()
        #: A heap of the first offsets in ``unreplicated``, and of some that were there before.
        self._ended_first_offsets: list[int] = []
        self._first_unstable_offset: int | None = None
        #: First offset and offset of the marker of ended transactions, in the order of markers.
        self._unflushed: list[tuple[int, int]] = []

    @property
    def ongoing(self) -> Mapping[int, int]:
        """Producer ids by first offset, ascending."""
        return self._ongoing

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction; None without transactions."""
        return self._first_unstable_offset

    def stable_offset(self, high_watermark: int) -> int:
        """The end of what is replicated and not part of these transactions."""
        first = self._first_unstable_offset
        return high_watermark if first is None else min(high_watermark, first)

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Note the first offset of a transaction, unless the transaction is known."""
        self._ongoing.setdefault(first_offset, producer_id)
        if self._first_unstable_offset is None:
            self._first_unstable_offset = first_offset

    def end(self, first_offset: int, last_offset: int) -> None:
        """The marker at ``last_offset`` ends a transaction, which counts until it is replicated."""
        del self._ongoing[first_offset]
        self.unreplicated[first_offset] = last_offset
        heappush(self._ended_first_offsets, first_offset)
        self._unflushed.append((first_offset, last_offset))
        if len(self._unflushed) > UNFLUSHED_MAX:
            self._unflushed = _in_pairs(self._unflushed)

    def durable_stable_offset(self, high_watermark: int, recovery_point: int) -> int:
        """The end of what a crash cannot take back and whose transactions it cannot reopen.

        A crash may take a marker that is not flushed, and the transaction may end in another way
        afterwards.
        """
        self._unflushed = [each for each in self._unflushed if each[1] >= recovery_point]
        stable = self.stable_offset(min(high_watermark, recovery_point))
        return min([stable, *(first for first, _ in self._unflushed)])

    def replicate(self, high_watermark: int) -> bool:
        """Take a new high watermark; return whether the first unstable offset has changed."""
        unreplicated = self.unreplicated
        while unreplicated and next(iter(unreplicated.values())) < high_watermark:
            unreplicated.popitem(last=False)
        before, self._first_unstable_offset = self._first_unstable_offset, self._earliest()
        return before != self._first_unstable_offset

    def stable_offset_after(self, first_offset: int, last_offset: int) -> int:
        """The last stable offset after this transaction has ended."""
        others = (first for first in self._ongoing if first != first_offset)
        return next(others, last_offset + 1)

    def restart(self, ongoing: Mapping[int, int]) -> None:
        """Replace everything by these ongoing transactions (first offset -> producer id)."""
        self._ongoing = OrderedDict(sorted(ongoing.items()))
        self.unreplicated = OrderedDict()
        self._ended_first_offsets = []
        self._unflushed = []
        self._first_unstable_offset = self._earliest()

    def check_invariants(self) -> None:
        ongoing = list(self._ongoing)
        assert ongoing == sorted(ongoing), ongoing
        assert not self._ongoing.keys() & self.unreplicated.keys()
        assert all(first < last for first, last in self.unreplicated.items()), self.unreplicated
        markers = list(self.unreplicated.values())
        assert markers == sorted(markers), markers
        assert self.unreplicated.keys() <= set(self._ended_first_offsets)
        assert self._first_unstable_offset == self._earliest()

    def _earliest(self) -> int | None:
        earliest = next(iter(self._ongoing), None)
        ended = self._ended_first_offsets
        while ended and ended[0] not in self.unreplicated:
            heappop(ended)
        if ended:
            return ended[0] if earliest is None else min(earliest, ended[0])
        return earliest


def _in_pairs(unflushed: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Half as many: two neighbours count as one, from the earlier beginning to the later marker."""
    pairs = [
        (min(one[0], other[0]), other[1])
        for one, other in zip(unflushed[::2], unflushed[1::2], strict=False)
    ]
    return pairs + unflushed[len(pairs) * 2 :]
