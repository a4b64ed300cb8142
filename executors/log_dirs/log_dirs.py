"""The log directories of one broker, on one disk or several.

Owns: the identity that the log directories share, the choice of a log directory for a new
partition, and which log directories work.  Must not know open logs or the network.
``lock_log_dirs`` blocks.

Every log directory has its own directory id, lock, clean-shutdown file and checkpoints, and knows
the directory ids of the others.  So a broker that finds a log directory missing or empty knows that
partitions may lie in it, and does not create them again elsewhere.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from sparklog.errors import LockedError, StorageError
from sparklog.executors.log_dirs.broker_dir import (
    BrokerDir,
    BrokerStartError,
    location_of,
    read_meta,
)
from sparklog.executors.log_dirs.partition_dirs import parse_partition_dir
from sparklog.storage_backends.base import FileHalf, MissingPathError
from sparklog.storage_backends.large_writes import DIRECT_APPEND_BYTES
from sparklog.storage_backends.registry import open_file_half
from sparklog.types import NO_BROKER_EPOCH, TopicPartition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirFailure:
    """A log directory that does not work, and why."""

    location: str
    error: StorageError


class LogDirs:
    """The log directories of one broker; failed directories move from ``working`` to ``failed``."""

    def __init__(
        self,
        working: Sequence[BrokerDir],
        failed: Sequence[LogDirFailure] = (),
        directories: Sequence[UUID] = (),
    ) -> None:
        self.working = list(working)
        self.failed = list(failed)
        #: Directory ids of all log directories of this broker, missing ones included.
        self.directories = tuple(directories) or tuple(f.meta.directory_id for f in working)
        self._homes: dict[TopicPartition, BrokerDir] = {}
        self._taken = tuple(working)
        for log_dir in working:
            for name in log_dir.partition_names:
                self._note_home(name, log_dir)

    def __iter__(self) -> Iterator[BrokerDir]:
        return iter(tuple(self.working))

    @property
    def directory_id(self) -> UUID:
        """The id of the broker's first log directory, by which the cluster knows its disks."""
        return self.directories[0]

    @property
    def clean(self) -> bool:
        """Whether the last broker stopped cleanly, in all log directories at the same stop."""
        stops = {log_dir.clean_epoch for log_dir in self._taken}
        whole = not self.failed and all(log_dir.clean for log_dir in self._taken)
        return whole and len(stops) <= 1

    @property
    def clean_epoch(self) -> int:
        """The broker epoch of the last clean stop; -1 if it is not known."""
        return self._taken[0].clean_epoch if self._taken else NO_BROKER_EPOCH

    @property
    def missing(self) -> tuple[UUID, ...]:
        """Directory ids of log directories that have failed or are not here."""
        here = {log_dir.meta.directory_id for log_dir in self.working}
        return tuple(directory for directory in self.directories if directory not in here)

    def release(self) -> None:
        for log_dir in self._taken:
            log_dir.release()

    # partitions

    def find(self, topic_partition: TopicPartition) -> BrokerDir | None:
        """The log directory of a partition; it may have failed."""
        return self._homes.get(topic_partition)

    def home(self, topic_partition: TopicPartition, *, is_new: bool) -> BrokerDir:
        """The log directory of a partition; a partition without one gets one.

        Raises StorageError when the log directory has failed.  A partition that is not ``is_new``
        may lie in a missing log directory, so StorageError is raised then too.
        """
        log_dir = self._homes.get(topic_partition) or self.held(topic_partition)
        if log_dir is None:
            if self.missing and not is_new:
                raise StorageError(
                    f"{topic_partition} is in none of the data directories that work, and "
                    f"directory {', '.join(map(str, self.missing))} is missing: mount its disk, or "
                    "delete the topic"
                )
            return self.choose(topic_partition)
        for failure in self.failed:
            if failure.location == log_dir.location:
                raise failure.error
        self._homes[topic_partition] = log_dir
        return log_dir

    def held(self, topic_partition: TopicPartition) -> BrokerDir | None:
        """The log directory whose checkpoint names the partition: a former broker process opened
        the log there, and it was not deleted since."""
        return next((f for f in self.working if topic_partition in f.recovery_points), None)

    def choose(self, topic_partition: TopicPartition) -> BrokerDir:
        """Give a new partition the log directory with the fewest partitions.

        Raises StorageError when no log directory works.
        """
        if not self.working:
            raise StorageError("none of the broker's data directories works")
        counts = Counter(id(log_dir) for log_dir in self._homes.values())
        home = min(self.working, key=lambda log_dir: counts[id(log_dir)])
        self._homes[topic_partition] = home
        return home

    def forget(self, topic_partition: TopicPartition) -> None:
        """Forget a deleted partition, and its checkpoint entries."""
        self._homes.pop(topic_partition, None)
        for log_dir in self._taken:
            log_dir.forget(topic_partition)

    def remember(self, topic_partition: TopicPartition, log_dir: BrokerDir) -> None:
        """Keep the log directory of a partition whose old directory may still be there, so that a
        partition of the same name is not created elsewhere."""
        self._homes.setdefault(topic_partition, log_dir)

    def fail(self, log_dir: BrokerDir, error: StorageError) -> list[TopicPartition]:
        """Take a log directory out of use; return the partitions in it."""
        if log_dir not in self.working:
            return []
        self.working.remove(log_dir)
        self.failed.append(LogDirFailure(location=log_dir.location, error=error))
        logger.critical("%s does not work any more: %s", log_dir.location, error)
        return [tp for tp, home in self._homes.items() if home is log_dir]

    def _note_home(self, name: str, log_dir: BrokerDir) -> None:
        tp = parse_partition_dir(name)
        if tp is None:
            return
        other = self._homes.setdefault(tp, log_dir)
        if other is not log_dir:
            raise BrokerStartError(
                "config",
                f"{tp} lies in both {other.location} and {log_dir.location}; move one of the two "
                "away",
            )


