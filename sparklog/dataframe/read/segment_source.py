"""The segments of a task's range, and URLs for them: from the plan, or from the leader.

Owns: which segment comes next, and when the leader is asked.  Must not know what is read.
"""

import time
from collections.abc import Callable
from typing import Final

from sparklog.client.blocking_data_client import BlockingDataClient
from sparklog.client.deadline import Deadline
from sparklog.client.remote_segments_api import RemoteSegments, Wanted, remote_segments_at
from sparklog.dataframe.read.plan import OffsetRange, RemoteSource
from sparklog.errors import StorageError
from sparklog.remote_log.signed_segments import SignedSegment
from sparklog.types import MAX_INT64

#: Time for the leader's answer, in seconds; then the brokers read in place of the task.
ANSWER_SECONDS_MAX: Final = 10.0
#: URLs are not used in their last seconds: clocks differ, and a read takes time.
SPARE_MS: Final = 30_000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class SegmentSource:
    """The segments of one range.  ``asked`` counts the requests to the leader.

    Args:
        ask: asks the leader for the segments with offsets in [start, end) that bounds of time do
            not rule out.
        now_ms: the time of day, in milliseconds.
    """

    def __init__(
        self,
        item: OffsetRange,
        ask: Callable[[int, int], RemoteSegments],
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        source = item.remote or RemoteSource(end=item.end)
        self._segments = source.segments
        self._expires_at_ms = source.expires_at_ms
        self._end = item.end
        self._remote_end = item.remote_end
        #: From this offset on the leader has left out what bounds of time rule out.
        self._asked_from = MAX_INT64
        self._ask = ask
        self._now_ms = now_ms
        self.asked = 0

    def at(self, offset: int) -> SignedSegment | None:
        """The first wanted segment from an offset on; None if bounds of time rule out all.

        Raises StorageError: no segment holds the offset; KafkaError: the leader does not answer.
        """
        found = None
        if self._now_ms() < self._expires_at_ms - SPARE_MS:
            found = self._find(offset)
        if found is None:
            self.asked += 1
            told = self._ask(offset, self._end)
            self._segments, self._asked_from = told.segments, offset
            is_good = self._now_ms() < told.expires_at_ms - SPARE_MS
            # The clocks differ by more than the URLs are good for, or these are good for seconds:
            # they are used until the store refuses them, as asking again brings no better ones.
            self._expires_at_ms = told.expires_at_ms if is_good else MAX_INT64
            found = self._find(offset)
            if found is None and told.end_offset >= self._remote_end:
                return None
        if found is None:
            raise StorageError(f"the leader knows no URL for offset {offset}")
        return found

    def forget(self) -> None:
        """Ask the leader the next time."""
        self._segments = ()

    def _find(self, offset: int) -> SignedSegment | None:
        for signed in self._segments:
            if offset < signed.segment.next_offset:
                is_next = min(self._asked_from, signed.segment.base_offset) <= offset
                return signed if is_next else None
        return None


def source_of(client: BlockingDataClient, item: OffsetRange) -> SegmentSource:
    """The source that asks the leader of the range's partition."""

    def ask(start: int, end: int) -> RemoteSegments:
        call = remote_segments_at(
            client.cluster,
            item.topic_partition,
            Wanted(span=(start, end), topic_id=item.topic_id, times=item.times),
            Deadline(min(ANSWER_SECONDS_MAX, client.timeout_s)),
        )
        return client.run(call)

    return SegmentSource(item, ask)
