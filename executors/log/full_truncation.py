"""The ``full-truncation`` file, which says that a log is being dropped as a whole.

Owns: the file, and how a start finishes the truncation.  Must not know why a log is dropped.

A compacted log lacks the records that later records of the log have replaced.  If a crash in the
middle of a full truncation left the beginning of the log, it would look like a sound log with lost
records.  So the file is durable before the first segment goes, and its removal is durable before
the log is used again.  It holds the offset at which the log starts then.

A tiered log that starts anew where the bucket ends takes over epochs and producer state after its
files are gone.  For it the file holds the log start: a log that starts there gets all records from
its leader, or is sent to the bucket again.
"""

from sparklog.errors import CorruptLogError
from sparklog.executors.log.names import (
    CLEAN_OFFSET,
    EPOCH_CHECKPOINT,
    FULL_TRUNCATION,
    parse_file_name,
)
from sparklog.executors.log.offset_file import decode_offset, encode_offset
from sparklog.storage_backends.base import FileHalf


def begin_full_truncation(half: FileHalf, partition_dir: str, offset: int) -> None:
    """Write the file, durably.  Blocks.  Raises StorageError."""
    half.put(f"{partition_dir}/{FULL_TRUNCATION}", encode_offset(offset))


def end_full_truncation(half: FileHalf, partition_dir: str) -> None:
    """Remove the file, durably.  Blocks.  Raises StorageError."""
    half.delete(f"{partition_dir}/{FULL_TRUNCATION}")
    half.flush_folder(partition_dir)


def drop_log(half: FileHalf, partition_dir: str, names: list[str]) -> int:
    """Delete the files of a log that a crash has left half dropped; return its new start offset.

    Blocks.  Raises CorruptLogError, StorageError.
    """
    path = f"{partition_dir}/{FULL_TRUNCATION}"
    offset = decode_offset(half.read(path))
    if offset is None:
        raise CorruptLogError(path, 0, "it does not tell where the log is to start")
    for name in names:
        if parse_file_name(name) is not None or name in (CLEAN_OFFSET, EPOCH_CHECKPOINT):
            half.delete(f"{partition_dir}/{name}")
    return offset