def open_data_dirs(data_dirs: Sequence[str], direct_append_bytes: int) -> list[FileHalf]:
    """Open the stores of these paths or URLs, without a lock.  Raises StorageError."""
    options = {DIRECT_APPEND_BYTES: direct_append_bytes}
    return [open_file_half(each, options) for each in data_dirs]


def lock_log_dirs(
    halves: Sequence[FileHalf],
    path: str,
    *,
    cluster_id: str,
    node_id: int,
    new: bool,
    new_id: Callable[[], UUID],
) -> LogDirs:
    """Lock the log directories of a broker, check their owner, and create missing ones.

    A broker without any log directory gets them only if it may be ``new``.  If a disk of several is
    missing, its log directory counts as failed.  Raises BrokerStartError (``not_here``,
    ``foreign_cluster``, ``config``), LockedError, and StorageError when no log directory works.
    """
    survey = _Survey(halves, path)
    if not survey.known and not new:
        if survey.failed:
            raise survey.failed[0].error
        where = " and ".join(half.url for half in halves)
        raise BrokerStartError("not_here", f"{where} holds no log directory {path}")
    ids = {half.url: new_id() for half in halves}
    directories = (*survey.directories, *(ids[half.url] for half in survey.empty))
    taken: list[BrokerDir] = []
    try:
        for half in survey.usable:
            try:
                log_dir = BrokerDir.take(
                    half,
                    path,
                    cluster_id=cluster_id,
                    node_id=node_id,
                    new=half in survey.empty,
                    new_id=ids[half.url],
                    directories=directories if len(directories) > 1 else (),
                )
            except LockedError:
                raise
            except StorageError as error:
                survey.fail(half, error)
            else:
                taken.append(log_dir)
        if not taken:
            raise survey.failed[0].error
        log_dirs = LogDirs(taken, survey.failed, directories)
    except BaseException:
        for log_dir in taken:
            log_dir.release()
        raise
    if log_dirs.missing:
        logger.error("data directories are missing: %s", ", ".join(map(str, log_dirs.missing)))
    return log_dirs


class _Survey:
    """The state of the data directories before any lock."""

    def __init__(self, halves: Sequence[FileHalf], path: str) -> None:
        self.failed: list[LogDirFailure] = []
        self.known: list[FileHalf] = []
        self.empty: list[FileHalf] = []
        self.directories: list[UUID] = []
        self._path = path
        absent: list[FileHalf] = []
        for half in halves:
            try:
                meta = read_meta(half, path)
                is_there = half.is_folder("")
            except StorageError as error:
                self.fail(half, error)
                continue
            if meta is not None:
                self.known.append(half)
                self._join(half, meta.all_directories)
            else:
                (self.empty if is_there else absent).append(half)
        if self.known:
            for half in absent:
                self.fail(
                    half, MissingPathError(f"{half.url} does not exist: mount it, or make it")
                )
        else:
            self.empty = [half for half in halves if half in self.empty or half in absent]

    @property
    def usable(self) -> list[FileHalf]:
        return [*self.known, *self.empty]

    def fail(self, half: FileHalf, error: StorageError) -> None:
        location = location_of(half, self._path)
        self.failed.append(LogDirFailure(location=location, error=error))
        logger.error("%s does not work: %s", location, error)

    def _join(self, half: FileHalf, directories: Sequence[UUID]) -> None:
        if self.directories and self.directories[0] != directories[0]:
            raise BrokerStartError(
                "config",
                f"{half.url}/{self._path} and {self.known[0].url}/{self._path} never belonged to "
                "the same broker; give the data directories that it was started with",
            )
        self.directories += [other for other in directories if other not in self.directories]
