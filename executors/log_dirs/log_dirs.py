"""A broker's folders, where its logs lie on several disks: whose, what is where, what works.

Owns: the identity that they share, the choice of a folder for a new partition, and which of them
work.  Must not know open logs or the network.  Taking them blocks.

Every folder has a directory id, lock, marker and checkpoints of its own, and knows the directory
ids of the others.  So a broker that finds one missing or empty knows that partitions may lie in it,
and does not make them anew elsewhere.
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
from sparklog.executors.log_dirs.partition_dirs import parse_folder
from sparklog.storage_backends.base import FileHalf, MissingPathError
from sparklog.storage_backends.large_writes import DIRECT_APPEND_BYTES
from sparklog.storage_backends.registry import open_file_half
from sparklog.types import NO_BROKER_EPOCH, TopicPartition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFailure:
    """A folder that does not work: where, and why."""

    location: str
    error: StorageError


class LogDirs:
    """The folders of one broker.  ``working`` shrinks as disks fail, and ``failed`` grows."""

    def __init__(
        self,
        working: Sequence[BrokerDir],
        failed: Sequence[FolderFailure] = (),
        directories: Sequence[UUID] = (),
    ) -> None:
        self.working = list(working)
        self.failed = list(failed)
        #: Directory ids of this broker's folders, those included that are not here.
        self.directories = tuple(directories) or tuple(f.meta.directory_id for f in working)
        self._homes: dict[TopicPartition, BrokerDir] = {}
        self._taken = tuple(working)
        for folder in working:
            for name in folder.partition_names:
                self._settle(name, folder)

    def __iter__(self) -> Iterator[BrokerDir]:
        return iter(tuple(self.working))

    @property
    def directory_id(self) -> UUID:
        """By which the cluster knows this broker's disks: the id of its first folder ever."""
        return self.directories[0]

    @property
    def clean(self) -> bool:
        """Whether the last broker stopped cleanly in all of them, and in all at once."""
        stops = {folder.clean_epoch for folder in self._taken}
        whole = not self.failed and all(folder.clean for folder in self._taken)
        return whole and len(stops) <= 1

    @property
    def clean_epoch(self) -> int:
        """The broker epoch of that stop; -1 when it is not known."""
        return self._taken[0].clean_epoch if self._taken else NO_BROKER_EPOCH

    @property
    def missing(self) -> tuple[UUID, ...]:
        """Directory ids of folders that do not work or are not here."""
        here = {folder.meta.directory_id for folder in self.working}
        return tuple(directory for directory in self.directories if directory not in here)

    def release(self) -> None:
        for folder in self._taken:
            folder.release()

    # what is where

    def find(self, topic_partition: TopicPartition) -> BrokerDir | None:
        """The folder that holds a partition; it may have failed."""
        return self._homes.get(topic_partition)

    def home(self, topic_partition: TopicPartition, *, is_new: bool) -> BrokerDir:
        """The folder of a partition, chosen if none has it.

        Raises StorageError when its folder does not work, or may be one that is missing, which it
        cannot if the partition is new.
        """
        folder = self._homes.get(topic_partition) or self.held(topic_partition)
        if folder is None:
            if self.missing and not is_new:
                raise StorageError(
                    f"{topic_partition} is in none of the data directories that work, and "
                    f"directory {', '.join(map(str, self.missing))} is missing: mount its disk, or "
                    "delete the topic"
                )
            return self.choose(topic_partition)
        for failure in self.failed:
            if failure.location == folder.location:
                raise failure.error
        self._homes[topic_partition] = folder
        return folder

    def held(self, topic_partition: TopicPartition) -> BrokerDir | None:
        """The folder whose checkpoint says that a log of this partition was opened in it before
        this start, and not deleted since."""
        return next((f for f in self.working if topic_partition in f.recovery_points), None)

    def choose(self, topic_partition: TopicPartition) -> BrokerDir:
        """A home for a new partition: where the fewest are.  Raises StorageError when none works.

        It counts from now on.
        """
        if not self.working:
            raise StorageError("none of the broker's data directories works")
        counts = Counter(id(folder) for folder in self._homes.values())
        home = min(self.working, key=lambda folder: counts[id(folder)])
        self._homes[topic_partition] = home
        return home

    def forget(self, topic_partition: TopicPartition) -> None:
        """The partition has been deleted."""
        self._homes.pop(topic_partition, None)
        for folder in self._taken:
            folder.recovery_points.pop(topic_partition, None)
            folder.log_starts.pop(topic_partition, None)

    def remember(self, topic_partition: TopicPartition, folder: BrokerDir) -> None:
        """A deleted partition may still lie there: of its name none is made elsewhere."""
        self._homes.setdefault(topic_partition, folder)

    def fail(self, folder: BrokerDir, error: StorageError) -> list[TopicPartition]:
        """A folder works no more; the partitions that it held."""
        if folder not in self.working:
            return []
        self.working.remove(folder)
        self.failed.append(FolderFailure(location=folder.location, error=error))
        logger.critical("%s does not work any more: %s", folder.location, error)
        return [tp for tp, home in self._homes.items() if home is folder]

    def _settle(self, name: str, folder: BrokerDir) -> None:
        tp = parse_folder(name)
        if tp is None:
            return
        other = self._homes.setdefault(tp, folder)
        if other is not folder:
            raise BrokerStartError(
                "config",
                f"{tp} lies in both {other.location} and {folder.location}; move one of the two "
                "away",
            )


