"""A bucket behind an HTTP server that has faults when a test wants them, and its direct reads.

The log is the same as in the tests of ``remote_log``: transactions, compression, times in no order.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from sparklog.client.fetch_api import Fetched
from sparklog.client.remote_segments_api import RemoteSegments
from sparklog.dataframe.corrupt_batches import CorruptBatches
from sparklog.dataframe.read.direct_reads import DirectReads
from sparklog.dataframe.read.plan import OffsetRange, RemoteSource
from sparklog.dataframe.read.segment_source import SegmentSource
from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log.log import Log
from sparklog.remote_log.remote_segment import RemoteSegment
from sparklog.remote_log.signed_segments import SignedSegment
from sparklog.storage_backends.url_ranges import UrlRanges
from sparklog.types import Isolation, TopicPartition
from sparklog.wire.protocol.messages.fetch import AbortedTransaction
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.columns import decode_columns
from tests.support.range_server import RangeServer, range_server
from tests.unit.remote_log.remote_fixtures import RichLog, fill, indexes_path, log_path

TP = TopicPartition("t", 0)
TOPIC_ID = UUID(int=3)
NOW_MS = 1_000_000


@dataclass
class Bucket:
    """Copied segments behind a server, and the leader that gives URLs for them."""

    server: RangeServer
    rich: RichLog
    segments: list[RemoteSegment]
    now_ms: int = NOW_MS

    @property
    def end(self) -> int:
        return self.segments[-1].next_offset

    def signed(self) -> RemoteSegments:
        return RemoteSegments(
            segments=tuple(
                SignedSegment(
                    segment=each,
                    log_url=self.server.url(log_path(each)),
                    indexes_url=self.server.url(indexes_path(each)),
                )
                for each in self.segments
            ),
            expires_at_ms=self.now_ms + 3_600_000,
        )

    def range(self, start: int = 0, end: int | None = None) -> OffsetRange:
        """A range with the URLs that are good now."""
        signed = self.signed()
        end = self.end if end is None else end
        return OffsetRange(
            topic_partition=TP,
            start=start,
            end=end,
            topic_id=TOPIC_ID,
            remote=RemoteSource(
                end=end, segments=signed.segments, expires_at_ms=signed.expires_at_ms
            ),
        )

    def log_requests(self) -> int:
        return sum(asked.path.endswith(".log") for asked in self.server.asked)


@contextmanager
def served_bucket() -> Iterator[Bucket]:
    """A bucket with more than four segments."""
    rich = RichLog()
    fill(rich)
    with served_copies(rich) as bucket:
        assert len(bucket.segments) > 4
        yield bucket


@contextmanager
def served_copies(rich: RichLog) -> Iterator[Bucket]:
    """A bucket with copies of all segments of a log."""
    segments = rich.copy_all()
    with range_server() as server:
        for each in segments:
            for path in (log_path(each), indexes_path(each)):
                server.objects[path] = rich.bucket.read(path)
        yield Bucket(server, rich, segments)


class BrokerReads:
    """What the brokers have of a part of a range: everything if a replica has it, or nothing."""

    def __init__(self, part: OffsetRange, replica: Log | None) -> None:
        self.offset = part.start
        self._replica = replica

    def __iter__(self) -> Iterator[tuple[int, Fetched]]:
        start = self.offset
        if self._replica is None:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "no replica")
        fetched, self.offset = local_read(self._replica, start, Isolation.READ_COMMITTED)
        yield start, fetched


class Reading:
    """One task's direct read; ``offsets`` are those of the records that it gives.

    Where objects are damaged, the brokers have what ``replica`` has.
    """

    def __init__(
        self,
        bucket: Bucket,
        item: OffsetRange,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        fail: bool = True,
        ask: Callable[[int, int], RemoteSegments] | None = None,
        replica: Log | None = None,
    ) -> None:
        self.item = item
        self.source = SegmentSource(
            item, ask or (lambda start, end: bucket.signed()), lambda: bucket.now_ms
        )
        self.corrupt = CorruptBatches(TP, item.start, item.end, fail=fail)
        self.ranges = UrlRanges(pause_seconds=0)
        self.by_brokers: list[OffsetRange] = []
        self._replica = replica
        self.direct = DirectReads(
            item, self.source, self.ranges, isolation, self.corrupt, self._read_by_brokers
        )

    def _read_by_brokers(self, part: OffsetRange) -> "BrokerReads":
        self.by_brokers.append(part)
        return BrokerReads(part, self._replica)

    def offsets(self) -> list[int]:
        return [
            offset
            for start, fetched in self.direct
            for batch in decode_columns(
                fetched.records,
                start_offset=start,
                end_offset=self.item.end,
                columns=frozenset(("offset",)),
                aborted=fetched.aborted,
            )
            for offset in batch.column("offset").to_pylist()
        ]


def local_offsets(
    bucket: Bucket, start: int, end: int, isolation: Isolation = Isolation.READ_COMMITTED
) -> list[int]:
    """The same from the local log."""
    found: list[int] = []
    offset = start
    while offset < end:
        fetched, next_offset = local_read(bucket.rich.log, offset, isolation)
        for batch in decode_columns(
            fetched.records,
            start_offset=offset,
            end_offset=end,
            columns=frozenset(("offset",)),
            aborted=fetched.aborted,
        ):
            found += batch.column("offset").to_pylist()
        offset = next_offset
    return found


def local_read(log: Log, offset: int, isolation: Isolation) -> tuple[Fetched, int]:
    """What a broker sends from its files, and the offset behind it."""
    end = log.log_end_offset
    committed = isolation is Isolation.READ_COMMITTED
    read = log.read(offset, 10**6, end_offset=end, min_one=True, with_aborted=committed)
    assert read.region is not None
    data = read.region.read()
    *_, (last, _) = iter_batches(data)
    aborted = tuple(
        AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
        for txn in read.aborted
    )
    fetched = Fetched(
        records=memoryview(data),
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=0,
        aborted=aborted,
    )
    return fetched, last.next_offset


def flip(bucket: Bucket, path: str, position: int) -> None:
    data = bytearray(bucket.server.objects[path])
    data[position] ^= 1
    bucket.server.objects[path] = bytes(data)
