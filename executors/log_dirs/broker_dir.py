"""One log directory of a broker, ``broker-<id>``: its identity and its checkpoints.

Owns: ``meta.properties``, the lock, the clean-shutdown file and the offset checkpoints, all in
Kafka's formats.  Must not know partitions' files or the network.  All calls block.
"""

import base64
import binascii
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from sparklog.errors import DecodeError, StartError, StorageError
from sparklog.executors.log import decode_offsets, encode_offsets
from sparklog.executors.log_dirs.checkpoint_reserve import CheckpointReserve
from sparklog.storage_backends.base import FileHalf, Lock, MissingPathError
from sparklog.types import NO_BROKER_EPOCH, TopicPartition

META_PROPERTIES = "meta.properties"
LOCK_FILE = ".lock"
CLEAN_MARKER = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
#: The local log starts of tiered logs; Kafka has no such file.
LOCAL_LOG_STARTS = "local-log-start-offset-checkpoint"
#: The checkpoints, in the order in which they are written.
CHECKPOINTS = (LOG_STARTS, LOCAL_LOG_STARTS, RECOVERY_POINTS)
#: The file that a probe writes to find out whether the disk works.
PROBE_FILE = ".probe"
#: A line of meta.properties that Kafka does not have.
DIRECTORIES = "sparklog.directory.ids"

logger = logging.getLogger(__name__)


class BrokerStartError(StartError):
    """A broker cannot start; ``kind`` tells the supervisor why."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type["BrokerStartError"], tuple[str, str]]:
        return (BrokerStartError, (self.kind, str(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOffsets:
    """The offsets of the logs in a log directory that its checkpoints hold.

    A log is among ``local_log_starts`` only if its local log start is above its log start.
    """

    recovery_points: Mapping[TopicPartition, int] = field(default_factory=dict)
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    local_log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The owner of a log directory (``org.apache.kafka.metadata.properties.MetaProperties``,
    version 1).

    ``directories`` are the directory ids of all log directories of a broker that has several, this
    one included.  Kafka ignores the line.
    """

    cluster_id: str
    node_id: int
    directory_id: UUID
    directories: tuple[UUID, ...] = ()

    @property
    def all_directories(self) -> tuple[UUID, ...]:
        return self.directories or (self.directory_id,)

    def encode(self) -> bytes:
        text = (
            f"version=1\ncluster.id={self.cluster_id}\nnode.id={self.node_id}\n"
            f"directory.id={_id_text(self.directory_id)}\n"
        )
        if self.directories:
            text += f"{DIRECTORIES}={','.join(map(_id_text, self.directories))}\n"
        return text.encode()

    @classmethod
    def decode(cls, data: bytes) -> "MetaProperties":
        """Raises DecodeError."""
        fields: dict[str, str] = {}
        for line in data.decode("utf-8", errors="replace").splitlines():
            name, separator, value = line.partition("=")
            if separator and not line.startswith("#"):
                fields[name.strip()] = value.strip()
        if fields.get("version") != "1":
            raise DecodeError(f"meta.properties version {fields.get('version')!r} is not known")
        try:
            others = fields.get(DIRECTORIES)
            return cls(
                cluster_id=fields["cluster.id"],
                node_id=int(fields["node.id"]),
                directory_id=_read_id(fields["directory.id"]),
                directories=tuple(map(_read_id, others.split(","))) if others else (),
            )
        except (KeyError, ValueError, binascii.Error) as error:
            raise DecodeError(f"meta.properties cannot be read: {error}") from error


def _id_text(directory_id: UUID) -> str:
    return base64.urlsafe_b64encode(directory_id.bytes).rstrip(b"=").decode()


