"""A segment in the bucket, as the manifest describes it.

Owns: the value and its JSON form.  Must not know where the objects lie, or how they are written.

A segment has two objects.  The log object has the bytes of the ``.log`` file.  The indexes object
has everything else, one part after the other; the parts that a reader needs are read by range.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from sparklog.errors import DecodeError
from sparklog.remote_log.json_values import number_of, text_of
from sparklog.types import MAX_INT64, MIN_INT64, NO_TIMESTAMP


class PartName(StrEnum):
    """The parts of an indexes object; the first four have the bytes of the segment's files."""

    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    STATS = "stats"
    #: Producer state at the end of the segment (``.snapshot``).
    PRODUCER_SNAPSHOT = "snapshot"
    #: Leader epochs from the log start to the end of the segment (``leader-epoch-checkpoint``).
    LEADER_EPOCHS = "epochs"
    #: The aborted transactions that have records in the segment, wherever their markers lie.
    ABORTED_TXNS = "aborted"


class Part(NamedTuple):
    """A range of an indexes object, and the CRC-32C of its bytes."""

    offset: int
    size: int
    crc: int


class TimeBounds(NamedTuple):
    """The timestamps [``lowest_ms``, ``highest_ms``] in milliseconds."""

    lowest_ms: int = MIN_INT64
    highest_ms: int = MAX_INT64

    def may_meet(self, min_timestamp: int, max_timestamp: int) -> bool:
        """Whether a record of a segment may be within the bounds (see ``RemoteSegment``)."""
        is_known = min_timestamp != NO_TIMESTAMP
        return max_timestamp >= self.lowest_ms and not (
            is_known and min_timestamp > self.highest_ms
        )


#: Any timestamp.
UNBOUNDED: Final = TimeBounds()


class EpochStart(NamedTuple):
    """A leader epoch and the first offset that was written in it."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegment:
    """A sealed segment with the offsets [``base_offset``, ``next_offset``).

    Args:
        segment_id: names the objects; no other copy of the segment has the same id.
        log_size: bytes of the log object.  The object is longer if only the beginning of the
            segment is left (``SegmentShortened``).
        max_timestamp: the largest timestamp of its records in ms, NO_TIMESTAMP without one.  An
            upper bound if only the beginning is left.
        min_timestamp: no record of the segment has a lower timestamp in ms; NO_TIMESTAMP if that is
            not known.
        leader_epochs: of its records.  The first one starts at ``base_offset``.
        gaps: whether offsets are missing before or between its batches, because the log has been
            compacted at some time.  Without gaps a batch proves the base offset of the next one.
        parts: of the indexes object.  There is no part of a file that the segment lacks.
    """

    segment_id: str
    base_offset: int
    next_offset: int
    log_size: int
    max_timestamp: int = NO_TIMESTAMP
    min_timestamp: int = NO_TIMESTAMP
    leader_epochs: tuple[EpochStart, ...]
    gaps: bool = False
    parts: Mapping[PartName, Part]

    def __post_init__(self) -> None:
        assert self.base_offset < self.next_offset, "an empty segment is not copied"
        assert self.leader_epochs[0].start_offset == self.base_offset

    @property
    def indexes_size(self) -> int:
        """Bytes of the indexes object, up to the end of the last known part."""
        return max((part.offset + part.size for part in self.parts.values()), default=0)

    @property
    def size(self) -> int:
        """Bytes of both objects."""
        return self.log_size + self.indexes_size

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last record."""
        return self.leader_epochs[-1].epoch

    def may_hold(self, times: TimeBounds) -> bool:
        """Whether a record may have a timestamp within the bounds."""
        return times.may_meet(self.min_timestamp, self.max_timestamp)

    def to_json(self) -> dict[str, Any]:
        is_known = self.min_timestamp != NO_TIMESTAMP
        return {
            "id": self.segment_id,
            "base": self.base_offset,
            "next": self.next_offset,
            "size": self.log_size,
            "time": self.max_timestamp,
            **({"min_time": self.min_timestamp} if is_known else {}),
            "epochs": [list(each) for each in self.leader_epochs],
            "gaps": self.gaps,
            "parts": {name.value: list(part) for name, part in self.parts.items()},
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "RemoteSegment":
        """Raises DecodeError.  Parts of unknown names are left out: a later version may have
        added them."""
        names = {name.value: name for name in PartName}
        try:
            segment = cls(
                segment_id=text_of(values["id"]),
                base_offset=number_of(values["base"]),
                next_offset=number_of(values["next"]),
                log_size=number_of(values["size"]),
                max_timestamp=number_of(values["time"], NO_TIMESTAMP),
                # Manifests of earlier versions lack it.
                min_timestamp=number_of(values.get("min_time", NO_TIMESTAMP), NO_TIMESTAMP),
                leader_epochs=tuple(
                    EpochStart(number_of(epoch), number_of(start))
                    for epoch, start in values["epochs"]
                ),
                gaps=_truth(values["gaps"]),
                parts={
                    names[name]: Part(*map(number_of, part))
                    for name, part in values["parts"].items()
                    if name in names
                },
            )
        except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
            raise DecodeError(f"it describes no segment: {error!r}") from None
        return segment


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{value!r} is neither true nor false")
    return value
