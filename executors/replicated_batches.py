"""What a leader sent, before it goes into a follower's log.

Owns: the checks on a follower's side (``UnifiedLog.append`` with origin REPLICATION), and how
batches share a write.  Must not know partitions, files or clocks.

Batches are taken over as they are.  Their offsets may have gaps, as compaction leaves them, and
they may be larger than what producers may send today; what cannot be the continuation of this
follower's log is refused whole.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from sparklog.errors import DecodeError, ErrorCode, KafkaError
from sparklog.types import MAX_INT32, MAX_INT64
from sparklog.wire.batch import (
    BATCH_OVERHEAD,
    CONTROL_BIT,
    CRC_START,
    LOG_OVERHEAD,
    MAGIC_V2,
    BatchHeader,
    Buffer,
    check_batch,
    read_header,
)
from sparklog.wire.control import ControlType, EndTxnMarker, read_marker


class ReplicatedBatch(NamedTuple):
    """A batch, where it begins among the bytes that came, and what it says when it is a marker."""

    header: BatchHeader
    position: int
    marker: EndTxnMarker | None

    @property
    def is_abort(self) -> bool:
        return self.marker is not None and self.marker.control_type is ControlType.ABORT


def read_replicated(
    records: Buffer, *, last_epoch: int, leader_epoch: int
) -> list[ReplicatedBatch]:
    """The batches, checked against each other and against the epochs that they can be of.

    ``last_epoch`` is that of the follower's last record, ``leader_epoch`` the leader's.  Raises
    KafkaError: CORRUPT_MESSAGE, INVALID_RECORD.
    """
    batches: list[ReplicatedBatch] = []
    view, position, end_offset = memoryview(records), 0, 0
    while position < len(view):
        header, size = _read_batch(view, position)
        epoch = header.partition_leader_epoch
        if not last_epoch <= epoch <= leader_epoch:
            raise _impossible(header, f"is of leader epoch {epoch} after {last_epoch}")
        if not end_offset <= header.base_offset <= header.last_offset < MAX_INT64:
            raise _impossible(header, f"comes after offset {end_offset - 1}")
        marker = _read_marker(view, position, header) if header.attributes & CONTROL_BIT else None
        batches.append(ReplicatedBatch(header, position, marker))
        last_epoch, end_offset = epoch, header.next_offset
        position += size
    return batches


def has_gap(batches: Sequence[ReplicatedBatch], end_offset: int) -> bool:
    """Whether offsets are left out behind ``end_offset``, where the log ends."""
    for header, _, _ in batches:
        if header.base_offset > end_offset:
            return True
        end_offset = header.next_offset
    return False


def split_writes(
    batches: Sequence[ReplicatedBatch], segment_bytes: int
) -> Iterator[Sequence[ReplicatedBatch]]:
    """The batches of one write each: as many as fit a segment; the marker of an abort alone.

    What an abort is about depends on what all batches before it have done.
    """
    begin, size = 0, 0
    for index, batch in enumerate(batches):
        header = batch.header
        if index > begin and (
            size + header.size > segment_bytes
            or header.last_offset - batches[begin].header.base_offset > MAX_INT32
            or batch.is_abort
            or batches[begin].is_abort
        ):
            yield batches[begin:index]
            begin, size = index, 0
        size += header.size
    if begin < len(batches):
        yield batches[begin:]


def _read_batch(view: memoryview, position: int) -> tuple[BatchHeader, int]:
    """The header and size of a whole, undamaged batch.  A glance is mostly enough."""
    try:
        header = read_header(view, position)
        size = header.batch_length + LOG_OVERHEAD
        data = view[position + CRC_START : position + size]
        whole = len(data) == size - CRC_START and size >= BATCH_OVERHEAD
        if not whole or header.magic != MAGIC_V2 or crc32c(data) != header.crc:
            check_batch(view, position, header)
    except DecodeError as error:
        raise _torn(error) from error
    return header, size


def _read_marker(view: memoryview, position: int, header: BatchHeader) -> EndTxnMarker | None:
    try:
        return read_marker(view, position, header)
    except DecodeError as error:
        raise _torn(error) from error


def _torn(error: DecodeError) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"from the leader: {error}")


def _impossible(header: BatchHeader, what: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_RECORD,
        f"the leader sent a batch with base offset {header.base_offset} that {what}",
    )
