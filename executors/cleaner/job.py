"""The job of a cleaning and its report, as values and as JSON.

Owns: the messages between the broker and the cleaner's process.  Must not know how they are sent,
or how a log is cleaned.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sparklog.executors.log import CleanedGroup, CleanedSegment
from sparklog.types import MAX_INT64, NO_OFFSET


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSegment:
    """A sealed segment to be cleaned; ``size`` of its log file in bytes."""

    base_offset: int
    next_offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRecord:
    """The last record of an active producer (``ProducerStateManager.lastRecord``).

    ``data_offset`` is the last offset of its last batch of data, NO_OFFSET if it has written only
    markers in its present epoch.
    """

    data_offset: int = NO_OFFSET
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningJob:
    """One cleaning of one log; sizes in bytes, times in milliseconds.

    ``groups`` are adjacent, from the first segment of the log on.  They cover the dirty offsets
    [first_dirty, end_offset).  ``aborted_entries`` are (base offset, number of entries)
    pairs of the log's transaction indexes, later segments included.  Tombstones and markers
    from ``expires_below`` on stay whatever their delete horizon is, because another replica may
    still need them.
    """

    url: str
    partition_dir: str
    groups: tuple[tuple[SourceSegment, ...], ...]
    first_dirty: int
    end_offset: int
    now_ms: int
    delete_horizon_ms: int
    expires_below: int = MAX_INT64
    producers: Mapping[int, LastRecord] = field(default_factory=dict)
    aborted_entries: tuple[tuple[int, int], ...] = ()
    index_interval_bytes: int = 4096
    dedupe_buffer_size: int = 128 * 1024 * 1024
    io_buffer_size: int = 512 * 1024
    io_max_bytes_per_second: float = float("inf")

    def to_json(self) -> dict[str, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {
            "groups": [
                [[s.base_offset, s.next_offset, s.size] for s in group] for group in self.groups
            ],
            "producers": [
                [producer_id, last.data_offset, last.producer_epoch]
                for producer_id, last in self.producers.items()
            ],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "CleaningJob":
        groups = tuple(
            tuple(
                SourceSegment(base_offset=base, next_offset=end, size=size)
                for base, end, size in group
            )
            for group in values["groups"]
        )
        producers = {
            producer_id: LastRecord(data_offset=offset, producer_epoch=epoch)
            for producer_id, offset, epoch in values["producers"]
        }
        entries = tuple((base, count) for base, count in values["aborted_entries"])
        return cls(
            **{**values, "groups": groups, "producers": producers, "aborted_entries": entries}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningStats:
    """Counts of the records and bytes that a cleaning has read and kept."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    #: Records without a key, which are dropped.
    keyless: int = 0
    keys: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningReport:
    """The result: the log is clean below ``clean_offset`` once the groups are swapped in."""

    groups: tuple[CleanedGroup, ...]
    clean_offset: int
    stats: CleaningStats = CleaningStats()

    def to_lines(self) -> Iterator[dict[str, Any]]:
        """The report in JSON values of bounded size: one for each group, and one for the end."""
        for group in self.groups:
            yield {"group": asdict(group)}
        yield {"report": {"clean_offset": self.clean_offset, "stats": asdict(self.stats)}}

    @classmethod
    def from_lines(cls, lines: Iterable[Mapping[str, Any]]) -> "CleaningReport":
        """Raises LookupError and TypeError for other values."""
        *groups, end = lines
        return cls(
            groups=tuple(
                CleanedGroup(
                    segment=CleanedSegment(**line["group"]["segment"]),
                    replaced=tuple(line["group"]["replaced"]),
                )
                for line in groups
            ),
            clean_offset=end["report"]["clean_offset"],
            stats=CleaningStats(**end["report"]["stats"]),
        )
