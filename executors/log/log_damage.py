"""The known damage of one log: damaged ranges, and suspected segments.

Owns: how a damaged read becomes a suspicion that a check must confirm or refute, and which ranges
wait for a repair.  Must not know how a check works, or where sound bytes come from.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sparklog.errors import CorruptLogError, DamagedRangeError
from sparklog.executors.log.damaged_ranges import DamagedRange
from sparklog.executors.log.names import parse_file_name
from sparklog.executors.log.segment import Segment
from sparklog.executors.log.segment_list import SegmentList

#: A sealed range is checked once it was read this many times in a row from the same offset: a
#: reader that cannot use the records asks for them again.
READS_IN_A_ROW: Final = 3


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A segment that may be damaged, by its base offset.

    ``offset`` lies in the suspected part; None stands for the whole segment.
    """

    base_offset: int
    offset: int | None


class LogDamage:
    """The damage of one log; ``on_suspicion`` is called on the log's own thread."""

    __slots__ = ("_generation", "_last_read", "_reads", "_segments", "on_suspicion", "unrepairable")

    def __init__(self, segments: SegmentList, generation: Callable[[], int]) -> None:
        """``generation`` returns the number of truncations and replacements of segments."""
        self._segments = segments
        self._generation = generation
        self._last_read = -1
        self._reads = 0
        self.on_suspicion: Callable[[Suspicion], None] = lambda _: None
        #: Ranges that no other replica could repair so far; they are tried again.
        self.unrepairable: set[DamagedRange] = set()

    @property
    def generation(self) -> int:
        """A number that changes with every truncation and replacement of segments."""
        return self._generation()

    @property
    def ranges(self) -> list[tuple[Segment, DamagedRange]]:
        return [
            (segment, damaged_range)
            for segment in self._segments
            for damaged_range in segment.damaged
        ]

    def segment(self, base_offset: int) -> Segment | None:
        """The segment with this base offset, if any."""
        return next((s for s in self._segments if s.base_offset == base_offset), None)

    def sealed(self) -> Iterator[Segment]:
        """The current sealed segments."""
        return iter(self._segments[index] for index in range(len(self._segments) - 1))

    def is_active(self, segment: Segment) -> bool:
        return segment is self._segments.active

    def holds(self, segment: Segment) -> bool:
        """Whether the segment still belongs to the log."""
        return segment in self._segments

    def watch(self, on_suspicion: Callable[[Suspicion], None]) -> None:
        """Call this for suspicions, and at once for segments that are damaged already."""
        self.on_suspicion = on_suspicion
        for base_offset in {segment.base_offset for segment, _ in self.ranges}:
            on_suspicion(Suspicion(base_offset, None))

    def is_unrepairable(self, error: DamagedRangeError) -> bool:
        """Whether no other replica could repair the range of this error."""
        wanted = error.position, error.first_offset
        return any(
            (damaged_range.position, damaged_range.first_offset) == wanted
            for damaged_range in self.unrepairable
        )

    # reads

    def read_failed(self, error: CorruptLogError) -> None:
        """Take a read that failed because of damage; suspect the segment if the range is new."""
        if isinstance(error, DamagedRangeError):
            return
        parsed = parse_file_name(error.path.rpartition("/")[2])
        if parsed is not None:
            self.on_suspicion(Suspicion(parsed[0], None))

    def read_succeeded(self, offset: int, size: int) -> None:
        """Take a read of ``size`` bytes from ``offset`` on; suspect a range that is read again."""
        if offset != self._last_read:
            self._last_read, self._reads = offset, 1
            return
        self._reads += size > 0
        if self._reads >= READS_IN_A_ROW and offset < self._segments.active.base_offset:
            self._reads = 0
            self.suspect(offset)

    def suspect(self, offset: int) -> None:
        """Suspect the segment that holds ``offset``."""
        segment = next(iter(self._segments.from_offset(offset)), None)
        if segment is not None:
            self.on_suspicion(Suspicion(segment.base_offset, offset))

    # results of checks

    def add(self, segment: Segment, damaged: DamagedRange) -> bool:
        """Note a damaged range; False if it is known already.

        A range that has grown replaces the ranges that it overlaps.
        """
        if any(known.covers(damaged) for known in segment.damaged):
            return False
        grown, kept = damaged, list[DamagedRange]()
        for known in segment.damaged:
            if known.overlaps(grown):
                grown = grown.joined(known)
            else:
                kept.append(known)
        segment.damaged = sorted([*kept, grown], key=lambda damaged_range: damaged_range.position)
        # Retention and truncations remove ranges without a call.
        self.unrepairable &= {damaged_range for _, damaged_range in self.ranges}
        return True

    def replace(
        self, segment: Segment, damaged: DamagedRange, rest: DamagedRange | None = None
    ) -> None:
        """Take a range that was repaired, except for ``rest``."""
        kept = [damaged_range for damaged_range in segment.damaged if damaged_range is not damaged]
        segment.damaged = kept
        self.unrepairable.discard(damaged)
        if rest is not None:
            self.add(segment, rest)
