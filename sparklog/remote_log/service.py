"""The remote logs as a broker uses them: calls with plain values, each of which blocks.

Owns: the manifests in use, and which objects a call reads, writes or deletes.  Must not know where
it runs: in a process of its own, or in the worker threads of a simulation.

Calls may overlap, in different threads.  Those that change the manifest of one partition follow
one another.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.remote_log import names
from sparklog.remote_log.copy_job import CopyJob
from sparklog.remote_log.copying import copy_segment
from sparklog.remote_log.manifest import Manifest
from sparklog.remote_log.manifest_log import ManifestLog
from sparklog.remote_log.parts import PartCache
from sparklog.remote_log.reading import RemoteRead, RemoteReader
from sparklog.remote_log.remote_segment import EpochStart, RemoteSegment
from sparklog.storage_backends.base import FileHalf, MissingPathError, StorageBackend
from sparklog.types import NO_OFFSET, OffsetTimestamp

T = TypeVar("T")


class RemotePartition(NamedTuple):
    """A partition of the topic with this id."""

    topic_id: UUID
    partition: int


class RemoteLogState(NamedTuple):
    """A remote log after a call.  Without segments ``end_offset`` is NO_OFFSET.

    ``log_bytes`` are those that retention counts, ``remote_bytes`` those of all objects.
    """

    log_start_offset: int
    end_offset: int
    segments: int
    log_bytes: int
    remote_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderLog:
    """The log of a leader: its offsets, and its leader epochs from the log start on."""

    log_start_offset: int
    local_log_start_offset: int
    log_end_offset: int
    leader_epochs: tuple[EpochStart, ...]


class FollowerState(NamedTuple):
    """The state with which a follower may start at ``offset``.

    ``leader_epochs`` reach from the log start to the offset.  ``producer_snapshot`` is None if the
    log that was copied had none there.
    """

    offset: int
    leader_epochs: tuple[EpochStart, ...]
    producer_snapshot: bytes | None


#: Reads (object path, object size, offset, size) of an object.
ReadObject: TypeAlias = Callable[[str, int, int, int], bytes]


@dataclass(slots=True)
class _OpenManifest:
    """A manifest in use.  ``lock`` is held by every call that changes or looks at it."""

    log: ManifestLog
    lock: AbstractContextManager[Any]
    is_loaded: bool = False


class RemoteLogService:
    """The remote logs of one cluster in one store.

    Args:
        remote: the store.
        open_local: opens the store of a log by its URL.
        read: reads ranges of objects, through a cache; from the store without one.
        moved: called with the number of copied bytes; may wait.
        new_lock: makes a lock, where calls overlap.

    All methods raise StorageError when the store fails; the call may be repeated then.
    """

    def __init__(
        self,
        remote: StorageBackend,
        open_local: Callable[[str], FileHalf],
        *,
        read: ReadObject | None = None,
        moved: Callable[[CopyJob, int], None] = lambda job, size: None,
        new_lock: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._remote = remote
        self._open_local = open_local
        self._read = read or (lambda path, _, offset, size: remote.read(path, offset, size))
        self._moved = moved
        self._new_lock = new_lock
        self._parts = PartCache()
        self._manifests: dict[RemotePartition, _OpenManifest] = {}
        self._guard = new_lock()

    def check(self, cluster_id: str) -> None:
        """Check that the store can hold manifests, can be written, and belongs to this cluster.

        A store without an owner gets this cluster as its owner.  Raises StorageError.
        """
        if not self._remote.proves_put_if_absent():
            raise StorageError(
                f"{self._remote.url} cannot create a file only if it is absent; choose a "
                "remote_dir in a bucket that has conditional writes, or on a shared disk"
            )
        document = json.dumps({"cluster_id": cluster_id}).encode()
        if self._remote.put_if_absent(names.CLUSTER_FILE, document):
            return
        owner = self.owner()
        if owner != cluster_id:
            raise StorageError(
                f"{self._remote.url} holds the remote logs of cluster {owner}, not of "
                f"{cluster_id}; choose another remote_dir"
            )
        self._remote.put(names.CLUSTER_FILE, document)  # shows that the store can be written

    def owner(self) -> str | None:
        """The id of the cluster that the store belongs to; None for a store without an owner.

        The id is "unknown" if the file that should name it is damaged.  Raises StorageError.
        """
        document = self._remote.read_if_there(names.CLUSTER_FILE)
        if document is None:
            return None
        try:
            return str(json.loads(document)["cluster_id"])
        except (ValueError, LookupError, TypeError):
            return "unknown"

    # -- leading

    def begin_leadership(
        self, partition: RemotePartition, leader_epoch: int, nonce: str, log: LeaderLog, now_ms: int
    ) -> RemoteLogState:
        """Take the manifest over for a new leader, and make it agree with the leader's log.

        After an unclean election the segments may have records that the leader does not have; these
        segments leave the manifest.  If the leader's files begin above the end of the segments
        then, the records between them are lost, and all segments leave the manifest.

        Raises DeposedLeaderError: a newer leader has taken it over.
        """
        with self._changing(partition) as manifest_log:
            manifest = manifest_log.begin_leadership(leader_epoch, nonce, now_ms)
            diverges_at = manifest.divergence(log.leader_epochs, log.log_end_offset)
            if diverges_at is not None:
                manifest_log.commit(manifest.truncate_after(diverges_at, now_ms), now_ms)
            end = manifest.end_offset
            has_gap = end is None or end < log.local_log_start_offset
            start = log.local_log_start_offset if has_gap else log.log_start_offset
            manifest_log.commit(manifest.move_log_start(start, now_ms), now_ms)
            return _state(manifest)

    def copy(self, job: CopyJob) -> RemoteSegment:
        """Copy a segment.  It is not in the log before ``add_segment``.

        Raises CorruptLogError: the local file is damaged; nothing was copied.
        """
        local = self._open_local(job.url)
        return copy_segment(job, local, self._remote, lambda size: self._moved(job, size))

    def add_segment(
        self, partition: RemotePartition, segment: RemoteSegment, now_ms: int
    ) -> RemoteLogState:
        """Add a copied segment.  Raises DeposedLeaderError, MisfitError."""
        with self._changing(partition) as manifest_log:
            manifest_log.commit(manifest_log.manifest.add_segment(segment), now_ms)
            return _state(manifest_log.manifest)

    def move_log_start(
        self, partition: RemotePartition, offset: int, now_ms: int
    ) -> RemoteLogState:
        """Move the log start up; segments below it become garbage.  Raises DeposedLeaderError."""
        with self._changing(partition) as manifest_log:
            manifest = manifest_log.manifest
            manifest_log.commit(manifest.move_log_start(offset, now_ms), now_ms)
            return _state(manifest)

    def retained_from(
        self,
        partition: RemotePartition,
        *,
        retention_ms: int,
        retention_bytes: int,
        local_bytes_above: int,
        now_ms: int,
    ) -> int:
        """The offset at which the log starts after retention, which counts both tiers; NO_OFFSET
        if nothing goes.  See ``Manifest.expired``."""
        with self._changing(partition) as manifest_log:
            manifest = manifest_log.manifest
            expired = manifest.expired(
                retention_ms=retention_ms,
                retention_bytes=retention_bytes,
                local_bytes_above=local_bytes_above,
                now_ms=now_ms,
            )
            return manifest.end_of_first(len(expired)) if expired else NO_OFFSET

    def collect_garbage(self, partition: RemotePartition, delay_ms: int, now_ms: int) -> int:
        """Delete the objects of segments that left the manifest ``delay_ms`` ago; return how many
        segments.  Raises DeposedLeaderError."""
        with self._changing(partition) as manifest_log:
            manifest = manifest_log.manifest
            due = manifest.garbage_due(now_ms, delay_ms)
            if due:
                folder = names.segments_folder(*partition)
                self._remote.delete_many(
                    [
                        path
                        for each in due
                        for path in (
                            names.log_object(folder, each),
                            names.indexes_object(folder, each),
                        )
                    ]
                )
                manifest_log.commit(manifest.delete_objects(due), now_ms)
            return len(due)

    # -- reading

    def read(
        self, partition: RemotePartition, offset: int, max_bytes: int, *, with_aborted: bool
    ) -> RemoteRead:
        """Read whole batches from the batch that holds ``offset`` on, at least one.

        Raises KafkaError(OFFSET_OUT_OF_RANGE): no segment holds the offset.
        """

        def read_in(segment: RemoteSegment) -> RemoteRead:
            return self._reader(partition, segment).read_batches(
                segment,
                offset,
                max_bytes,
                end_offset=segment.next_offset,
                with_aborted=with_aborted,
            )

        return self._in_segment(partition, offset, read_in)

    def find_timestamp(
        self, partition: RemotePartition, timestamp: int, start_offset: int
    ) -> OffsetTimestamp | None:
        """The first record from ``start_offset`` on with at least this timestamp (ms); None if the
        segments have none."""
        first = self._look(partition, lambda manifest: manifest.first_by_time(timestamp))
        offset = start_offset if first is None else max(first.base_offset, start_offset)
        while first is not None:
            segment = self._look(partition, partial(_segment_at, offset))
            if segment is None:
                return None
            reader = self._reader(partition, segment)
            found = reader.find_timestamp(segment, timestamp, start_offset=start_offset)
            if found is not None:
                return found
            offset = segment.next_offset
        return None

    def follower_state(self, partition: RemotePartition, local_start: int) -> FollowerState:
        """The state for a follower that starts at the end of the segment with the last record below
        ``local_start``.

        Raises KafkaError(OFFSET_OUT_OF_RANGE): no segment holds that record.
        """

        def read_in(segment: RemoteSegment) -> FollowerState:
            reader = self._reader(partition, segment)
            return FollowerState(
                segment.next_offset,
                reader.leader_epochs(segment),
                reader.producer_snapshot(segment),
            )

        return self._in_segment(partition, local_start - 1, read_in)

    def segments_between(
        self, partition: RemotePartition, start: int, end: int
    ) -> Sequence[RemoteSegment]:
        """The segments with offsets in [``start``, ``end``)."""
        return self._look(partition, lambda manifest: manifest.segments_between(start, end))

    def _in_segment(
        self, partition: RemotePartition, offset: int, use: Callable[[RemoteSegment], T]
    ) -> T:
        """Use the segment that holds an offset.  The manifest is read again if there is none, or if
        its objects are gone: another broker may have changed it."""
        for refreshes in (False, True):
            segment = self._look(
                partition, lambda manifest: manifest.segment_at(offset), refreshes=refreshes
            )
            if segment is not None:
                try:
                    return use(segment)
                except MissingPathError:
                    if refreshes:
                        raise
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"no segment of {partition.topic_id}-{partition.partition} in {self._remote.url} holds "
            f"offset {offset}",
        )

    def _reader(self, partition: RemotePartition, segment: RemoteSegment) -> RemoteReader:
        """The reader of one segment: the sizes of its objects are known."""
        folder = names.segments_folder(*partition)
        log = names.log_object(folder, segment.segment_id)

        def read(path: str, offset: int, size: int) -> bytes:
            total = segment.log_size if path == log else segment.size - segment.log_size
            return self._read(path, total, offset, size)

        return RemoteReader(read, folder, self._parts)

    def _look(
        self,
        partition: RemotePartition,
        look: Callable[[Manifest], T],
        *,
        refreshes: bool = False,
    ) -> T:
        opened = self._opened(partition)
        with opened.lock:
            if refreshes or not opened.is_loaded:
                opened.log.refresh()
                opened.is_loaded = True
            return look(opened.log.manifest)

    # -- manifests

    @contextmanager
    def _changing(self, partition: RemotePartition) -> Iterator[ManifestLog]:
        opened = self._opened(partition)
        with opened.lock:
            opened.is_loaded = True  # leaders have begun
            yield opened.log

    def _opened(self, partition: RemotePartition) -> _OpenManifest:
        with self._guard:
            opened = self._manifests.get(partition)
            if opened is None:
                log = ManifestLog(self._remote, *partition)
                opened = self._manifests[partition] = _OpenManifest(log, self._new_lock())
            return opened

    def forget(self, partition: RemotePartition) -> None:
        """Forget a manifest that is not used any more."""
        with self._guard:
            self._manifests.pop(partition, None)


def _segment_at(offset: int, manifest: Manifest) -> RemoteSegment | None:
    return manifest.segment_at(offset)


def _state(manifest: Manifest) -> RemoteLogState:
    start, end = manifest.log_start_offset, manifest.end_offset
    return RemoteLogState(
        log_start_offset=NO_OFFSET if start is None else start,
        end_offset=NO_OFFSET if end is None else end,
        segments=manifest.segment_count,
        log_bytes=manifest.log_bytes,
        remote_bytes=manifest.remote_bytes,
    )
