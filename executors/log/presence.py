"""Whether the files of a log are still there: looked up by name, not through what is open.

Owns: what is looked up, and the words for what is missing.  Must not know why somebody looks.

A file that was deleted, or moved away, goes on taking writes through the descriptor that is open;
only its name tells.  An append notices by itself when its file became shorter
(``FileHandle.writev``).
"""

from dataclasses import dataclass
from typing import NamedTuple

from sparklog.errors import LostLogError
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.flush import FlushState
from sparklog.executors.log.names import LOG_SUFFIX, PARTITION_METADATA
from sparklog.executors.log.segment_list import SegmentList
from sparklog.storage_backends.base import FileHalf, FileIdentity


class Loss(NamedTuple):
    """A log file that is not as it should be, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PresenceCheck:
    """What the files of one log must be like.

    ``paths`` are the log files of all segments, the active one last; ``size`` and ``identity`` (if
    known) are those of the active one; ``generation`` is how often the log had been cut.
    """

    half: FileHalf
    folder: str
    paths: tuple[str, ...]
    size: int
    identity: FileIdentity | None
    generation: int

    def run(self) -> Loss | None:
        """Blocks; any thread may call it.  Raises StorageError when the disk does not tell.

        One listing of the folder and one look at the active file, however many segments there are.
        """
        names = set(self.half.list(self.folder))
        for path in self.paths:
            if path.rpartition("/")[2] not in names:
                gone = path if names else self.folder
                return Loss(path, f"{self.half.url}/{gone} is gone")
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
    """Makes the checks of one log, and judges what they found, on the log's own thread."""

    __slots__ = ("_files", "_flush", "_folder", "_half", "_segments")

    def __init__(
        self,
        half: FileHalf,
        folder: str,
        files: FileCache,
        segments: SegmentList,
        flush: FlushState,
    ) -> None:
        self._half = half
        self._folder = folder
        self._files = files
        self._segments = segments
        self._flush = flush

    def check(self) -> PresenceCheck:
        """What the files must be like now.  Not to be asked while the log is being cut."""
        active = self._segments.active
        return PresenceCheck(
            half=self._half,
            folder=self._folder,
            paths=tuple(segment.log_path for segment in self._segments),
            size=active.size,
            identity=self._files.identity(active.log_path),
            generation=self._flush.generation,
        )

    def is_lost(self, check: PresenceCheck, loss: Loss) -> bool:
        """Whether the file that a check missed is still one of this log's: retention may have
        deleted it meanwhile, or a cut."""
        if check.generation != self._flush.generation:
            return False
        return any(segment.log_path == loss.path for segment in self._segments)


def require_present(half: FileHalf, folder: str) -> None:
    """A log was opened in this folder before.  Raises LostLogError when it is not there.

    ``partition.metadata`` and the name of a first segment became durable when it was made.
    """
    names = half.list(folder)
    if not names:
        raise LostLogError(f"{half.url}/{folder} is gone or empty, and held a log")
    if PARTITION_METADATA not in names:
        raise LostLogError(f"{half.url}/{folder}/{PARTITION_METADATA} is gone")
    if not any(name.endswith(LOG_SUFFIX) for name in names):
        raise LostLogError(f"no log file is left in {half.url}/{folder}")
