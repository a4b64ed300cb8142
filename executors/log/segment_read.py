"""The bytes of a segment that a read returns (``LogSegment.read``).

Owns: where the batches of a read begin and end, within the limits of the reader.  Must not know the
other segments, or how the bytes travel.
"""

from itertools import takewhile

from sparklog.executors.log.damaged_ranges import sound_end
from sparklog.executors.log.segment import IndexDamageError, Segment
from sparklog.executors.log.spans import BatchSpan, last_boundary
from sparklog.wire.records.batch import BATCH_OVERHEAD


def find_batches(
    segment: Segment, offset: int, max_bytes: int, end_offset: int, min_one: bool
) -> tuple[int, int, int] | None:
    """Position, size and base offset of the batches to read from ``offset`` on.

    The batches end below ``end_offset`` and have at most ``max_bytes``, but with ``min_one`` at
    least one batch is returned.  None if the segment has no batch at or above ``offset``.
    """
    begin = segment.begins.get(offset)
    size = segment.size
    if begin is not None and end_offset >= segment.next_offset and size - begin <= max_bytes:
        return begin, size - begin, offset
    try:
        return _find(segment, offset, max_bytes, end_offset, min_one)
    except IndexDamageError:
        segment.rebuild_indexes()
        return _find(segment, offset, max_bytes, end_offset, min_one)


def are_emptied(segment: Segment, position: int, size: int) -> bool:
    """Whether compaction has left no record in the ``size`` bytes of batches at ``position``."""
    if size % BATCH_OVERHEAD:
        return False
    end = position + size
    spans = takewhile(lambda span: span.position < end, segment.spans_at(position))
    return all(span.size == BATCH_OVERHEAD for span in spans)


def _find(
    segment: Segment, offset: int, max_bytes: int, end_offset: int, min_one: bool
) -> tuple[int, int, int] | None:
    first = segment.locate(offset)
    if first is None:
        return None
    limit = segment.size
    if segment.damaged:
        limit = sound_end(segment.log_path, first.position, limit, segment.damaged)
    if end_offset < segment.next_offset:
        last = segment.locate(end_offset)
        limit = limit if last is None else min(limit, last.position)
    end = first.position + max_bytes
    if end >= limit:
        end = limit
    else:
        end = _boundary(segment, first, end, limit)
        if end == first.position and min_one:
            end = min(first.end, limit)
    return first.position, max(0, end - first.position), first.base_offset


def _boundary(segment: Segment, first: BatchSpan, end: int, limit: int) -> int:
    """The last batch boundary at or before ``end``, from ``first`` on.

    ``limit`` is a batch boundary behind ``end``.  Raises IndexDamageError.
    """
    entry = segment.offset_index.lookup_position(end)
    if entry.position > first.position:
        first = next(segment.spans_from(entry))
    if first.end > end:
        return first.position
    return last_boundary(segment.handle(), first.end, limit, end)
