"""Checks that the files of a log still exist under their names.

Owns: which files are looked up, and the messages about missing files.  Must not know why a log is
checked.

A file that was deleted or moved still takes writes through an open descriptor, so only a lookup by
name detects the loss.  An append detects a file that became shorter (``FileHandle.writev``).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sparklog.errors import GoneLogError, LostLogError
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.flush import FlushState
from sparklog.executors.log.names import FULL_TRUNCATION, LOG_SUFFIX, PARTITION_METADATA
from sparklog.executors.log.segment_list import SegmentList
from sparklog.storage_backends.base import FileHalf, FileIdentity


class Loss(NamedTuple):
    """A log file that is missing or wrong, and the reason.

    ``is_whole`` says that no log file is left.
    """

    path: str
    reason: str
    is_whole: bool = False

    @property
    def error(self) -> LostLogError:
        return (GoneLogError if self.is_whole else LostLogError)(self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class PresenceCheck:
    """The expected files of one log.

    ``paths`` are the log files of all segments, the active segment last.  ``size`` and ``identity``
    (if known) belong to the active segment.  ``generation`` is the number of truncations and
    replacements of segments so far.
    """

    half: FileHalf
    partition_dir: str
    paths: tuple[str, ...]
    size: int
    identity: FileIdentity | None
    generation: int

    def run(self) -> Loss | None:
        """Check the files.  Blocks; any thread may call it.  Raises StorageError if the disk fails.

        The check lists the directory once and looks up the active file, for any number of segments.
        """
        names = set(self.half.list(self.partition_dir))
        for path in self.paths:
            if path.rpartition("/")[2] not in names:
                gone = path if names else self.partition_dir
                return Loss(
                    path, f"{self.half.url}/{gone} is gone", is_whole=not _has_log_file(names)
                )
        active = self.paths[-1]
        where = f"{self.half.url}/{active}"
        found = self.half.look(active)
        if found is None:
            return Loss(active, f"{where} is gone")
        if self.identity is not None and found.identity != self.identity:
            return Loss(active, f"{where} is not the file that this broker has written")
        if found.size < self.size:
            reason = f"{where} has {found.size} bytes where {self.size} were written"
            return Loss(active, reason)
        return None


class LogPresence:
    """Creates the checks of one log and judges their results, on the log's own thread."""

    __slots__ = ("_files", "_flush", "_half", "_partition_dir", "_segments")

    def __init__(
        self,
        half: FileHalf,
        partition_dir: str,
        files: FileCache,
        segments: SegmentList,
        flush: FlushState,
    ) -> None:
        self._half = half
        self._partition_dir = partition_dir
        self._files = files
        self._segments = segments
        self._flush = flush

    def check(self) -> PresenceCheck:
        """The check for the current files.  Do not call this during a truncation."""
        active = self._segments.active
        return PresenceCheck(
            half=self._half,
            partition_dir=self._partition_dir,
            paths=tuple(segment.log_path for segment in self._segments),
            size=active.size,
            identity=self._files.identity(active.log_path),
            generation=self._generation(),
        )

    def is_lost(self, check: PresenceCheck, loss: Loss) -> bool:
        """Whether the file that a check missed is still part of this log: retention or a
        truncation may have deleted it meanwhile."""
        if check.generation != self._generation():
            return False
        return any(segment.log_path == loss.path for segment in self._segments)

    def _generation(self) -> int:
        return self._flush.generation + self._segments.replacements


def require_present(half: FileHalf, partition_dir: str) -> None:
    """Check that a directory holds its former log.  Raises LostLogError or GoneLogError if not.

    ``partition.metadata`` and the name of the first segment became durable when the log was made.
    """
    names = half.list(partition_dir)
    if not names:
        raise GoneLogError(f"{half.url}/{partition_dir} is gone or empty, and held a log")
    # While a log is dropped as a whole, it has no segment for a moment.
    if FULL_TRUNCATION not in names and not _has_log_file(names):
        raise GoneLogError(f"no log file is left in {half.url}/{partition_dir}")
    if PARTITION_METADATA not in names:
        raise LostLogError(f"{half.url}/{partition_dir}/{PARTITION_METADATA} is gone")


def _has_log_file(names: Iterable[str]) -> bool:
    return any(name.endswith(LOG_SUFFIX) for name in names)
