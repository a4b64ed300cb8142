"""Lookups of segments in manifests that may be old, each with the use of what was found.

Owns: when a manifest is read again, before a lookup or because objects are gone.  Must not know how
manifests are kept, or what a segment is used for.
"""

from collections.abc import Callable
from typing import TypeVar

from sparklog.errors import ErrorCode, KafkaError
from sparklog.remote_log.damaged_object import GoneObjectError
from sparklog.remote_log.manifest import Manifest
from sparklog.remote_log.open_manifests import OpenManifests, RemotePartition
from sparklog.remote_log.reading import RemoteReader
from sparklog.remote_log.remote_segment import RemoteSegment
from sparklog.types import OffsetTimestamp
from sparklog.wire.records.record_search import SearchBudget

T = TypeVar("T")


class Lookups:
    """The lookups in the manifests of one store, which is at ``url``.

    ``leader_epoch`` is the newest one that a caller knows of.  The manifest of an older leader is
    read again first: it may lack segments that were added since, and have segments that an unclean
    election has removed.  Until the leader of that epoch has taken over, the newest manifest of an
    older leader counts.
    """

    def __init__(self, manifests: OpenManifests, url: str) -> None:
        self._manifests = manifests
        self._url = url

    def in_segment(
        self,
        partition: RemotePartition,
        offset: int,
        find: Callable[[Manifest], RemoteSegment | None],
        use: Callable[[RemoteSegment], T],
        leader_epoch: int,
    ) -> T:
        """Use the segment that ``find`` finds for an offset.  The manifest is read again if there
        is none, or if its objects are gone: another broker may have changed it.

        Raises KafkaError(OFFSET_OUT_OF_RANGE): there is no such segment.  Raises GoneObjectError:
        the newest manifest names a segment whose objects are gone.
        """
        for refreshes in (False, True):
            segment = self._manifests.look(
                partition, find, refreshes=refreshes, leader_epoch=leader_epoch
            )
            if segment is not None:
                try:
                    return use(segment)
                except GoneObjectError:
                    if refreshes:
                        raise
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"no segment of {partition.topic_id}-{partition.partition} in {self._url} holds "
            f"offset {offset}",
        )

    def find_timestamp(
        self,
        partition: RemotePartition,
        timestamp: int,
        start_offset: int,
        reader_of: Callable[[RemoteSegment], RemoteReader],
        leader_epoch: int,
    ) -> OffsetTimestamp | None:
        """See ``RemoteLogService.find_timestamp``.

        A segment that the manifest lacks would be passed by without an error.  So the manifest is
        read again first, unless this process has taken it over in ``leader_epoch``.
        """
        for is_last in (False, True):
            refreshes = is_last or not self._manifests.leads(partition, leader_epoch)
            try:
                return self._search(
                    partition, timestamp, start_offset, reader_of, refreshes=refreshes
                )
            except GoneObjectError:
                if is_last:
                    raise
        raise AssertionError("the last search returns or raises")

    def _search(
        self,
        partition: RemotePartition,
        timestamp: int,
        start_offset: int,
        reader_of: Callable[[RemoteSegment], RemoteReader],
        *,
        refreshes: bool,
    ) -> OffsetTimestamp | None:
        def find_first(manifest: Manifest) -> RemoteSegment | None:
            first = manifest.first_by_time(timestamp)
            if first is None or first.base_offset >= start_offset:
                return first
            return manifest.segment_at(start_offset)

        budget = SearchBudget()
        segment = self._manifests.look(partition, find_first, refreshes=refreshes)
        while segment is not None:
            found = reader_of(segment).find_timestamp(
                segment, timestamp, start_offset=start_offset, budget=budget
            )
            if found is not None:
                return found
            # The manifest is as new as at the beginning of this search.
            segment = self._manifests.look(partition, finder(segment.next_offset))
        return None


def finder(offset: int) -> Callable[[Manifest], RemoteSegment | None]:
    """Finds the segment that holds an offset."""
    return lambda manifest: manifest.segment_at(offset)
