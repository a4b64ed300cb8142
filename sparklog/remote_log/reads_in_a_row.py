"""Reads that follow each other, over the segments of a partition.

Owns: where each read begins, and which error counts.  Must not know how a segment is found or read.
"""

from collections.abc import Callable
from typing import TypeAlias

from sparklog.errors import SparklogError, StorageError
from sparklog.remote_log.manifest import Manifest
from sparklog.remote_log.reading import RemoteRead, RemoteReader
from sparklog.remote_log.remote_segment import RemoteSegment

FindSegment: TypeAlias = Callable[[Manifest], RemoteSegment | None]
UseSegment: TypeAlias = Callable[[RemoteSegment], list[RemoteRead]]
#: Uses the segment that is found for an offset; perhaps again, with another one.
InSegment: TypeAlias = Callable[[int, FindSegment, UseSegment], list[RemoteRead]]


def reads_in_a_row(
    in_segment: InSegment,
    reader_of: Callable[[RemoteSegment], RemoteReader],
    offsets: range,
    max_bytes: int,
    count: int,
    *,
    with_aborted: bool,
    takes_files: bool = False,
) -> list[RemoteRead]:
    """Up to ``count`` reads, at least one, each from the end of the one before it on.

    Each has whole batches of ``max_bytes`` at most, or one batch, from the one that holds its
    offset on, and below the end of ``offsets``: the leader's files begin there, and after an
    unclean election a segment may go on with records that the leader does not have.
    ``takes_files``: the caller reads the files that a read names, or asks again.

    Raises the error of the first read, and ends at that of another; who asks for it gets it.
    StorageError: the batch at the offset goes on above the end of ``offsets``.
    KafkaError(OFFSET_OUT_OF_RANGE): no segment holds the offset, or it lies below the log start.
    """
    offset, found = offsets.start, list[RemoteRead]()

    def find(manifest: Manifest) -> RemoteSegment | None:
        start = manifest.log_start_offset
        return None if start is not None and offset < start else manifest.segment_at(offset)

    def use(segment: RemoteSegment) -> list[RemoteRead]:
        more: list[RemoteRead] = []
        end = min(segment.next_offset, offsets.stop)
        reads = reader_of(segment).reads(
            segment,
            offset,
            max_bytes,
            count - len(found),
            end_offset=end,
            with_aborted=with_aborted,
            takes_files=takes_files,
        )
        try:
            for read in reads:
                if read.next_offset <= offset and end < segment.next_offset:
                    raise StorageError(
                        f"the batch at offset {offset} in segment {segment.segment_id} ends above "
                        f"{offsets.stop}, where the leader's files begin: the leader has not taken "
                        "the manifest over yet"
                    )
                more.append(read._replace(data=bytes(read.data)))
                if read.next_offset >= offsets.stop:
                    break
        except SparklogError:
            if not more:
                raise
        return more

    while not found or (len(found) < count and offset < offsets.stop):
        try:
            more = in_segment(offset, find, use)
        except SparklogError:
            if not found:
                raise
            break
        found += more
        if more[-1].next_offset <= offset:
            break
        offset = more[-1].next_offset
    return found
