"""The manifest of one partition: its segments in the bucket, its log start, and its garbage.

Owns: the state that results from the records (``replay_commit``), the decisions that return records
to commit, and lookups.  Must not know how commits are stored, nor clocks: times are arguments.

The rules: each segment begins where the one before it ends.  The log start lies in the first
segment.  The log start never goes back, unless there are no segments and the log of a new leader
ends below it: then everything is lost that was there.  The id of a segment is used once; its
objects are garbage from the removal of the segment until they are deleted, and never live again.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice, pairwise
from typing import NamedTuple, TypeAlias

from sparklog.remote_log import names
from sparklog.remote_log.divergence import agreed_end
from sparklog.remote_log.manifest_draft import ManifestDraft, MisfitError
from sparklog.remote_log.manifest_records import (
    GarbageKept,
    LeaderBegan,
    LogStartMoved,
    ManifestRecord,
    ObjectsDeleted,
    SegmentAdded,
    SegmentShortened,
    SegmentsRemoved,
    TruncatedAfter,
    encode_record,
    encode_segment_added,
)
from sparklog.remote_log.remote_segment import UNBOUNDED, EpochStart, RemoteSegment, TimeBounds
from sparklog.remote_log.segment_list import SegmentList
from sparklog.types import NO_LEADER_EPOCH

__all__ = ["Manifest", "MisfitError", "Records"]

Records: TypeAlias = tuple[ManifestRecord, ...]


class FoundSegments(NamedTuple):
    """The result of a search.

    From the start of the search up to ``next_offset`` the manifest has no other segment that was
    asked for; that is the start if the first segment begins above.  The log objects of those behind
    have ``bytes_behind``.
    """

    segments: list[RemoteSegment]
    next_offset: int
    bytes_behind: int


class Manifest:
    """The manifest of one partition as of commit ``version``; version 0 is the empty manifest.

    ``replay_commit`` is the only mutator.  A lookup in one thread must not overlap a replay in
    another one.
    """

    def __init__(self) -> None:
        self.version = 0
        self.log_start_offset: int | None = None
        self._leader: LeaderBegan | None = None
        self._segments = SegmentList()
        #: The time of the removal in ms, by segment id, in the order of the removals.
        self._garbage: dict[str, int] = {}

    # -- changes

    def replay_commit(self, number: int, records: Iterable[ManifestRecord]) -> None:
        """Replay the records of commit ``number``, or of a checkpoint as of that commit.

        Raises:
            MisfitError: a record does not fit; nothing has changed.
        """
        draft = self._draft(records)
        self._leader = draft.leader
        self.log_start_offset = draft.log_start_offset
        self._segments.keep_first(draft.stop)
        for segment in draft.added:
            self._segments.append(segment)
        self._segments.remove_first(draft.start)
        self._garbage |= draft.new_garbage
        for each in draft.deleted:
            del self._garbage[each]
        self.version = number

    def check(self, records: Iterable[ManifestRecord]) -> None:
        """Raises MisfitError if the next commit cannot have these records."""
        self._draft(records)

    def _draft(self, records: Iterable[ManifestRecord]) -> ManifestDraft:
        draft = ManifestDraft(
            base=self._segments,
            garbage=self._garbage,
            leader=self._leader,
            log_start_offset=self.log_start_offset,
        )
        for record in records:
            draft.apply(record)
        return draft

    def encoded_snapshot(self) -> bytes:
        """The records that build this manifest, as a JSON array."""
        return b"[%s]" % b",".join(self._snapshot())

    def _snapshot(self) -> Iterator[bytes]:
        if self._leader is not None:
            yield encode_record(self._leader)
        yield from map(encode_segment_added, self._segments.documents)
        if self.log_start_offset is not None:
            yield encode_record(LogStartMoved(log_start_offset=self.log_start_offset))
        for removed_ms, group in groupby(self._garbage.items(), key=lambda item: item[1]):
            ids = tuple(segment_id for segment_id, _ in group)
            yield encode_record(GarbageKept(segment_ids=ids, removed_ms=removed_ms))

    # -- decisions

    def begin_leadership(self, leader_epoch: int, nonce: str) -> Records:
        """Records with which a leader takes over.  Raises MisfitError unless its epoch is newer."""
        return self._checked(LeaderBegan(leader_epoch=leader_epoch, nonce=nonce))

    def add_segment(self, segment: RemoteSegment) -> Records:
        """Records that add a copied segment.

        Raises:
            MisfitError: the segment does not begin at ``end_offset``; or it is the first one, and
                the log start does not lie in it.
        """
        return self._checked(SegmentAdded(segment=segment))

    def move_log_start(self, offset: int, now_ms: int) -> Records:
        """Records that move the log start up to ``offset``, and remove whole segments below it.

        There are no records if the log starts there or above already.

        Raises:
            MisfitError: the offset lies below the first segment.
        """
        if self.log_start_offset is not None and offset <= self.log_start_offset:
            return ()
        ids = self._ids(0, self._segments.count_below(offset))
        removed = (SegmentsRemoved(segment_ids=ids, removed_ms=now_ms),) if ids else ()
        return self._checked(*removed, LogStartMoved(log_start_offset=offset))

    def begin_anew(self, offset: int) -> Records:
        """Records that move the log start down to ``offset``, for a leader whose log ends below it.

        Raises:
            MisfitError: there are segments.
        """
        return self._checked(LogStartMoved(log_start_offset=offset))

    def remove_segments(self, segment_ids: Sequence[str], now_ms: int) -> Records:
        """Records that remove the oldest segments, and move the log start behind them.

        Raises:
            MisfitError: these are not the oldest segments in their order.
        """
        return self._checked(SegmentsRemoved(segment_ids=tuple(segment_ids), removed_ms=now_ms))

    def remove_all(self, last_id: str, now_ms: int) -> Records:
        """Records that remove all segments and leave the log start where it is.

        There are none if ``last_id`` is not the last segment.
        """
        count = len(self._segments)
        if not count or self._segments.id_at(count - 1) != last_id:
            return ()
        removed = SegmentsRemoved(segment_ids=self._ids(0, count), removed_ms=now_ms)
        assert self.log_start_offset is not None, "a leader that has begun has told it"
        return self._checked(removed, LogStartMoved(log_start_offset=self.log_start_offset))

    def truncate_after(
        self, offset: int, now_ms: int, shortened: RemoteSegment | None = None
    ) -> Records:
        """Records that remove all segments that reach above ``offset``; none if no segment does.

        ``shortened`` is the beginning, up to ``offset``, of the segment that holds the offset; it
        stays then.

        Raises:
            MisfitError: it is no beginning of that segment, or the log starts behind it.
        """
        if self.end_offset is None or self.end_offset <= offset:
            return ()
        if shortened is None:
            return self._checked(TruncatedAfter(offset=offset, removed_ms=now_ms))
        whole = self.segment_at(offset)
        if whole is None or shortened.next_offset != offset:
            raise MisfitError(f"{shortened.segment_id} does not end at {offset} inside a segment")
        behind = TruncatedAfter(offset=whole.next_offset, removed_ms=now_ms)
        return self._checked(behind, SegmentShortened(segment=shortened))

    def delete_objects(self, segment_ids: Sequence[str]) -> Records:
        """Records for garbage whose objects have been deleted.

        Raises:
            MisfitError: an id is not garbage.
        """
        return self._checked(ObjectsDeleted(segment_ids=tuple(segment_ids)))

    def _checked(self, *records: ManifestRecord) -> Records:
        self.check(records)
        return records

    def expired(
        self, *, retention_ms: int, retention_bytes: int, local_bytes_above: int, now_ms: int
    ) -> list[str]:
        """The segments, oldest first, that are to be removed by age or size.

        A segment goes when its largest timestamp is older than ``retention_ms``, or when the log
        has at least ``retention_bytes`` without it.  A segment without timestamps is as old as its
        copy.

        Args:
            retention_ms: a negative one is no limit.
            retention_bytes: a negative one is no limit.
            local_bytes_above: bytes of the local log at or above ``end_offset``.
            now_ms: the time of day, in milliseconds since the epoch.
        """
        segments = self._segments
        excess_bytes = segments.log_bytes + local_bytes_above - retention_bytes
        count = 0
        while count < len(segments):
            size = segments.log_size_at(count)
            too_big = retention_bytes >= 0 and excess_bytes >= size
            too_old = retention_ms >= 0 and now_ms - self._age_timestamp(count) > retention_ms
            if not (too_big or too_old):
                break
            excess_bytes -= size
            count += 1
        return list(self._ids(0, count))

    def end_of_first(self, count: int) -> int:
        """The next offset after the oldest ``count`` segments, of which there must be some."""
        return self._segments.next_offset_at(count - 1)

    def _age_timestamp(self, index: int) -> int:
        timestamp = self._segments.max_timestamp_at(index)
        if timestamp >= 0:
            return timestamp
        copied_ms = names.copied_at_ms(self._segments.id_at(index))
        assert copied_ms is not None, "checked when the segment was added"
        return copied_ms

    def garbage_due(self, now_ms: int, delay_ms: int) -> list[str]:
        """The ids of segments that were removed at least ``delay_ms`` ago."""
        return [each for each, removed in self._garbage.items() if removed <= now_ms - delay_ms]

    # -- lookups

    @property
    def leader_epoch(self) -> int:
        """The epoch of the newest leader that has taken over; -1 before the first."""
        return NO_LEADER_EPOCH if self._leader is None else self._leader.leader_epoch

    @property
    def leader_nonce(self) -> str:
        return "" if self._leader is None else self._leader.nonce

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def end_offset(self) -> int | None:
        """The next offset after the last segment; None without segments."""
        return self._segments.end_offset if self._segments else None

    @property
    def epoch_at_end(self) -> int:
        """The leader epoch of the last record; -1 without segments."""
        count = len(self._segments)
        return self._segments.last_epoch_at(count - 1) if count else NO_LEADER_EPOCH

    @property
    def log_bytes(self) -> int:
        """Bytes of the log objects of all segments, which retention counts."""
        return self._segments.log_bytes

    @property
    def remote_bytes(self) -> int:
        """Bytes of all objects of all segments, without garbage."""
        return self._segments.remote_bytes

    @property
    def garbage_ids(self) -> tuple[str, ...]:
        return tuple(self._garbage)

    def is_live(self, segment_id: str) -> bool:
        """Whether the manifest has this segment."""
        base_offset = names.base_offset(segment_id)
        index = None if base_offset is None else self._segments.index_at(base_offset)
        return index is not None and self._segments.id_at(index) == segment_id

    def segments(self) -> Iterator[RemoteSegment]:
        """All segments.  The manifest must not change meanwhile."""
        return iter(self._segments)

    def segment_at(self, offset: int) -> RemoteSegment | None:
        """The segment with this offset."""
        index = self._segments.index_at(offset)
        return None if index is None else self._segments[index]

    def segments_between(self, start: int, end: int) -> list[RemoteSegment]:
        """All segments with offsets in [``start``, ``end``)."""
        return self.search(start, end, UNBOUNDED, len(self._segments)).segments

    def search(self, start: int, end: int, times: TimeBounds, count_max: int) -> FoundSegments:
        """The first ``count_max`` segments with offsets in [``start``, ``end``) that may have
        records within the bounds of time."""
        segments = self._segments
        first = segments.count_below(start)
        stop = segments.count_up_to(end) if start < end else 0
        wanted = segments.within(first, stop, times)
        indexes = list(islice(wanted, count_max))
        # The last segment that was looked at.
        last = stop - 1 if len(indexes) < count_max else max(indexes, default=-1)
        next_offset = start
        if last >= first and segments.base_offset_at(first) <= start:
            next_offset = segments.next_offset_at(last)
        found = [segments[index] for index in indexes]
        return FoundSegments(found, next_offset, sum(map(segments.log_size_at, wanted)))

    def first_by_time(self, timestamp: int) -> RemoteSegment | None:
        """The first segment with a record of this timestamp (ms) or a later one."""
        index = self._segments.index_by_time(timestamp)
        return None if index is None else self._segments[index]

    def divergence(self, leader_epochs: Sequence[EpochStart], log_end: int) -> int | None:
        """The offset at which the segments diverge from the log of a new leader.

        The rule is that of the largest common leader epoch (KIP-101).

        Args:
            leader_epochs: the leader epochs of the new leader's log, ascending.  The result is
                exact if they begin at the first segment, or where the leader's log starts.
                Segments of older epochs than the first one, which such a leader cannot know, count
                as equal up to its first epoch; the caller must not draw conclusions from that.
            log_end: the log end offset of the new leader.

        Returns:
            The first offset at which the logs differ, or at which the leader's log ends; None when
            the leader has all records of the segments, or when there are no segments.
        """
        if self.end_offset is None:
            return None
        agreed = agreed_end(self._segments, leader_epochs, log_end)
        return agreed if agreed < self.end_offset else None

    def _ids(self, start: int, stop: int) -> tuple[str, ...]:
        return tuple(map(self._segments.id_at, range(start, stop)))

    def check_invariants(self) -> None:
        """Assert the rules of the module's docstring, by looking at every segment."""
        segments = list(self._segments)
        for before, after in pairwise(segments):
            assert before.next_offset == after.base_offset, (before, after)
            assert before.last_epoch <= after.leader_epochs[0].epoch, (before, after)
        if segments:
            assert self.end_offset == segments[-1].next_offset
            if self.log_start_offset is not None:
                assert segments[0].base_offset <= self.log_start_offset < segments[0].next_offset
        live = {each.segment_id for each in segments}
        assert len(live) == len(segments), "an id is live twice"
        assert not live & self._garbage.keys(), "an id is live and garbage"
        assert self.log_bytes == sum(each.log_size for each in segments)
        assert self.remote_bytes == sum(each.size for each in segments)
