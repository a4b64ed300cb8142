"""The remote logs as a broker uses them: calls with plain values, each of which blocks.

Owns: which objects a call reads, writes or deletes, and which changes of a manifest it makes.  Must
not know where it runs: in a process of its own, or in the worker threads of a simulation.

Calls may overlap, in different threads.  Those that change the manifest of one partition follow
one another.  A call that changes a manifest is made by the leader that has taken it over, and may
be repeated after a StorageError: a change that was made by the first call is not made again.
"""

import json
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any
from uuid import UUID

from sparklog.errors import ChangedFileError
from sparklog.remote_log import names, sweep, takeover
from sparklog.remote_log.aborted_txns import RemoteAbortedTxn
from sparklog.remote_log.added_copies import COPY_MS_MAX, check_copy, has_passed
from sparklog.remote_log.copy_job import CopyJob
from sparklog.remote_log.copying import copy_segment
from sparklog.remote_log.damaged_object import GoneObjectError
from sparklog.remote_log.garbage import (
    GARBAGE_SEGMENTS_MAX,
    CollectedGarbage,
    GarbageCollector,
)
from sparklog.remote_log.lookups import Lookups, finder
from sparklog.remote_log.manifest import Manifest, Records
from sparklog.remote_log.open_manifests import (
    ClockMs,
    NewLock,
    NotLeadingError,
    OpenManifests,
    RemotePartition,
    commit,
)
from sparklog.remote_log.owner import StoreOwner
from sparklog.remote_log.parts import PartCache, ReadObject
from sparklog.remote_log.reading import FindPieces, RemoteRead, RemoteReader
from sparklog.remote_log.reads_in_a_row import reads_in_a_row
from sparklog.remote_log.remote_segment import (
    UNBOUNDED,
    EpochStart,
    RemoteSegment,
    TimeBounds,
)
from sparklog.remote_log.signed_segments import SignedPage, sign_segments
from sparklog.remote_log.states import (
    FollowerState,
    RemoteLogState,
    follower_state,
    lineage_of,
    state_of,
)
from sparklog.remote_log.sweep import SweptOrphans, SweptTopic
from sparklog.remote_log.takeover import LeaderLog, MissingManifestError, ShortLineageError
from sparklog.storage_backends.base import FileHalf, MissingPathError, StorageBackend
from sparklog.types import MAX_INT64, NO_LEADER_EPOCH, NO_OFFSET, OffsetTimestamp
from sparklog.wire.records.batch import Buffer

__all__ = [
    "COPY_MS_MAX",
    "GARBAGE_SEGMENTS_MAX",
    "CollectedGarbage",
    "FollowerState",
    "LeaderLog",
    "MissingManifestError",
    "NotLeadingError",
    "RemoteLogService",
    "RemoteLogState",
    "RemotePartition",
    "ShortLineageError",
    "SweptOrphans",
    "SweptTopic",
]

logger = logging.getLogger(__name__)


