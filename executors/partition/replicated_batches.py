"""Replicated batches: the records of a fetch response, before a follower appends them.

Owns: the checks of a follower (``UnifiedLog.append`` with origin REPLICATION), and which batches
share a write.  Must not know partitions, files or clocks.

A follower takes batches over unchanged.  Their offsets may have gaps from compaction, and they may
be larger than what producers may send today.  Records that cannot continue the follower's log are
refused as a whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from crc32c import crc32c

from sparklog.errors import DecodeError, ErrorCode, KafkaError
from sparklog.types import MAX_INT32, MAX_INT64
from sparklog.wire.records.batch import (
    BATCH_OVERHEAD,
    CONTROL_BIT,
    CRC_START,
    LOG_OVERHEAD,
    MAGIC_V2,
    BatchHeader,
    Buffer,
    check_batch,
    iter_batches,
    read_header,
)
from sparklog.wire.records.control import ControlType, EndTxnMarker, read_marker


class Replicated(NamedTuple):
    """The batches of a fetch response: whole, adjacent and in order.

    ``markers`` are the markers of control batches, by the index of the batch.
    """

    headers: Sequence[BatchHeader]
    markers: Mapping[int, EndTxnMarker]
    size: int

    def is_abort(self, index: int) -> bool:
        marker = self.markers.get(index)
        return marker is not None and marker.control_type is ControlType.ABORT


class Write(NamedTuple):
    """One write: the batches with index ``first`` up to ``end``, and the slice of their bytes."""

    first: int
    end: int
    data: slice


def read_replicated(records: Buffer, *, last_epoch: int, leader_epoch: int) -> Replicated:
    """Read the batches; check their checksums, offsets and leader epochs.

    ``last_epoch`` is the leader epoch of the follower's last record, ``leader_epoch`` the current
    one.  Raises KafkaError: CORRUPT_MESSAGE, INVALID_RECORD.
    """
    headers: list[BatchHeader] = []
    markers: dict[int, EndTxnMarker] = {}
    view, position, end_offset = memoryview(records), 0, 0
    size = len(view)
    while position < size:
        header = _read_batch(view, position)
        base_offset, batch_length, epoch, _, _, attributes, delta = header[:7]
        if not last_epoch <= epoch <= leader_epoch:
            raise _impossible(header, f"is of leader epoch {epoch} after {last_epoch}")
        if base_offset < end_offset:
            raise _impossible(header, f"comes after offset {end_offset - 1}")
        if not 0 <= delta < MAX_INT64 - base_offset:
            raise _impossible(header, f"comes after offset {end_offset - 1}")
        if attributes & CONTROL_BIT:
            marker = _read_marker(view, position, header)
            if marker is not None:
                markers[len(headers)] = marker
        headers.append(header)
        last_epoch, end_offset = epoch, base_offset + delta + 1
        position += batch_length + LOG_OVERHEAD
    return Replicated(headers, markers, size)


def sound_until(records: Buffer, offset: int) -> int:
    """The offset behind the sound batches at the start of ``records``, fetched at ``offset``."""
    try:
        for header, start in iter_batches(records, partial_tail=True):
            check_batch(records, start, header)
            offset = max(offset, header.next_offset)
    except (DecodeError, KafkaError):
        pass
    return offset


def split_writes(batches: Replicated, segment_bytes: int) -> Iterator[Write]:
    """Split batches into writes that fit a segment; an abort marker gets a write of its own.

    The transaction that a marker aborts is known only after all earlier batches are applied.
    """
    headers, count = batches.headers, len(batches.headers)
    span = headers[-1].last_offset - headers[0].base_offset
    if not batches.markers and batches.size <= segment_bytes and span <= MAX_INT32:
        yield Write(0, count, slice(0, batches.size))
        return
    first, start, end = 0, 0, 0
    for index, header in enumerate(headers):
        if index > first and (
            end - start + header.size > segment_bytes
            or header.last_offset - headers[first].base_offset > MAX_INT32
            or batches.is_abort(index)
            or batches.is_abort(first)
        ):
            yield Write(first, index, slice(start, end))
            first, start = index, end
        end += header.size
    yield Write(first, count, slice(start, end))


def _read_batch(view: memoryview, position: int) -> BatchHeader:
    """Read the header of a whole, undamaged batch; most batches need only the short check."""
    try:
        header = read_header(view, position)
        size = header.batch_length + LOG_OVERHEAD
        data = view[position + CRC_START : position + size]
        whole = len(data) == size - CRC_START and size >= BATCH_OVERHEAD
        if not whole or header.magic != MAGIC_V2 or crc32c(data) != header.crc:
            check_batch(view, position, header)
    except DecodeError as error:
        raise _torn(error) from error
    return header


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
