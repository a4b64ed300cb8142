"""The copy of one segment to a bucket, as a value.

Owns: the message from the broker to the process that copies.  Must not know how the message is
sent, or how a segment is copied.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sparklog.remote_log.aborted_txns import RemoteAbortedTxn, check_aborted
from sparklog.remote_log.leader_epochs import check_epochs
from sparklog.remote_log.remote_segment import EpochStart, PartName

#: The parts that are files of the segment.
FILE_PARTS: Final = (
    PartName.OFFSET_INDEX,
    PartName.TIME_INDEX,
    PartName.STATS,
    PartName.PRODUCER_SNAPSHOT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyJob:
    """One copy of a sealed segment with the offsets [``base_offset``, ``next_offset``).

    The segment must lie below the last stable offset, and its files must be complete and flushed.

    Args:
        url: of the local store.
        partition_dir: in the local store.
        log_file: the name of the ``.log`` file.  The copy has its last ``log_size`` bytes, from
            ``start_position`` on.
        part_files: the names of the other files, of FILE_PARTS.  A file that does not exist is left
            out; the snapshot is that of ``next_offset``.  A copy that begins inside the log file
            gets indexes of its own, so only the snapshot may be named.
        gaps: whether offsets may be missing between batches (the log has been compacted at some
            time).  Otherwise a gap is damage.
        leader_epochs: from the log start up to ``next_offset``; one begins at or below
            ``base_offset``.
        index_interval_bytes: of indexes that are made for the copy.
        aborted: all aborted transactions with offsets in the segment, in the order of their
            markers.
        folder: of the partition's segments in the remote store.
        segment_id: of the new copy (``names.segment_id``).
        bytes_per_second: the limit of the mean rate.
        burst_s: see ``RateThrottle``.
    """

    url: str
    partition_dir: str
    log_file: str
    part_files: Mapping[PartName, str]
    base_offset: int
    next_offset: int
    log_size: int
    start_position: int = 0
    index_interval_bytes: int = 4096
    gaps: bool = False
    leader_epochs: tuple[EpochStart, ...]
    aborted: tuple[RemoteAbortedTxn, ...] = ()
    folder: str
    segment_id: str
    bytes_per_second: float = field(default=float("inf"))
    burst_s: float = field(default=float("inf"))

    def __post_init__(self) -> None:
        """Raises DecodeError for epochs or transactions that cannot be true."""
        assert self.base_offset < self.next_offset, "an empty segment is not copied"
        allowed = {PartName.PRODUCER_SNAPSHOT} if self.start_position else set(FILE_PARTS)
        assert self.part_files.keys() <= allowed, self.part_files
        check_epochs(self.leader_epochs)
        check_aborted(self.aborted)
        starts = [entry.start_offset for entry in self.leader_epochs]
        assert starts, "the leader epoch of a copied segment is known"
        assert starts[0] <= self.base_offset, starts
        assert starts[-1] < self.next_offset, starts

    @property
    def log_path(self) -> str:
        return self.path(self.log_file)

    def path(self, name: str) -> str:
        """The path of a file in the local store."""
        return f"{self.partition_dir}/{name}"
