"""The transactions of one partition that readers of committed data must not read past.

Owns: the ongoing ones, and those that ended but whose marker is not yet below the high watermark
(``ProducerStateManager.ongoingTxns`` and ``unreplicatedTxns``).  Must not know producers' epochs,
batches or files.
"""

from collections.abc import Mapping


class OpenTransactions:
    """Transactions by their first offset, which no two share."""

    __slots__ = ("_first_unstable_offset", "_ongoing", "unreplicated")

    def __init__(self) -> None:
        #: Producer ids; transactions begin in the order of offsets, so the first is the earliest.
        self._ongoing: dict[int, int] = {}
        #: The offsets of their markers.
        self.unreplicated: dict[int, int] = {}
        self._first_unstable_offset: int | None = None

    @property
    def ongoing(self) -> Mapping[int, int]:
        """Producer ids by first offset, ascending."""
        return self._ongoing

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the earliest of all begins; None when there are none."""
        return self._first_unstable_offset

    def stable_offset(self, high_watermark: int) -> int:
        """Up to where everything is replicated and decided."""
        first = self._first_unstable_offset
        return high_watermark if first is None else min(high_watermark, first)

    def begin(self, first_offset: int, producer_id: int) -> None:
        """A transaction has its first record, above all others; known ones stay as they are."""
        self._ongoing.setdefault(first_offset, producer_id)
        if self._first_unstable_offset is None:
            self._first_unstable_offset = first_offset

    def end(self, first_offset: int, last_offset: int) -> None:
        """Its marker is in the log at ``last_offset``; it counts until that is replicated."""
        del self._ongoing[first_offset]
        self.unreplicated[first_offset] = last_offset

    def replicate(self, high_watermark: int) -> bool:
        """Everything below is replicated; whether that changed the first unstable offset."""
        for first_offset in [f for f, last in self.unreplicated.items() if last < high_watermark]:
            del self.unreplicated[first_offset]
        before, self._first_unstable_offset = self._first_unstable_offset, self._earliest()
        return before != self._first_unstable_offset

    def stable_offset_after(self, first_offset: int, last_offset: int) -> int:
        """Below which offset everything is decided once this transaction has ended."""
        others = (first for first in self._ongoing if first != first_offset)
        return next(others, last_offset + 1)

    def restart(self, ongoing: Mapping[int, int]) -> None:
        """Forget everything but these ongoing ones (first offset -> producer id)."""
        self._ongoing = dict(sorted(ongoing.items()))
        self.unreplicated = {}
        self._first_unstable_offset = self._earliest()

    def check_invariants(self) -> None:
        ongoing = list(self._ongoing)
        assert ongoing == sorted(ongoing), ongoing
        assert not self._ongoing.keys() & self.unreplicated.keys()
        assert all(first < last for first, last in self.unreplicated.items()), self.unreplicated
        assert self._first_unstable_offset == self._earliest()

    def _earliest(self) -> int | None:
        earliest = next(iter(self._ongoing), None)
        if self.unreplicated:
            unreplicated = min(self.unreplicated)
            return unreplicated if earliest is None else min(earliest, unreplicated)
        return earliest