def _read_id(text: str) -> UUID:
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def _read_epoch(marker: bytes) -> int:
    """The broker epoch of a clean stop; -1 if the marker holds none."""
    try:
        epoch = json.loads(marker)["brokerEpoch"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return NO_BROKER_EPOCH
    return epoch if type(epoch) is int else NO_BROKER_EPOCH


class BrokerDir:
    """A locked log directory.

    ``clean`` says that the last broker process stopped cleanly here, with the broker epoch
    ``clean_epoch``.  The marker file itself is deleted already.
    """

    def __init__(self, half: FileHalf, path: str, meta: MetaProperties, lock: Lock) -> None:
        #: The store of the data directory, with the half of its operations that only files have.
        self.half = half
        self.path = path
        self.meta = meta
        self.clean = False
        self.clean_epoch = NO_BROKER_EPOCH
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.local_log_starts: dict[TopicPartition, int] = {}
        self.partition_names: tuple[str, ...] = ()
        self._has_local_log_starts = False
        self._reserve = CheckpointReserve(half, path)
        self._lock = lock

    @property
    def location(self) -> str:
        """The path or URL, for messages."""
        return location_of(self.half, self.path)

    @classmethod
    def take(
        cls,
        half: FileHalf,
        path: str,
        *,
        cluster_id: str,
        node_id: int,
        new: bool,
        new_id: UUID,
        directories: tuple[UUID, ...] = (),
    ) -> "BrokerDir":
        """Lock the log directory and check that it belongs to this broker.

        Args:
            half: the store of the data directory.
            path: the log directory in that store.
            cluster_id: the cluster that the directory must belong to.
            node_id: the broker that the directory must belong to.
            new: create the directory if it does not exist.
            new_id: the directory id of a new log directory.
            directories: the ids of all log directories of the broker, if it has several.

        Raises BrokerStartError (``not_here``, ``foreign_cluster``, ``config``), LockedError,
        StorageError.
        """
        if not half.is_folder(path):
            if not new:
                raise BrokerStartError("not_here", f"{half.url} holds no log directory {path}")
            half.make_folder(path)
        lock = half.lock(f"{path}/{LOCK_FILE}")
        try:
            meta = _read_or_create_meta(
                half,
                path,
                cluster_id=cluster_id,
                node_id=node_id,
                new=new,
                new_id=new_id,
                directories=directories,
            )
            log_dir = cls(half, path, meta, lock)
            log_dir._remove_leftovers()
            log_dir._read_notes()
        except BaseException:
            lock.release()
            raise
        return log_dir

    def write_checkpoints(self, offsets: LogOffsets) -> None:
        """Write the checkpoints, durably.

        The log starts come first: deletion moves the recovery point together with a log start, so a
        start must not find the new recovery point without the new log start.

        On a full disk they are written into the reserve in place of their files, because whatever
        frees the disk waits for them.
        """
        self._has_local_log_starts |= bool(offsets.local_log_starts)
        checkpoints = self._encode(offsets)
        try:
            for name, data in checkpoints.items():
                self.half.put(f"{self.path}/{name}", data)
        except StorageError as error:
            if not error.is_full or not self._write_reserve(checkpoints):
                raise
        else:
            self._reserve.make_ready(checkpoints)

    def _encode(self, offsets: LogOffsets) -> dict[str, bytes]:
        """The contents of the checkpoints by name, in the order in which they are written."""
        offsets_by_name = {LOG_STARTS: offsets.log_starts}
        if self._has_local_log_starts:
            offsets_by_name[LOCAL_LOG_STARTS] = offsets.local_log_starts
        offsets_by_name[RECOVERY_POINTS] = offsets.recovery_points
        return {
            name: encode_offsets(dict(sorted(each.items())))
            for name, each in offsets_by_name.items()
        }

    def _write_reserve(self, checkpoints: Mapping[str, bytes]) -> bool:
        """Write the checkpoints into the reserve; False if it has no room.

        A file counts more than the reserve.  The log starts may have a file that is older than
        these checkpoints, as there was room for it, while the others have none: beside them it
        would be behind the recovery points.  So the reserve first takes over what the files say.
        """
        was_used = self._reserve.is_used
        if was_used and (files := self._checkpoint_files()):
            if not self._reserve.write({**self._reserve.contents, **files}):
                return False
            self._delete_checkpoints(files)
        if not self._reserve.write(checkpoints):
            return False
        if not was_used:
            logger.warning("the disk of %s is full: its reserve has the checkpoints", self.location)
            self._delete_checkpoints(checkpoints)
        return True

    def _checkpoint_files(self) -> dict[str, bytes]:
        """The contents of the checkpoints that have a file, in the order of the writes."""
        paths = {name: f"{self.path}/{name}" for name in CHECKPOINTS}
        found = {name: self.half.read_if_there(path) for name, path in paths.items()}
        return {name: data for name, data in found.items() if data is not None}

    def _delete_checkpoints(self, names: Iterable[str]) -> None:
        """Delete the files of checkpoints that the reserve has, in the order of the writes."""
        for name in names:
            self.half.delete(f"{self.path}/{name}")
            self.half.flush_folder(self.path)

    def write_clean_marker(self, broker_epoch: int) -> None:
        """Write the clean-shutdown file, the last step of a stop (``CleanShutdownFileHandler``)."""
        document = {"version": 0, "brokerEpoch": broker_epoch}
        self.half.put(f"{self.path}/{CLEAN_MARKER}", json.dumps(document).encode())

    @property
    def noted(self) -> LogOffsets:
        """The offsets that the checkpoints held at the start, without those of deleted logs."""
        return LogOffsets(
            recovery_points=self.recovery_points,
            log_starts=self.log_starts,
            local_log_starts=self.local_log_starts,
        )

    def forget(self, topic_partition: TopicPartition) -> None:
        """Forget what the checkpoints held of a deleted partition."""
        for offsets in (self.recovery_points, self.log_starts, self.local_log_starts):
            offsets.pop(topic_partition, None)

    def release(self) -> None:
        self._lock.release()

    def probe(self) -> None:
        """Write a file durably.  Raises StorageError when the disk fails, or when this log
        directory does not exist any more."""
        self.require_here()
        self.half.put(f"{self.path}/{PROBE_FILE}", b"")

    def require_here(self) -> None:
        """Raise StorageError if the log directory is gone, or another one is in its place."""
        try:
            found = read_meta(self.half, self.path)
        except BrokerStartError as error:
            raise StorageError(str(error)) from error
        if found is None or found.directory_id != self.meta.directory_id:
            raise MissingPathError(
                f"{self.location} is gone: it holds no {META_PROPERTIES} of directory "
                f"{self.meta.directory_id} any more"
            )

    def _remove_leftovers(self) -> None:
        """Remove the half-written files of a killed process, here and in partition directories."""
        half, path = self.half, self.path
        half.remove_leftovers(path)
        partition_names = [name for name in half.list(path) if half.is_folder(f"{path}/{name}")]
        for name in partition_names:
            half.remove_leftovers(f"{path}/{name}")
        self.partition_names = tuple(partition_names)

    def _read_notes(self) -> None:
        self._reserve.load()
        self.recovery_points = self._read_offsets(RECOVERY_POINTS)
        self.log_starts = self._read_offsets(LOG_STARTS)
        self.local_log_starts = self._read_offsets(LOCAL_LOG_STARTS)
        self._has_local_log_starts = bool(self.local_log_starts)
        if not self._reserve.exists:
            self._reserve.make_ready(self._encode(self.noted))
        marker = f"{self.path}/{CLEAN_MARKER}"
        self.clean = self.half.exists(marker)
        if self.clean:
            self.clean_epoch = _read_epoch(self.half.read(marker))
            self.half.delete(marker)
        # Also without a marker: a start that could not flush its deletion may have come before this
        # one, and a loss of power would bring the marker back.
        self.half.flush_folder(self.path)

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        path = f"{self.path}/{name}"
        data = self.half.read_if_there(path)
        if data is None:
            data = self._reserve.contents.get(name)
        if data is None:
            return {}
        try:
            return decode_offsets(data)
        except DecodeError as error:
            # Recovery then reads more than it must, and records that DeleteRecords hid inside a
            # segment are visible again (as in Kafka); no record is lost.  The files of a tiered log
            # begin at its first segment then.
            logger.warning("%s is ignored: %s", path, error)
            return {}


def location_of(half: FileHalf, path: str) -> str:
    """A directory for messages: a path for local files, otherwise a URL."""
    return f"{half.url.removeprefix('file://')}/{path}"


def read_meta(half: FileHalf, path: str) -> MetaProperties | None:
    """Read ``meta.properties``; None if there is none.  Raises BrokerStartError, StorageError."""
    file = f"{path}/{META_PROPERTIES}"
    if not half.exists(file):
        return None
    try:
        return MetaProperties.decode(half.read(file))
    except DecodeError as error:
        raise BrokerStartError("config", f"{half.url}/{file}: {error}") from error


def _read_or_create_meta(
    half: FileHalf,
    path: str,
    *,
    cluster_id: str,
    node_id: int,
    new: bool,
    new_id: UUID,
    directories: tuple[UUID, ...],
) -> MetaProperties:
    file = f"{path}/{META_PROPERTIES}"
    meta = read_meta(half, path)
    if meta is None:
        if not new:
            raise BrokerStartError("not_here", f"{half.url}/{path} holds no {META_PROPERTIES}")
        meta = MetaProperties(
            cluster_id=cluster_id, node_id=node_id, directory_id=new_id, directories=directories
        )
        half.put(file, meta.encode())
        return meta
    if meta.cluster_id != cluster_id:
        raise BrokerStartError(
            "foreign_cluster",
            f"{half.url}/{path} belongs to cluster {meta.cluster_id}, not to {cluster_id}; "
            "choose another data_dir",
        )
    if meta.node_id != node_id:
        raise BrokerStartError(
            "config", f"{half.url}/{path} belongs to broker {meta.node_id}, not to {node_id}"
        )
    if directories and meta.directories != directories:
        meta = replace(meta, directories=directories)
        half.put(file, meta.encode())
    return meta
