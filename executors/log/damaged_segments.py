"""Flushed segments that the loading of a log finds damaged.

Owns: whether such a segment can be used with its damaged ranges noted.  Must not know the other
segments.
"""

import logging

from sparklog.errors import CorruptLogError, DecodeError
from sparklog.executors.log.damaged_ranges import walk_headers
from sparklog.executors.log.segment import Segment
from sparklog.executors.log.segment_scrub import SegmentScrub
from sparklog.executors.log.segment_stats import SegmentFiles
from sparklog.segment_files.index_builder import IndexBuilder
from sparklog.segment_files.stats_file import STATS_HEADER_BYTES, decode_stats_header
from sparklog.storage_backends.base import FileHandle

logger = logging.getLogger(__name__)


def keep_damaged(segment: Segment, handle: FileHandle, end_offset: int, damage: str) -> None:
    """Take over a damaged segment that ends at ``end_offset``, and rebuild its indexes.

    Raises CorruptLogError where its file may have lost its end.
    """
    segment.load_sealed(handle.size(), end_offset, 0, 0)
    files = segment.files_at_rest()
    scrub = SegmentScrub(files, epochs=(), end_offset=end_offset)
    while scrub.check_more():
        pass
    found = scrub.found
    if not found or (found[-1].end == segment.size and not _has_its_size(files)):
        position = found[-1].position if found else segment.size
        raise CorruptLogError(handle.path, position, damage)
    segment.damaged = found
    builder = IndexBuilder(segment.base_offset, segment.indexes.interval_bytes)
    for header, position in walk_headers(handle, 0, segment.size, found):
        builder.add(header.last_offset, position, header.size, header.max_timestamp)
    segment.indexes.replace(builder)
    for damaged in found:
        logger.error("%s", damaged.error(segment.log_path))


def _has_its_size(files: SegmentFiles) -> bool:
    """Whether the ``.stats`` confirms the size of the log file."""
    data = files.read(files.stats_path, STATS_HEADER_BYTES)
    try:
        return data is not None and decode_stats_header(data).log_size == files.log_size
    except DecodeError:
        return False
