"""The part of a range that tasks read from the bucket, cut into pieces for one task each.

Owns: where a range is cut between bucket and brokers, which segments the bounds of time rule out,
and the size of a piece.  Must not know the client, Spark or the clock.

A piece has several small segments, or a part of a large one.  Records of one segment are of about
the same size, so a large segment is cut by its offsets.  A task finds the bytes of its offsets with
the index of the segment.  The last piece takes along what is on the brokers' disks only, if that is
little: a task costs what reading 20 MB costs.

A long history has more segments than a plan asks for, and leaders may be late.  What is behind the
known segments is cut by offsets, into pieces of about the same size if its records are, and tasks
ask for their segments.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sparklog.client.remote_segments_api import RemoteSegments
from sparklog.dataframe.read.plan import OffsetRange, RemoteSource
from sparklog.remote_log.remote_segment import RemoteSegment
from sparklog.remote_log.signed_segments import SignedSegment
from sparklog.types import TopicPartition

#: Most bytes of records that one task reads from the bucket, about.  Larger ranges are cut into
#: tasks of equal size, so most tasks have half of it at least.
PIECE_BYTES: Final = 256 * 1024 * 1024
#: Most pieces of a segment, or of all segments that the plan does not know; they are larger then.
PIECES_MAX: Final = 10_000
#: Segments with URLs in one plan; tasks beyond ask for their own.
PLANNED_SEGMENTS_MAX: Final = 2_000


def cut_by_tier(
    item: OffsetRange, remote: RemoteSegments, piece_bytes: int = PIECE_BYTES
) -> list[OffsetRange]:
    """The pieces of a range that are read from the bucket, and the rest of the range.

    ``remote`` has the segments from the start of the range on.  Brokers read what is behind its end
    if the leader knows of nothing there: the segments may not be in the manifest yet.
    """
    in_bucket = min(item.end, remote.local_start_offset)
    known_end = min(remote.end_offset, in_bucket)
    end = item.start
    parts: list[_Part] = []
    for signed in remote.segments:
        segment = signed.segment
        start, stop = max(end, segment.base_offset), min(known_end, segment.next_offset)
        if start >= stop:
            continue
        if segment.may_hold(item.times):
            parts.append(_Part(start, stop, _size(segment, stop - start), signed))
        end = stop
    end = max(end, known_end)
    if remote.bytes_behind and end < in_bucket:
        parts.append(_Part(end, in_bucket, remote.bytes_behind))
        end = in_bucket
    rest_bytes = _bytes_behind(parts, end, item.end)
    pieces = list(_pieces(parts, rest_bytes, piece_bytes))
    ends = [piece[-1].end for piece in pieces]
    if rest_bytes and sum(part.size for part in pieces[-1]) + rest_bytes <= piece_bytes:
        ends[-1] = item.end
    found = [
        replace(
            item,
            start=piece[0].start,
            end=stop,
            remote=RemoteSource(
                end=piece[-1].end,
                segments=tuple(part.signed for part in piece if part.signed is not None),
                expires_at_ms=remote.expires_at_ms,
            ),
        )
        for piece, stop in zip(pieces, ends, strict=True)
    ]
    begun = max([end, *ends])
    return [*found, replace(item, start=begun)] if begun < item.end else found


def with_own_segments(
    ranges: Iterable[OffsetRange], count_max: int = PLANNED_SEGMENTS_MAX
) -> list[OffsetRange]:
    """The ranges, each with no other segments than its own, and ``count_max`` of them together.

    The oldest ranges of every partition come first: what they read may leave the log soon, and then
    there are no URLs for it any more.
    """
    found = list(ranges)
    before: Counter[TopicPartition] = Counter()
    ages: list[tuple[int, int]] = []
    for place, item in enumerate(found):
        ages.append((before[item.topic_partition], place))
        before[item.topic_partition] += 1
    left = count_max
    for _, place in sorted(ages):
        item = found[place]
        if item.remote is None:
            continue
        if item.remote.end <= item.start:
            found[place] = replace(item, remote=None)
            continue
        segments = tuple(s for s in item.remote.segments if _overlaps(s, item))[: max(left, 0)]
        left -= len(segments)
        found[place] = replace(item, remote=replace(item.remote, segments=segments))
    return found


@dataclass(frozen=True, slots=True)
class _Part:
    """The offsets [``start``, ``end``) of a segment, or of several that are not known; ``size`` in
    bytes, if all their records have the same size."""

    start: int
    end: int
    size: int
    signed: SignedSegment | None = None

    def split(self, piece_bytes: int) -> "Iterator[_Part]":
        length = self.end - self.start
        count = min(max(-(-self.size // piece_bytes), 1), length, PIECES_MAX)
        for number in range(count):
            first, last = (length * each // count for each in (number, number + 1))
            size = self.size * (last - first) // length
            yield _Part(self.start + first, self.start + last, size, self.signed)


def _size(segment: RemoteSegment, count: int) -> int:
    """Bytes of ``count`` offsets, if all records of the segment have the same size."""
    return segment.log_size * count // (segment.next_offset - segment.base_offset)


def _pieces(parts: Sequence[_Part], rest_bytes: int, piece_bytes: int) -> Iterator[list[_Part]]:
    """Neighbouring parts that belong to one task.  Tasks have about the same number of bytes."""
    total = sum(part.size for part in parts) + rest_bytes
    fair_bytes = total / max(1, -(-total // piece_bytes))
    piece: list[_Part] = []
    size = 0
    for part in (each for whole in parts for each in whole.split(piece_bytes)):
        is_full = size + part.size > piece_bytes or size + part.size / 2 > fair_bytes
        if piece and (piece[-1].end != part.start or is_full):
            yield piece
            piece, size = [], 0
        piece.append(part)
        size += part.size
    if piece:
        yield piece


def _bytes_behind(parts: Sequence[_Part], end: int, stop: int) -> int:
    """The bytes of the offsets [``end``, ``stop``), if their records are as large as those of the
    last part, which must end there; else 0, and they are not estimated."""
    if not parts or parts[-1].end != end:
        return 0
    last = parts[-1]
    return last.size * (stop - end) // (last.end - last.start)


def _overlaps(signed: SignedSegment, item: OffsetRange) -> bool:
    return signed.segment.base_offset < item.end and item.start < signed.segment.next_offset