def open_data_dirs(data_dirs: Sequence[str], direct_append_bytes: int) -> list[FileHalf]:
    """The stores of these paths or URLs; nothing is locked or made.  Raises StorageError."""
    options = {DIRECT_APPEND_BYTES: direct_append_bytes}
    return [open_file_half(each, options) for each in data_dirs]


def take_folders(
    halves: Sequence[FileHalf],
    path: str,
    *,
    cluster_id: str,
    node_id: int,
    new: bool,
    new_id: Callable[[], UUID],
) -> LogDirs:
    """Lock a broker's folders and check that they are ours; make those that are not there.

    All of them are made only when the broker may be ``new``; one of several whose disk is missing
    has failed.  Raises BrokerStartError (``not_here``, ``foreign_cluster``, ``config``),
    LockedError, and StorageError when none works.
    """
    survey = _Survey(halves, path)
    if not survey.known and not new:
        if survey.failed:
            raise survey.failed[0].error
        where = " and ".join(half.url for half in halves)
        raise BrokerStartError("not_here", f"{where} holds no folder {path}")
    ids = {half.url: new_id() for half in halves}
    directories = (*survey.directories, *(ids[half.url] for half in survey.empty))
    taken: list[BrokerDir] = []
    try:
        for half in survey.usable:
            try:
                folder = BrokerDir.take(
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
                taken.append(folder)
        if not taken:
            raise survey.failed[0].error
        folders = LogDirs(taken, survey.failed, directories)
    except BaseException:
        for folder in taken:
            folder.release()
        raise
    if folders.missing:
        logger.error("data directories are missing: %s", ", ".join(map(str, folders.missing)))
    return folders


class _Survey:
    """What lies where, before anything is locked."""

    def __init__(self, halves: Sequence[FileHalf], path: str) -> None:
        self.failed: list[FolderFailure] = []
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
        self.failed.append(FolderFailure(location=location, error=error))
        logger.error("%s does not work: %s", location, error)

    def _join(self, half: FileHalf, directories: Sequence[UUID]) -> None:
        if self.directories and self.directories[0] != directories[0]:
            raise BrokerStartError(
                "config",
                f"{half.url}/{self._path} and {self.known[0].url}/{self._path} never belonged to "
                "the same broker; give the data directories that it was started with",
            )
        self.directories += [other for other in directories if other not in self.directories]
