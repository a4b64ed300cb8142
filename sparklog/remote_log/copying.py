"""The copy of one sealed segment from the files of a log to a bucket.

Owns: what is read, how it is checked on the way, and the two objects.  Must not know which segment
is copied or when, manifests, or the formats of file names.

Every byte of the log file is checked in the chunk that is uploaded, so no damage of the disk gets
into the bucket.  Nothing refers to the objects until a manifest does: a copy that fails may leave
the log object behind as an orphan.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Protocol

from crc32c import crc32c

from sparklog.errors import CorruptLogError, StorageError
from sparklog.remote_log import names
from sparklog.remote_log.aborted_txns import encode_aborted
from sparklog.remote_log.batch_rules import BatchRules
from sparklog.remote_log.batch_stream import BatchStream
from sparklog.remote_log.copy_job import FILE_PARTS, CopyJob
from sparklog.remote_log.index_check import OffsetIndexCheck, TimeIndexCheck
from sparklog.remote_log.leader_epochs import encode_epochs, epochs_between
from sparklog.remote_log.remote_segment import Part, PartName, RemoteSegment
from sparklog.remote_log.time_ranges import lowest_timestamp
from sparklog.segment_files.index_builder import IndexBuilder
from sparklog.storage_backends.base import FileHalf
from sparklog.wire.records.batch import BatchHeader, Buffer

#: Bytes of the log file that are read, checked and uploaded at a time.
CHUNK_BYTES: Final = 1 << 20


class UploadStore(Protocol):
    """The part of a storage backend that a copy needs."""

    def upload(self, path: str, chunks: Iterable[Buffer], /) -> int:
        """Create the object from the chunks, atomically; return its size in bytes.

        If the iteration raises an error, no object appears, and the error is passed on.
        """
        ...


def copy_segment(
    job: CopyJob, local: FileHalf, remote: UploadStore, moved: Callable[[int], None]
) -> RemoteSegment:
    """Copy the segment; return its description for the manifest.  Blocks.

    ``moved`` is called with the number of bytes after each chunk, and may wait.

    Raises CorruptLogError, which names the local file and the position, for a log file or an index
    that is not sound, and for another size or other offsets than those of the job.  Raises
    StorageError, and its subclass MissingPathError for a file that has gone.
    """
    contents = _read_parts(job, local)
    indexes = _NewIndexes(job, contents) if job.start_position else _IndexChecks(job, contents)
    rules = BatchRules(
        end_offset=job.next_offset,
        log_size=job.log_size,
        leader_epochs=job.leader_epochs,
        gaps=job.gaps,
    )
    stream = BatchStream(
        job.log_path, job.base_offset, rules, indexes.visit, start_position=job.start_position
    )
    chunks = _log_chunks(job, local, stream, indexes, moved)
    _upload(remote, names.log_object(job.folder, job.segment_id), chunks, job.log_size)
    size = sum(map(len, contents.values()))
    path = names.indexes_object(job.folder, job.segment_id)
    _upload(remote, path, tuple(contents.values()), size)
    moved(size)
    segment = RemoteSegment(
        segment_id=job.segment_id,
        base_offset=job.base_offset,
        next_offset=job.next_offset,
        log_size=job.log_size,
        max_timestamp=stream.max_timestamp,
        leader_epochs=epochs_between(job.leader_epochs, job.base_offset, job.next_offset),
        gaps=stream.gaps,
        parts=_describe(contents),
    )
    lowest = lowest_timestamp(contents.get(PartName.STATS, b""), segment)
    return replace(segment, min_timestamp=lowest)


class _IndexChecks:
    """The checks of those indexes that the segment has."""

    def __init__(self, job: CopyJob, contents: Mapping[PartName, bytes]) -> None:
        self._offsets: OffsetIndexCheck | None = None
        self._times: TimeIndexCheck | None = None
        offsets, times = PartName.OFFSET_INDEX, PartName.TIME_INDEX
        if offsets in contents:
            path = job.path(job.part_files[offsets])
            self._offsets = OffsetIndexCheck(path, contents[offsets], job.base_offset)
        if times in contents:
            path = job.path(job.part_files[times])
            self._times = TimeIndexCheck(path, contents[times], job.base_offset)

    def visit(self, header: BatchHeader, position: int) -> None:
        has_entry = self._offsets is not None and self._offsets.visit(header, position)
        if self._times is not None:
            self._times.visit(header, has_entry=has_entry)

    def finish(self) -> None:
        for check in (self._offsets, self._times):
            if check is not None:
                check.finish()


class _NewIndexes:
    """The indexes of a copy that begins inside the log file; they are added to the contents.

    Replicas roll their segments at different places, so the first segment that a new leader copies
    may begin below the end of what is in the bucket.  Only the rest of it is copied, and the
    entries are relative to the copy's own base offset and first byte.
    """

    def __init__(self, job: CopyJob, contents: dict[PartName, bytes]) -> None:
        self._contents = contents
        self._builder = IndexBuilder(job.base_offset, job.index_interval_bytes)

    def visit(self, header: BatchHeader, position: int) -> None:
        self._builder.add(header.last_offset, position, header.size, header.max_timestamp)

    def finish(self) -> None:
        self._builder.finish()
        self._contents[PartName.OFFSET_INDEX] = bytes(self._builder.offsets)
        self._contents[PartName.TIME_INDEX] = bytes(self._builder.times)


def _read_parts(job: CopyJob, local: FileHalf) -> dict[PartName, bytes]:
    """The contents of the parts, in the order of the indexes object."""
    contents = {
        name: local.read(job.path(job.part_files[name]))
        for name in FILE_PARTS
        if name in job.part_files
    }
    contents[PartName.LEADER_EPOCHS] = encode_epochs(job.leader_epochs)
    if job.aborted:
        contents[PartName.ABORTED_TXNS] = encode_aborted(job.aborted)
    return contents


def _log_chunks(
    job: CopyJob,
    local: FileHalf,
    stream: BatchStream,
    indexes: "_IndexChecks | _NewIndexes",
    moved: Callable[[int], None],
) -> Iterator[Buffer]:
    """The log file in chunks.  The last chunk comes when everything is checked."""
    handle = local.open(job.log_path)
    try:
        end = job.start_position + job.log_size
        if handle.size() != end:
            raise CorruptLogError(
                job.log_path,
                min(handle.size(), end),
                f"the file has {handle.size()} bytes where {end} were sealed",
            )
        for position in range(job.start_position, end, CHUNK_BYTES):
            size = min(CHUNK_BYTES, end - position)
            chunk = handle.read(position, size)
            if len(chunk) < size:
                broken_at = position + len(chunk)
                raise CorruptLogError(job.log_path, broken_at, f"the file ends before {end}")
            stream.take(chunk)
            if position + size == end:
                stream.finish()
                indexes.finish()
            yield chunk
            moved(size)
    finally:
        handle.close()


def _upload(remote: UploadStore, path: str, chunks: Iterable[Buffer], size: int) -> None:
    uploaded = remote.upload(path, chunks)
    if uploaded != size:
        raise StorageError(f"{path} was uploaded with {uploaded} bytes where {size} are due")


def _describe(contents: Mapping[PartName, bytes]) -> dict[PartName, Part]:
    parts: dict[PartName, Part] = {}
    offset = 0
    for name, data in contents.items():
        parts[name] = Part(offset, len(data), crc32c(data))
        offset += len(data)
    return parts
