"""The repair of a damaged range of a sealed segment with the batches of another replica.

Owns: which batches may replace damaged bytes, and writing them in place.  Must not know where the
batches come from.

Leader epoch and offset identify a batch: a leader writes an offset once in its epoch.  So a
batch of another replica is taken if its checksum holds, its epoch is the epoch that this log
remembers for its offset, it follows the batch before without a gap, and all batches fit the range
exactly.
Bytes of this log that are valid are never replaced.

Replicas of a compacted log are cleaned at different times, so a sound replica may have other
batches, or none, for the same offsets.  Gaps are in order there, if the batches have exactly the
size of the range.  Batches of another size are unfit and no sign of damage in the other replica,
and valid batches of this log that differ from them stay.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from sparklog.errors import DecodeError, KafkaError, SparklogError, StorageError
from sparklog.executors.log.checkpoint import EpochEntry
from sparklog.executors.log.damaged_ranges import DamagedRange
from sparklog.executors.log.scan import ScanWindow
from sparklog.executors.log.segment_stats import SegmentFiles
from sparklog.storage_backends.base import Buffer, FileHandle
from sparklog.wire.records.batch import check_batch, iter_batches
from sparklog.wire.records.stored_batches import epoch_of, header_damage

#: A large range is repaired in parts of about this many bytes, from its start on.
PART_BYTES: Final = 4 << 20


class UnfitBatchError(SparklogError):
    """The right batch of another replica does not fit the damaged range."""


class DamagedSourceError(SparklogError):
    """The batch of another replica is damaged too, or is not the right batch."""


class Piece(NamedTuple):
    """One batch, and its position in the log file."""

    position: int
    base_offset: int
    data: bytes


class RangeRepair:
    """The repair of one damaged range with the batches of one other replica."""

    def __init__(
        self, damaged: DamagedRange, epochs: Sequence[EpochEntry], *, compacted: bool = False
    ) -> None:
        self.damaged = damaged
        self._compacted = compacted
        #: The batches that were taken and are not written yet.
        self.pieces: list[Piece] = []
        self._epochs = epochs
        self._position = damaged.position
        self._next_offset = damaged.first_offset

    @property
    def next_offset(self) -> int:
        """The offset of the next fetch from the other replica."""
        return self._next_offset

    @property
    def complete(self) -> bool:
        """Whether there are batches for the whole range."""
        return self._position == self.damaged.end

    @property
    def part_due(self) -> bool:
        """Whether the taken batches are to be written before more are fetched."""
        return self.complete or sum(len(piece.data) for piece in self.pieces) >= PART_BYTES

    def take(self, records: Buffer) -> bool:
        """Take the whole batches that the other replica sent; return False if there is none.

        Raises UnfitBatchError and DamagedSourceError; then no remaining piece may be written.
        """
        took = False
        try:
            for header, start in iter_batches(records, partial_tail=True):
                if self.complete:
                    break
                check_batch(records, start, header)
                self._take(header.base_offset, header.partition_leader_epoch, header.next_offset,
                           bytes(memoryview(records)[start : start + header.size]))  # fmt: skip
                took = True
        except (DecodeError, KafkaError) as error:
            raise DamagedSourceError(str(error)) from error
        return took

    def rest(self) -> DamagedRange | None:
        """The part of the range that is still damaged once the pieces are written."""
        self.pieces = []
        if self.complete:
            return None
        return replace(self.damaged, position=self._position, first_offset=self._next_offset)

    def _take(self, base_offset: int, epoch: int, next_offset: int, data: bytes) -> None:
        damaged, where = self.damaged, f"a batch with base offset {base_offset}"
        gap = base_offset > self._next_offset and self._compacted
        if base_offset != self._next_offset and not gap:
            raise DamagedSourceError(f"{where} came where {self._next_offset} is to follow")
        # By the last offset: the first one may lie below the log start, of which no epoch is known.
        expected = epoch_of(self._epochs, next_offset - 1)
        if epoch != expected:
            raise DamagedSourceError(f"{where} is of leader epoch {epoch}, {expected} wrote here")
        end = self._position + len(data)
        if end > damaged.end or next_offset > damaged.end_offset:
            raise UnfitBatchError(
                f"{where} has {len(data)} bytes, {damaged.end - self._position} are to be replaced"
            )
        # In a compacted log the range may end with a gap.
        ends = next_offset == damaged.end_offset or (self._compacted and end == damaged.end)
        if (end == damaged.end) != ends:
            raise UnfitBatchError(
                f"{where} ends at offset {next_offset} and byte {end}, the range at offset "
                f"{damaged.end_offset} and byte {damaged.end}"
            )
        self.pieces.append(Piece(self._position, base_offset, data))
        self._position, self._next_offset = end, next_offset


def write_pieces(
    files: SegmentFiles,
    pieces: Sequence[Piece],
    epochs: Sequence[EpochEntry],
    *,
    compacted: bool = False,
) -> int:
    """Write the pieces to the log file, durably; return how many bytes have changed.

    Blocks.  Raises StorageError, and UnfitBatchError, before anything is written, where the bytes
    of this log are valid and others.  In a ``compacted`` log valid batches of the same size stay.
    """
    handle = files.half.open(files.log_path)
    try:
        wrong = [p for p in pieces if _is_damaged(handle, files, p, epochs, compacted)]
        for piece in wrong:
            handle.overwrite(piece.position, piece.data)
        handle.flush()
        for piece in wrong:
            if handle.read(piece.position, len(piece.data)) != piece.data:
                raise StorageError(
                    f"{handle.path} does not keep what is written at byte {piece.position}: "
                    "check the disk"
                )
    finally:
        handle.close()
    return sum(len(piece.data) for piece in wrong)


def _is_damaged(
    handle: FileHandle,
    files: SegmentFiles,
    piece: Piece,
    epochs: Sequence[EpochEntry],
    compacted: bool,
) -> bool:
    """Whether the bytes at a piece's place are to be replaced by it."""
    if handle.read(piece.position, len(piece.data)) == piece.data:
        return False
    # The own batch, whole, which may be larger than the piece.
    window = ScanWindow(handle)
    header = window.header(piece.position)
    if (
        header is None
        or header_damage(header, files.log_size - piece.position) is not None
        or window.checksum_damage(header, piece.position) is not None
    ):
        return True
    expected = epoch_of(epochs, header.last_offset)
    if (header.base_offset, header.partition_leader_epoch) != (piece.base_offset, expected):
        return True
    if compacted and header.size == len(piece.data):
        return False
    raise UnfitBatchError(
        f"{handle.path} has another valid batch with base offset {piece.base_offset} at byte "
        f"{piece.position}: the replicas disagree"
    )
