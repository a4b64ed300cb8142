"""The segments of a manifest, packed in memory.

Owns: the contiguous segments in their order, and lookups by bisection.  Must not know records,
garbage or the log start.

A broker may have a hundred thousand segments.  Each is kept as its JSON, with what the lookups need
in arrays; that is a quarter of the memory of the values.
"""

import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate

from sparklog.remote_log.manifest_records import encode_segment
from sparklog.remote_log.remote_segment import UNBOUNDED, RemoteSegment, TimeBounds


class SegmentList:
    """Segments, each of which begins where the one before it ends."""

    __slots__ = (
        *("_bases", "_documents", "_end", "_last", "_last_epochs", "_log_sizes", "_maxima"),
        "_sizes",
        *("_lowest", "_timestamps", "log_bytes", "remote_bytes"),
    )

    def __init__(self) -> None:
        self._documents: list[bytes] = []
        #: The segment that was asked for last, which sequential readers ask for again and again.
        self._last: tuple[bytes, RemoteSegment] | None = None
        self._bases = array("q")
        self._log_sizes = array("q")
        self._sizes = array("q")
        self._timestamps = array("q")
        self._lowest = array("q")
        self._last_epochs = array("q")
        #: The largest timestamp of each segment and those before it; built when it is needed.
        self._maxima: array[int] | None = None
        self._end = 0
        #: Bytes of all log objects, and of all objects.
        self.log_bytes = 0
        self.remote_bytes = 0

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, index: int) -> RemoteSegment:
        document = self._documents[index]
        if self._last is None or self._last[0] is not document:
            self._last = document, RemoteSegment.from_json(json.loads(document))
        return self._last[1]

    def __iter__(self) -> Iterator[RemoteSegment]:
        return (self[index] for index in range(len(self)))

    @property
    def documents(self) -> Iterator[bytes]:
        """The JSON of the segments (see ``encode_segment``)."""
        return iter(self._documents)

    @property
    def end_offset(self) -> int:
        """The next offset after the last segment.  There must be one."""
        assert self._documents
        return self._end

    # -- one segment, without building the value

    def id_at(self, index: int) -> str:
        return str(json.loads(self._documents[index])["id"])

    def base_offset_at(self, index: int) -> int:
        return self._bases[index]

    def next_offset_at(self, index: int) -> int:
        return self._bases[index + 1] if index + 1 < len(self) else self._end

    def log_size_at(self, index: int) -> int:
        return self._log_sizes[index]

    def max_timestamp_at(self, index: int) -> int:
        return self._timestamps[index]

    def last_epoch_at(self, index: int) -> int:
        return self._last_epochs[index]

    # -- lookups

    def count_below(self, offset: int) -> int:
        """How many segments end at or below ``offset``."""
        if not self._documents or offset >= self._end:
            return len(self)
        return max(0, bisect_right(self._bases, offset) - 1)

    def count_up_to(self, offset: int) -> int:
        """How many segments begin below ``offset``."""
        return bisect_left(self._bases, offset)

    def within(self, first: int, stop: int, times: TimeBounds) -> Iterator[int]:
        """The indexes in [``first``, ``stop``) of segments that may have records within bounds."""
        if times == UNBOUNDED:
            return iter(range(first, stop))
        extremes = zip(self._lowest[first:stop], self._timestamps[first:stop], strict=True)
        return (
            index
            for index, (lowest, highest) in enumerate(extremes, first)
            if times.may_meet(lowest, highest)
        )

    def index_at(self, offset: int) -> int | None:
        """The index of the segment with this offset; None if no segment has it."""
        index = self.count_below(offset)
        return index if index < len(self) and self._bases[index] <= offset else None

    def index_by_time(self, timestamp: int) -> int | None:
        """The first segment whose largest timestamp is at least ``timestamp``."""
        if self._maxima is None:
            self._maxima = array("q", accumulate(self._timestamps, max))
        index = bisect_left(self._maxima, timestamp)
        return index if index < len(self) else None

    def count_up_to_epoch(self, epoch: int) -> int:
        """How many segments end with a record of ``epoch`` or an older epoch."""
        return bisect_right(self._last_epochs, epoch)

    # -- changes

    def append(self, segment: RemoteSegment) -> None:
        self._documents.append(encode_segment(segment))
        self._bases.append(segment.base_offset)
        self._log_sizes.append(segment.log_size)
        self._sizes.append(segment.size)
        self._timestamps.append(segment.max_timestamp)
        self._lowest.append(segment.min_timestamp)
        self._last_epochs.append(segment.last_epoch)
        if self._maxima is not None:
            highest = self._maxima[-1] if self._maxima else segment.max_timestamp
            self._maxima.append(max(highest, segment.max_timestamp))
        self._end = segment.next_offset
        self.log_bytes += segment.log_size
        self.remote_bytes += segment.size

    def remove_first(self, count: int) -> None:
        """Remove the oldest segments."""
        if self._maxima is not None and count:
            kept = self._maxima[count:]
            # The maximum of the first kept segment must be its own, not one of those before it.
            self._maxima = kept if not kept or kept[0] == self._timestamps[count] else None
        self._remove(slice(0, count))

    def keep_first(self, count: int) -> None:
        """Remove all segments but the oldest ``count``."""
        if count < len(self):
            self._end = self._bases[count]
            if self._maxima is not None:
                del self._maxima[count:]
            self._remove(slice(count, None))

    def _remove(self, where: slice) -> None:
        self.log_bytes -= sum(self._log_sizes[where])
        self.remote_bytes -= sum(self._sizes[where])
        del self._documents[where]
        for each in (self._bases, self._log_sizes, self._sizes):
            del each[where]
        for each in (self._timestamps, self._lowest, self._last_epochs):
            del each[where]
