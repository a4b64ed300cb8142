"""The fetcher of one range: its batches in order, while leaders change and records may vanish.

Owns: prefetching, fetch sizes, and the definition of data loss.  Gaps from compaction or
transactions are no loss.  Requested records below the log start, above the log end, or of a deleted
topic are lost.  Must not know what a batch holds, or Spark.
"""

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace

from sparklog.client.blocking_data_client import BlockingDataClient
from sparklog.client.damaged_ranges import BeyondHighWatermarkError, end_of_answer, find_readable
from sparklog.client.deadline import Backoff, Deadline
from sparklog.client.fetch_api import Fetched
from sparklog.dataframe.corrupt_batches import CorruptBatches
from sparklog.dataframe.options import ReadOptions
from sparklog.dataframe.read.plan import OffsetRange
from sparklog.errors import DataLossError, DecodeError, ErrorCode, KafkaError, SparklogError
from sparklog.types import Isolation, OffsetSpec

log = logging.getLogger(__name__)

#: Bytes of the first fetch of a range, when the size of its records is not known yet.
FIRST_FETCH_BYTES = 1024 * 1024
#: Fewest bytes of every later fetch.
FETCH_BYTES_MIN = 64 * 1024

#: Error codes of a damaged log, and of other message formats.
_DAMAGED = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class RangeFetcher:
    """Iterates over the fetch results of a range; the next fetch is in flight meanwhile.

    ``offset`` is the first that no result has covered, and may end above the range: batches come
    whole.  Iterating raises DataLossError, unless the options allow losses, and KafkaError when the
    cluster returns nothing within ``timeout_s`` (None: the client's).  ``corrupt`` handles offsets
    without a sound batch header.
    """

    def __init__(
        self,
        client: BlockingDataClient,
        item: OffsetRange,
        options: ReadOptions,
        corrupt: CorruptBatches,
        timeout_s: float | None = None,
    ) -> None:
        self._timeout_s = client.timeout_s if timeout_s is None else timeout_s
        self.offset = item.start
        self._corrupt = corrupt
        self._client = client
        self._range = item
        self._options = options
        self._bytes = min(FIRST_FETCH_BYTES, options.fetch_max_bytes)
        self._pending = self._fetch(item.start)

    def __iter__(self) -> Iterator[tuple[int, Fetched]]:
        """Pairs of the first wanted offset and a fetch result."""
        end = self._range.end
        waiting = Backoff(Deadline(self._timeout_s))
        doubted = -1  # an offset whose batch ended beyond the high watermark is fetched again
        try:
            while self.offset < end:
                offset = self.offset
                try:
                    fetched = self._take(offset)
                    if fetched is None or not fetched.records:
                        doubted = -1
                        self._go_on(self._offset_after_empty(offset, fetched, waiting))
                        continue
                    after, size = end_of_answer(fetched, offset)
                except (DecodeError, KafkaError) as error:
                    if isinstance(error, KafkaError) and error.code not in _DAMAGED:
                        raise
                    if isinstance(error, BeyondHighWatermarkError) and doubted != offset:
                        doubted = offset
                        self._go_on(offset)
                    else:
                        self._go_on(self._skip_damage(offset, error))
                    continue
                fetched = replace(fetched, records=fetched.records[:size])
                self._adapt(len(fetched.records), after - offset, end - after)
                self._go_on(after)
                yield offset, fetched
                waiting = Backoff(Deadline(self._timeout_s))
        finally:
            self._pending.cancel()

    def _go_on(self, offset: int) -> None:
        self.offset = offset
        if offset < self._range.end:
            self._pending = self._fetch(offset)

    def _take(self, offset: int) -> Fetched | None:
        """The result of the fetch in flight; None if the leader has no such offset."""
        try:
            fetched = self._client.result(self._pending)
        except KafkaError as error:
            if error.code in _GONE:
                self._report_loss(offset, "the topic was deleted")
                return None
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            fetched = None
        if self._is_another_topic():
            self._report_loss(offset, "the topic was deleted and created again")
            return None
        return fetched

    def _skip_damage(self, offset: int, error: SparklogError) -> int:
        """The next readable offset behind ``offset``, if the options allow skipping."""
        tp, isolation = self._range.topic_partition, self._options.isolation
        if self._corrupt.fail:
            self._corrupt.skip_or_raise(offset, offset, error)
        find = find_readable(self._client.data_client, tp, offset, isolation=isolation)
        found = min(self._client.run(find), self._range.end)
        self._corrupt.skip_or_raise(offset, found - 1, error)
        return found

    def _offset_after_empty(self, offset: int, fetched: Fetched | None, waiting: Backoff) -> int:
        """The offset at which to continue after an empty result: the same, or behind lost records.

        A new leader may not know yet that it has the records that its predecessor returned.  Until
        it knows, it refuses to tell its last offset (KIP-207).
        """
        item = self._range
        tp = item.topic_partition
        if self._is_another_topic() or tp.topic not in self._client.cluster.view.topics:
            return item.end
        if fetched is None or self._readable(fetched) <= offset:
            earliest, latest = self._log_bounds()
            if offset < earliest:
                self._report_loss(offset, f"the log starts at {earliest} now", until=earliest)
                return min(earliest, item.end)
            if latest <= offset:
                self._report_loss(offset, f"the log ends at {latest} now")
                return item.end
        if not self._client.run(waiting.pause()):
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{tp} gave no records from offset {offset} in time: look for errors in the log of "
                "its leader",
            )
        return offset

    def _report_loss(self, offset: int, why: str, until: int | None = None) -> None:
        item = self._range
        end = item.end if until is None else min(until, item.end)
        what = (
            f"{item.topic_partition} no longer has offsets {offset} to {end} of the planned range "
            f"[{item.start}, {item.end}): {why}"
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{what}. Read again, or go on without with failOnDataLoss=false")
        log.warning("%s; they are not read (failOnDataLoss=false)", what)

    def _is_another_topic(self) -> bool:
        """Whether the topic was deleted and created again since the plan."""
        view = self._client.cluster.view.topics.get(self._range.topic_partition.topic)
        return view is not None and self._range.topic_id not in (None, view.topic_id)

    def _readable(self, fetched: Fetched) -> int:
        if self._options.isolation is Isolation.READ_COMMITTED:
            return fetched.last_stable_offset
        return fetched.high_watermark

    def _log_bounds(self) -> tuple[int, int]:
        tp, isolation = self._range.topic_partition, self._options.isolation
        earliest = self._client.list_offsets({tp: OffsetSpec.EARLIEST}, isolation=isolation)
        latest = self._client.list_offsets({tp: OffsetSpec.LATEST}, isolation=isolation)
        return earliest[tp].offset, latest[tp].offset

    def _adapt(self, size: int, offsets: int, left: int) -> None:
        """Size the next fetch to the estimated rest: bytes behind the range would be wasted."""
        expected = left * size // offsets
        wanted = expected + expected // 8 + FETCH_BYTES_MIN
        self._bytes = min(wanted, self._options.fetch_max_bytes)

    def _fetch(self, offset: int) -> "Future[Fetched]":
        return self._client.submit(
            self._client.data_client.fetch(
                self._range.topic_partition,
                offset,
                max_bytes=self._bytes,
                isolation=self._options.isolation,
                timeout_s=self._timeout_s,
            )
        )
