"""What records would make of a manifest.

Owns: the rules of each record.  Must not know how a manifest is stored or looked up.

A draft refers to the segments of its manifest and notes what changes, so it costs as much as the
change.  The manifest itself stays as it is until all records of a commit have been accepted.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import assert_never

from sparklog.errors import SparklogError
from sparklog.remote_log import names
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
)
from sparklog.remote_log.remote_segment import RemoteSegment
from sparklog.remote_log.segment_list import SegmentList


class MisfitError(SparklogError, LookupError):
    """A record does not fit the manifest, which has not changed."""


class ManifestDraft:
    """A manifest with changes that are not made yet.

    The segments are ``base[start:stop]`` and then ``added``.  Garbage is that of the manifest and
    ``new_garbage``, without ``deleted``.
    """

    def __init__(
        self,
        *,
        base: SegmentList,
        garbage: Mapping[str, int],
        leader: LeaderBegan | None,
        log_start_offset: int | None,
    ) -> None:
        self._base = base
        self._garbage = garbage
        self.leader = leader
        self.log_start_offset = log_start_offset
        self.start = 0
        self.stop = len(base)
        self.added: list[RemoteSegment] = []
        self.new_garbage: dict[str, int] = {}
        self.deleted: set[str] = set()

    def apply(self, record: ManifestRecord) -> None:
        """Note the change.  Raises MisfitError; the draft is then of no use any more."""
        match record:
            case LeaderBegan():
                self._begin(record)
            case SegmentAdded():
                self._add(record.segment)
            case LogStartMoved():
                self._move_log_start(record.log_start_offset)
            case SegmentsRemoved():
                self._remove(record.segment_ids, record.removed_ms)
            case TruncatedAfter():
                self._truncate(record.offset, record.removed_ms)
            case SegmentShortened():
                self._shorten(record.segment)
            case ObjectsDeleted():
                self._delete(record.segment_ids)
            case GarbageKept():
                self._discard(record.segment_ids, record.removed_ms)
            case _:
                assert_never(record)

    # -- the segments

    def __len__(self) -> int:
        return self.stop - self.start + len(self.added)

    def _is_old(self, index: int) -> bool:
        return index < self.stop - self.start

    def _new(self, index: int) -> RemoteSegment:
        return self.added[index - (self.stop - self.start)]

    def _id_at(self, index: int) -> str:
        if self._is_old(index):
            return self._base.id_at(self.start + index)
        return self._new(index).segment_id

    def _base_offset_at(self, index: int) -> int:
        if self._is_old(index):
            return self._base.base_offset_at(self.start + index)
        return self._new(index).base_offset

    def _next_offset_at(self, index: int) -> int:
        if self._is_old(index):
            return self._base.next_offset_at(self.start + index)
        return self._new(index).next_offset

    def _last_epoch(self) -> int:
        if self.added:
            return self.added[-1].last_epoch
        return self._base.last_epoch_at(self.stop - 1)

    # -- the records

    def _begin(self, record: LeaderBegan) -> None:
        if self.leader is not None and record.leader_epoch <= self.leader.leader_epoch:
            raise MisfitError(
                f"leader epoch {record.leader_epoch} is not above {self.leader.leader_epoch}"
            )
        self.leader = record

    def _add(self, segment: RemoteSegment) -> None:
        self._check_new(segment)
        if self:
            end = self._next_offset_at(len(self) - 1)
            if segment.base_offset != end:
                raise MisfitError(
                    f"segment {segment.segment_id} does not begin at {end}, where the last one ends"
                )
            if segment.leader_epochs[0].epoch < self._last_epoch():
                raise MisfitError(
                    f"segment {segment.segment_id} begins in leader epoch "
                    f"{segment.leader_epochs[0].epoch}, after epoch {self._last_epoch()}"
                )
        elif self.log_start_offset is not None:
            self._check_log_start(self.log_start_offset, segment.base_offset, segment.next_offset)
        self.added.append(segment)

    def _check_new(self, segment: RemoteSegment) -> None:
        """The id has the base offset, so no two live segments have the same id."""
        name = segment.segment_id
        if names.base_offset(name) != segment.base_offset:
            raise MisfitError(
                f"{name!r} is no id of a segment with base offset {segment.base_offset}"
            )
        if name in self.new_garbage or name in self._garbage:
            raise MisfitError(f"segment {name} was removed before")
        self._check_epochs(segment)

    @staticmethod
    def _check_epochs(segment: RemoteSegment) -> None:
        name = segment.segment_id
        for before, after in pairwise(segment.leader_epochs):
            if not (before.epoch < after.epoch and before.start_offset < after.start_offset):
                raise MisfitError(f"the leader epochs of segment {name} do not ascend")
        if segment.leader_epochs[-1].start_offset >= segment.next_offset:
            raise MisfitError(f"a leader epoch of segment {name} begins behind it")

    def _move_log_start(self, offset: int) -> None:
        if self and self.log_start_offset is not None and offset < self.log_start_offset:
            raise MisfitError(f"the log start cannot go back from {self.log_start_offset}")
        if self:
            self._check_log_start(offset, self._base_offset_at(0), self._next_offset_at(0))
        self.log_start_offset = offset

    @staticmethod
    def _check_log_start(offset: int, base_offset: int, next_offset: int) -> None:
        if not base_offset <= offset < next_offset:
            raise MisfitError(
                f"the log start {offset} does not lie in the first segment, which has "
                f"[{base_offset}, {next_offset})"
            )

    def _remove(self, segment_ids: Sequence[str], removed_ms: int) -> None:
        count = len(segment_ids)
        if count > len(self) or any(
            self._id_at(index) != each for index, each in enumerate(segment_ids)
        ):
            raise MisfitError(f"{count} segments to remove are not the oldest ones")
        if not count:
            return
        self.log_start_offset = self._next_offset_at(count - 1)
        self._discard(segment_ids, removed_ms)
        old = min(count, self.stop - self.start)
        self.start += old
        del self.added[: count - old]

    def _truncate(self, offset: int, removed_ms: int) -> None:
        kept = len(self)
        while kept and self._next_offset_at(kept - 1) > offset:
            kept -= 1
        self._discard([self._id_at(index) for index in range(kept, len(self))], removed_ms)
        old = self.stop - self.start
        del self.added[max(0, kept - old) :]
        self.stop = self.start + min(kept, old)

    def _shorten(self, segment: RemoteSegment) -> None:
        last = len(self) - 1
        fits = (
            last >= 0
            and self._id_at(last) == segment.segment_id
            and self._base_offset_at(last) == segment.base_offset
            and segment.next_offset < self._next_offset_at(last)
        )
        if not fits:
            raise MisfitError(f"{segment.segment_id} is no beginning of the last segment")
        self._check_epochs(segment)
        if not last and self.log_start_offset is not None:
            self._check_log_start(self.log_start_offset, segment.base_offset, segment.next_offset)
        if self.added:
            self.added.pop()
        else:
            self.stop -= 1
        self.added.append(segment)

    def _discard(self, segment_ids: Iterable[str], removed_ms: int) -> None:
        for each in segment_ids:
            if each in self.new_garbage or each in self._garbage:
                raise MisfitError(f"segment {each} was removed before")
            self.new_garbage[each] = removed_ms

    def _delete(self, segment_ids: Iterable[str]) -> None:
        for each in segment_ids:
            if each in self.deleted or not (each in self.new_garbage or each in self._garbage):
                raise MisfitError(f"segment {each} is not garbage")
            self.deleted.add(each)
