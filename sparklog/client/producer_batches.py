"""The batches of a producer that wait for a partition, and the outcome of each record.

Owns: the records of a batch and their futures.  Must not know when and how batches are sent.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sparklog.client.produce_api import Produced
from sparklog.types import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from sparklog.wire.records.builder import Record

Headers = Sequence[tuple[str, bytes | None]]

#: Bytes of a record in a batch besides key, value and headers, roughly.
_RECORD_OVERHEAD: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """Where a record was written; offset -1 when the broker did not say."""

    topic: str
    partition: int
    offset: int
    timestamp: int


@dataclass(slots=True)
class Batch:
    """Records of one partition that are sent together."""

    records: list[Record] = field(default_factory=list)
    futures: "list[asyncio.Future[Delivered]]" = field(default_factory=list)
    size_bytes: int = 0

    def halves(self) -> "tuple[Batch, Batch]":
        """The first and second half; this batch keeps the reserved bytes of both."""
        middle = len(self.records) // 2
        return (
            Batch(records=self.records[:middle], futures=self.futures[:middle]),
            Batch(records=self.records[middle:], futures=self.futures[middle:]),
        )

    def succeed(self, tp: TopicPartition, produced: Produced) -> None:
        known = produced.base_offset >= 0
        for index, (record, future) in enumerate(zip(self.records, self.futures, strict=True)):
            if not future.done():
                future.set_result(
                    Delivered(
                        topic=tp.topic,
                        partition=tp.partition,
                        offset=produced.base_offset + index if known else NO_OFFSET,
                        timestamp=(
                            record.timestamp
                            if produced.log_append_time == NO_TIMESTAMP
                            else produced.log_append_time
                        ),
                    )
                )

    def fail(self, error: Exception) -> None:
        for future in self.futures:
            if not future.done():
                future.set_exception(error)
                future.exception()  # flush reports the error, so asyncio need not log it


@dataclass(slots=True)
class BatchQueue:
    """The batches that wait for one partition.  The last batch is open for more records."""

    batches: deque[Batch] = field(default_factory=deque)
    sender: "asyncio.Task[None] | None" = None
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    shares_identity: bool = True


def record_size(record: Record) -> int:
    """Bytes of a record in a batch, roughly."""
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
