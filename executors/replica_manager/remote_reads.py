"""Reads of the records of tiered logs that are only in the bucket, as a fetch sees them.

Owns: the interface, and what it is without a remote_dir, as that of the sizes.  Must not know how a
bucket is read.
"""

from collections.abc import Awaitable
from typing import NamedTuple, Protocol

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log import AbortedTxn
from sparklog.executors.partition import Partition
from sparklog.remote_log.remote_segment import TimeBounds
from sparklog.remote_log.signed_segments import SignedPage
from sparklog.storage_backends.base import Region
from sparklog.types import MAX_INT64, OffsetTimestamp


class RemoteRecords(NamedTuple):
    """Whole batches of a remote segment, and the aborted transactions with data among them."""

    records: Region
    aborted: tuple[AbortedTxn, ...] = ()


class RemoteSizes(NamedTuple):
    """Bytes of a tiered log: of its objects, and of sealed segments that are still to be copied."""

    remote_bytes: int
    copy_lag_bytes: int


def no_remote_sizes(_partition: Partition) -> RemoteSizes | None:
    """The sizes as a broker without a remote_dir knows them."""
    return None


class RemoteReads(Protocol):
    """The remote part of a broker's tiered logs, between log start and local log start."""

    def read(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int = MAX_INT64,
        with_aborted: bool,
        for_replica: bool = False,
    ) -> RemoteRecords | None:
        """The records from the batch with ``offset`` on up to ``end_offset``; at least one batch.

        The bucket has more than a reader may see if a recovery has lost markers, or where a
        follower does not know yet how far the records are stable.  ``for_replica`` says that
        another broker asks, not a client.

        Returns None while they are on their way.  Then the delayed fetches of the partition are
        checked when they have come, or when an error has.  Raises KafkaError.
        """

    def find_timestamp(
        self, partition: Partition, timestamp: int
    ) -> "Awaitable[OffsetTimestamp | None]":
        """The first record in the bucket, from the log start on, with at least this timestamp (ms).

        None without one; then the files here are searched.  May be cancelled.  Raises KafkaError.
        """

    def signed_segments(
        self,
        partition: Partition,
        start: int,
        end: int,
        times: TimeBounds,
        *,
        seconds: int,
        count_max: int,
    ) -> "Awaitable[SignedPage]":
        """The first segments with offsets in [``start``, ``end``) and within ``times``, with URLs
        that are good for ``seconds``; none if there are no such URLs.  Raises KafkaError."""


class NoRemoteReads:
    """The reads of a broker without a remote_dir."""

    def read(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int = MAX_INT64,
        with_aborted: bool,
        for_replica: bool = False,
    ) -> RemoteRecords | None:
        """Raises KafkaError: the records cannot be reached from here."""
        del max_bytes, end_offset, with_aborted, for_replica
        raise self._error(partition, offset)

    async def find_timestamp(self, partition: Partition, timestamp: int) -> OffsetTimestamp | None:
        """Raises KafkaError: the records cannot be reached from here."""
        del timestamp
        raise self._error(partition, partition.log.log_start_offset)

    async def signed_segments(
        self,
        partition: Partition,
        start: int,
        end: int,
        times: TimeBounds,
        *,
        seconds: int,
        count_max: int,
    ) -> SignedPage:
        """There are no URLs."""
        del partition, start, end, times, seconds, count_max
        return SignedPage()

    def _error(self, partition: Partition, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"offset {offset} of {partition.topic_partition} is in a remote_dir, and this cluster "
            "was started without one; start it with its remote_dir",
        )
