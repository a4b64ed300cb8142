"""The records of one fetch result, decoded on demand.

Owns: the walk over the batches of one partition: CRC, transactions, and records that cannot be
read.  Must not know how batches are fetched.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from sparklog.client.fetch_api import Fetched
from sparklog.errors import CorruptBatchError, DecodeError, KafkaError, SparklogError
from sparklog.types import TimestampType, TopicPartition
from sparklog.wire.records.aborted import AbortedFilter
from sparklog.wire.records.batch import BatchHeader, check_batch, iter_batches
from sparklog.wire.records.builder import iter_records
from sparklog.wire.records.sections import OnFault

logger = logging.getLogger(__name__)

REMEDY: Final = (
    "Seek behind these offsets, or leave them out (ConsumerOptions(skip_undecodable=True), "
    "sparklog consume --skip-undecodable)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedRecord:
    """A record with its topic, partition and offset; the timestamp is in milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class SkippedRecords:
    """The records that one consumer skipped because they cannot be read; counts only grow."""

    def __init__(self) -> None:
        self.batches = 0
        #: Offsets according to batch headers; there may have been fewer records.
        self.offsets = 0

    def count(self, tp: TopicPartition, first: int, last: int, error: SparklogError) -> None:
        """Count the offsets [first, last] and log a warning."""
        self.batches += 1
        self.offsets += max(last - first + 1, 0)
        logger.warning(
            "%s: the records at offsets %d to %d cannot be read and are skipped: %s",
            tp, first, last, error,
        )  # fmt: skip


class FetchedRecords:
    """The records of one fetch result from an offset on.

    ``end`` is the offset to fetch next.  Records are decompressed and decoded only as ``take``
    needs them.
    """

    def __init__(
        self,
        tp: TopicPartition,
        fetched: Fetched,
        position: int,
        end: int,
        skipped: SkippedRecords | None,
    ) -> None:
        """``skipped`` counts records that cannot be read; with None ``take`` raises
        CorruptBatchError."""
        self.topic_partition = tp
        self.fetched = fetched
        self.end = end
        self._from = position
        #: The offset behind the last record that ``take`` has returned.
        self.taken_until = position
        self._error: CorruptBatchError | None = None
        self._next: ConsumedRecord | None = None
        self._records = self._iterate(fetched, fault_handler(tp, position, end, skipped))

    @property
    def position(self) -> int:
        """The offset of the next record, readable or not; ``end`` behind the last record."""
        self._look()
        if self._next is not None:
            return self._next.offset
        return self.end if self._error is None else self._error.first_offset

    @property
    def done(self) -> bool:
        """Whether ``take`` has returned every record."""
        self._look()
        return self._next is None and self._error is None

    def _look(self) -> None:
        """Decode the next record, if there is another."""
        if self._next is None and self._error is None:
            self._next = next(iter(self._pull(1)), None)

    def take(self, count_max: int) -> list[ConsumedRecord]:
        """The next records; an empty list at the end.

        Raises CorruptBatchError, at every call, when the next record cannot be read.
        """
        found: list[ConsumedRecord] = []
        if self._next is not None and count_max > 0:
            found.append(self._next)
            self._next = None
        found += self._pull(count_max - len(found))
        if found:
            self.taken_until = found[-1].offset + 1
        if not found and self._error is not None and count_max > 0:
            raise self._error
        return found

    def _pull(self, count: int) -> list[ConsumedRecord]:
        """Decode at most ``count`` records; an error behind them is kept for the next call."""
        found: list[ConsumedRecord] = []
        try:
            found.extend(islice(self._records, max(count, 0)))
        except CorruptBatchError as error:
            self._error = error
        return found

    def _iterate(self, fetched: Fetched, on_fault: OnFault) -> Iterator[ConsumedRecord]:
        records, aborted = fetched.records, AbortedFilter(fetched.aborted)
        for header, start in iter_batches(records, partial_tail=True):
            given = header.base_offset
            try:
                check_batch(records, start, header)
                dropped = aborted.drops(records, start, header)
                if header.next_offset <= self._from or dropped or header.is_control:
                    continue
                for record in self._of_batch(records, start, header):
                    given = record.offset + 1
                    if record.offset >= self._from:
                        yield record
            except CorruptBatchError:
                raise
            except (DecodeError, KafkaError) as error:
                on_fault(min(given, header.last_offset), header.last_offset, error)

    def _of_batch(
        self, records: memoryview, start: int, header: BatchHeader
    ) -> Iterator[ConsumedRecord]:
        topic, partition = self.topic_partition
        timestamp_type, first, last = header.timestamp_type, header.base_offset, header.last_offset
        for record in iter_records(records, start, header, from_offset=self._from):
            if not first <= record.offset <= last:
                raise DecodeError(
                    f"a record says offset {record.offset}, its batch {first} to {last}"
                )
            yield ConsumedRecord(
                topic=topic,
                partition=partition,
                offset=record.offset,
                timestamp=record.timestamp,
                timestamp_type=timestamp_type,
                key=record.key,
                value=record.value,
                headers=record.headers,
            )


def fault_handler(
    tp: TopicPartition, position: int, end: int, skipped: SkippedRecords | None
) -> OnFault:
    """A handler of records that cannot be read, with their offsets cut to [position, end)."""

    def on_fault(first: int, last: int, error: SparklogError) -> None:
        first = min(max(first, position), max(end - 1, position))
        last = min(max(last, first), max(end - 1, first))
        if skipped is None:
            raise CorruptBatchError(str(tp), first, last, str(error), REMEDY) from error
        skipped.count(tp, first, last, error)

    return on_fault