class RemoteLogService:
    """The remote logs of one cluster in one store.

    Args:
        remote: the store.
        open_local: opens the store of a log by its URL.
        read: reads ranges of objects, through a cache; from the store without one.  ``read_once``
            is for lookups.
        find_pieces: finds what was read in the files of that cache.
        moved: called with the number of copied bytes; may wait.
        new_lock: makes a lock, where calls overlap.
        clock_ms: the time of day, where calls wait for one another or for the store.

    ``now_ms`` is the time at which a call was made; what it decides has the time of ``clock_ms``.

    All methods raise StorageError when the store fails; the call may be repeated then.  They raise
    ManifestError when a manifest is damaged, and DamagedObjectError when an object of a segment is
    damaged, too short or gone.  Those of a leader raise NotLeadingError when it has
    not begun in this process, and DeposedLeaderError when another leader has taken over.
    """

    def __init__(
        self,
        remote: StorageBackend,
        open_local: Callable[[str], FileHalf],
        *,
        read: ReadObject | None = None,
        read_once: ReadObject | None = None,
        find_pieces: FindPieces = lambda path, offset, size: (),
        moved: Callable[[CopyJob, int], None] = lambda job, size: None,
        new_lock: NewLock = nullcontext,
        clock_ms: ClockMs = lambda: 0,
    ) -> None:
        self.owner = StoreOwner(remote)
        self._remote = remote
        self._open_local = open_local
        self._read = read or (lambda path, _, offset, size: remote.read(path, offset, size))
        self._read_once = read_once or self._read
        self._find_pieces = find_pieces
        self._moved = moved
        self._clock_ms = clock_ms
        self._parts = PartCache()
        self._manifests = OpenManifests(remote, new_lock, self.owner.check_again)
        self._lookups = Lookups(self._manifests, remote.url)
        self._garbage = GarbageCollector(remote, self._manifests)

    # -- leading

    def begin_leadership(
        self, partition: RemotePartition, leader_epoch: int, nonce: str, log: LeaderLog, now_ms: int
    ) -> RemoteLogState:
        """Take the manifest over for a new leader, and make it agree with the leader's log.

        A leader that has begun already begins again, also after a restart in the same epoch with
        the same nonce.  What leaves the manifest is told in ``takeover``.  Of a segment in which
        the logs diverge, the beginning stays if the leader's files do not have it.  A log that ends
        below the log start of the manifest has lost everything that was there, and the manifest
        begins anew with it.

        Raises:
            DeposedLeaderError: a leader of a higher epoch has taken the manifest over, or another
                leader of the same epoch.
            ShortLineageError: the leader epochs of the log begin above its start.
            DamagedObjectError: the segment in which the logs diverge is damaged, and its beginning
                must stay.
            MissingManifestError: there never was a manifest, and the leader's log has records that
                are not in its files.

        Nothing has changed after these errors, and the older leader has not been shut out.
        """
        clock_ms = self._clock(now_ms)

        def check_new() -> None:
            takeover.check_new_manifest(log, "{}-{}".format(*partition), self._remote.url)

        def truncate(manifest: Manifest, at_ms: int) -> Records:
            offset = takeover.diverges_at(manifest, log, manifest_log.url)
            if offset is None:
                return ()
            whole = takeover.segment_to_shorten(manifest, log, offset)
            shortened = whole and self._reader(partition, whole).beginning(whole, offset)
            return manifest.truncate_after(offset, at_ms, shortened)

        self.owner.check_again()
        with self._manifests.taking_over(partition) as manifest_log:
            manifest_log.begin_leadership(
                leader_epoch, nonce, clock_ms(), check_new, lambda each: truncate(each, clock_ms())
            )
            commit(manifest_log, truncate, clock_ms)  # a leader that begins again has none yet
            is_lost = takeover.ends_below_start(manifest_log.manifest, log)
            start = takeover.log_start(manifest_log.manifest, log)
            lost = takeover.lost_offsets(manifest_log.manifest, log)
            if lost and not is_lost:
                self._tell_loss(partition, lost)
            commit(
                manifest_log,
                lambda each, at_ms: (
                    each.begin_anew(start) if is_lost else each.move_log_start(start, at_ms)
                ),
                clock_ms,
            )
            return state_of(manifest_log.manifest)

    def _clock(self, called_ms: int) -> ClockMs:
        """The time of day while a call is done that was made at ``called_ms``."""
        return lambda: max(called_ms, self._clock_ms())

    def _tell_loss(self, partition: RemotePartition, lost: range) -> None:
        """Keep what is left of the partition for an operator, and say so."""
        path, (start, stop) = names.lost_file(*partition), (lost.start, lost.stop)
        self._remote.put_if_absent(path, json.dumps({"from": start, "to": stop}).encode())
        logger.error(
            "the records of %s-%d at the offsets [%d, %d) are in neither tier, so the log starts "
            "above them; older objects stay until you delete %s/%s (docs/tiering.md)",
            *(*partition, start, stop, self._remote.url, path),
        )

    def copy(self, job: CopyJob) -> RemoteSegment:
        """Copy a segment.  It is not in the log before ``add_segment``.

        Raises CorruptLogError: the local file is damaged; nothing was copied.
        """
        # What is copied below the mount point of a folder would be gone once it is mounted again.
        self.owner.check_again()
        local = self._open_local(job.url)
        return copy_segment(job, local, self._remote, lambda size: self._moved(job, size))

    def add_segment(
        self, partition: RemotePartition, segment: RemoteSegment, now_ms: int
    ) -> RemoteLogState:
        """Add a segment that this leader has copied.

        Nothing changes if the log has these offsets already, or starts above them: the call is
        repeated, or an earlier copy was added by a call whose answer was lost.  The state tells
        where the next copy begins; the objects of a copy that was not added are orphans.

        Raises:
            DeposedLeaderError: another leader has taken over, or the copy was made in another
                leader epoch.
            MisfitError: the segment begins above the end of the log, or its copy began longer than
                COPY_MS_MAX ago, so that ``sweep_orphans`` may have deleted it; copy it again.
        """

        def decide(manifest: Manifest, _: int) -> Records:
            return () if has_passed(manifest, segment) else manifest.add_segment(segment)

        clock_ms = self._clock(now_ms)
        with self._manifests.leading(partition) as manifest_log:
            check_copy(segment, manifest_log.manifest.leader_epoch, clock_ms())
            commit(manifest_log, decide, clock_ms)
            return state_of(manifest_log.manifest)

    def move_log_start(
        self, partition: RemotePartition, leader_epoch: int, offset: int, now_ms: int
    ) -> RemoteLogState:
        """Move the log start up; segments below it become garbage.

        Nothing changes if the log starts there or above already.  Only the leader of
        ``leader_epoch`` may call this: a later one may have a log that ends below ``offset``.  For
        others it raises DeposedLeaderError.  Raises MisfitError if the log has segments, never had
        a start, and the offset lies below them.
        """
        with self._manifests.leading(partition, leader_epoch) as manifest_log:
            commit(
                manifest_log,
                lambda each, at_ms: each.move_log_start(offset, at_ms),
                self._clock(now_ms),
            )
            return state_of(manifest_log.manifest)

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
        with self._manifests.leading(partition) as manifest_log:
            manifest = manifest_log.manifest
            expired = manifest.expired(
                retention_ms=retention_ms,
                retention_bytes=retention_bytes,
                local_bytes_above=local_bytes_above,
                now_ms=now_ms,
            )
            return manifest.end_of_first(len(expired)) if expired else NO_OFFSET

    def collect_garbage(
        self, partition: RemotePartition, delay_ms: int, now_ms: int
    ) -> CollectedGarbage:
        """Delete the objects of segments that left the manifest at least ``delay_ms`` ago, at most
        of GARBAGE_SEGMENTS_MAX.  After a loss nothing is deleted: see ``names``.

        Segments of which the store refuses to delete an object are no error.  They stay garbage,
        and later calls try the others first.
        """
        return self._garbage.collect(partition, delay_ms, now_ms, self._clock(now_ms))

    def remove_segments(
        self, partition: RemotePartition, leader_epoch: int, last_id: str, now_ms: int
    ) -> RemoteLogState:
        """Remove all segments, of which ``last_id`` is the last one; the log start stays.

        Nothing changes if another segment is the last one: an earlier call, of which the answer was
        lost, may have removed these, and others have been added since.  For the same reason only
        the leader of ``leader_epoch`` may call this; for others it raises DeposedLeaderError.
        """
        with self._manifests.leading(partition, leader_epoch) as manifest_log:
            commit(
                manifest_log,
                lambda each, at_ms: each.remove_all(last_id, at_ms),
                self._clock(now_ms),
            )
            return state_of(manifest_log.manifest)

    # -- orphans

    def sweep_orphans(self, partition: RemotePartition, now_ms: int, age_ms: int) -> SweptOrphans:
        """Delete the objects of copies that began at least ``age_ms`` ago and that no manifest
        names, as their garbage neither.  A folder also loses temporary files of that age.

        ``age_ms`` is well above COPY_MS_MAX.  After a loss nothing is deleted: see ``names``.  An
        object that the store refuses to delete is no error.
        """
        assert age_ms > COPY_MS_MAX, "a copy that may still be added is no orphan"
        if self._remote.exists(names.lost_file(*partition)):
            return SweptOrphans(deleted=0, unknown=0)
        folder = names.segments_folder(*partition)
        found = self._remote.list(folder)
        with self._manifests.leading(partition) as manifest_log:
            manifest = manifest_log.confirm_leadership()
            orphans, unknown = sweep.find_orphans(found, manifest, now_ms - age_ms)
        deleted, error = sweep.delete_orphans(self._remote, folder, orphans)
        deleted += self._remote.remove_old_leftovers(folder, now_ms - age_ms)
        return SweptOrphans(deleted, unknown, error)

    # -- topics, for the control plane

    def sweep_topic(self, topic_id: UUID, objects_max: int) -> SweptTopic:
        """Delete about ``objects_max`` objects of a deleted topic.  See ``sweep.sweep_topic``."""
        return sweep.sweep_topic(self._remote, topic_id, objects_max)

    def unknown_topics(self, known_topic_ids: Collection[UUID]) -> list[UUID]:
        """The topics in the store that are not among these, sorted.  Nothing deletes them."""
        return sweep.unknown_topics(self._remote, known_topic_ids)

    # -- reading

    def state(self, partition: RemotePartition) -> RemoteLogState:
        """The state as of now, for any broker."""
        return self._manifests.look(partition, state_of, refreshes=True)

    def leader_and_state(
        self, partition: RemotePartition
    ) -> tuple[tuple[int, str], RemoteLogState]:
        """Leader epoch and nonce of the leader that took the manifest over last, and ``state``."""
        return self._manifests.look(
            partition,
            lambda each: ((each.leader_epoch, each.leader_nonce), state_of(each)),
            refreshes=True,
        )

    def read(
        self, partition: RemotePartition, offset: int, max_bytes: int, **how: Any
    ) -> RemoteRead:
        """Read whole batches from the batch that holds ``offset`` on, at least one.

        See ``read_several``.
        """
        [found] = self.read_several(partition, range(offset, MAX_INT64), max_bytes, 1, **how)
        return found

    def read_several(
        self,
        partition: RemotePartition,
        offsets: range,
        max_bytes: int,
        count: int,
        *,
        leader_epoch: int = NO_LEADER_EPOCH,
        **how: Any,
    ) -> Sequence[RemoteRead]:
        """Up to ``count`` reads of ``max_bytes``, one behind the other, within ``offsets``.

        For ``leader_epoch`` see ``Lookups``; for ``how``, and what is raised, ``reads_in_a_row``.
        """
        return reads_in_a_row(
            partial(self._lookups.in_segment, partition, leader_epoch=leader_epoch),
            partial(self._reader, partition),
            offsets,
            max_bytes,
            count,
            **how,
        )

    def find_timestamp(
        self,
        partition: RemotePartition,
        timestamp: int,
        start_offset: int,
        *,
        leader_epoch: int = NO_LEADER_EPOCH,
    ) -> OffsetTimestamp | None:
        """The first record from ``start_offset`` on with at least this timestamp (ms); None if the
        segments have none.  For ``leader_epoch`` see ``Lookups``."""
        reader_of = partial(self._reader, partition, read=self._read_once)
        return self._lookups.find_timestamp(
            partition, timestamp, start_offset, reader_of, leader_epoch
        )

    def follower_state(
        self,
        partition: RemotePartition,
        local_start: int,
        *,
        leader_epoch: int = NO_LEADER_EPOCH,
    ) -> FollowerState:
        """The state for a follower that starts at the end of the segment with the last record below
        ``local_start``.  For ``leader_epoch`` see ``Lookups``.

        Raises KafkaError(OFFSET_OUT_OF_RANGE): no segment holds that record.
        """
        self.state(partition)  # its leader may have removed segments in this epoch
        last = local_start - 1
        return self._lookups.in_segment(
            partition,
            last,
            finder(last),
            lambda each: follower_state(self._reader(partition, each), each),
            leader_epoch,
        )

    def aborted_at(self, partition: RemotePartition, offset: int) -> Sequence[RemoteAbortedTxn]:
        """The transactions that are open at ``offset`` and were aborted there or behind; others
        were committed.

        Raises KafkaError(OFFSET_OUT_OF_RANGE): no segment holds the record before ``offset``.
        """
        self.state(partition)  # another broker may have changed the segments
        return self._lookups.in_segment(
            partition,
            offset - 1,
            finder(offset - 1),
            lambda each: self._reader(partition, each).aborted_at(each, offset),
            NO_LEADER_EPOCH,
        )

    def lineage(self, partition: RemotePartition) -> tuple[EpochStart, ...]:
        """The leader epochs of all segments, as the manifest knows them."""
        return self._manifests.look(partition, lineage_of, refreshes=True)

    def segments_between(
        self, partition: RemotePartition, start: int, end: int
    ) -> Sequence[RemoteSegment]:
        """The segments with offsets in [``start``, ``end``), as this process knows them."""
        return self._manifests.look(partition, lambda each: each.segments_between(start, end))

    def signed_segments(
        self,
        partition: RemotePartition,
        start: int,
        end: int,
        *,
        seconds: int,
        count_max: int,
        times: TimeBounds = UNBOUNDED,
        leader_epoch: int = NO_LEADER_EPOCH,
    ) -> SignedPage:
        """The first segments with offsets in [``start``, ``end``) and within ``times``, with URLs
        that are good for ``seconds``; none if the store has no URLs.

        There are none either before this process has taken the manifest over in ``leader_epoch``: a
        leader that was elected unclean removes segments then, and may have other records there.
        """
        if not self._manifests.leads(partition, leader_epoch):
            return SignedPage()
        found = self._manifests.look(
            partition, lambda each: each.search(start, end, times, count_max), settles=True
        )
        folder = names.segments_folder(*partition)
        signed = sign_segments(self._remote, folder, found.segments, seconds)
        if len(signed) < len(found.segments):
            return SignedPage()
        return SignedPage(signed, found.next_offset, found.bytes_behind)

    def _reader(
        self, partition: RemotePartition, segment: RemoteSegment, read: ReadObject | None = None
    ) -> RemoteReader:
        """The reader of one segment: the sizes of its objects are known."""
        read_object = read or self._read
        folder = names.segments_folder(*partition)
        log = names.log_object(folder, segment.segment_id)

        def read_range(path: str, offset: int, size: int) -> Buffer:
            total = segment.log_size if path == log else segment.indexes_size
            try:
                return read_object(path, total, offset, size)
            except ChangedFileError:
                # The cache takes whole chunks only.  The reader finds out what is still there.
                return self._remote.read(path, offset, size)
            except MissingPathError as error:
                first, end = segment.base_offset, segment.next_offset
                raise GoneObjectError(path, 0, str(error), first, end) from error

        return RemoteReader(read_range, folder, self._parts, self._find_pieces, self._remote.read)

    def forget(self, partition: RemotePartition) -> None:
        """Forget a manifest that is not used any more; a leader must begin again."""
        self._manifests.forget(partition)
        self._garbage.forget(partition)
