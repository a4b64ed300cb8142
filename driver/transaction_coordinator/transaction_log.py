"""One partition of ``__transaction_state`` as the coordinator of one controller uses it.

Owns: the fence, the sequence of the coordinator's batches, the repetition of an append until its
outcome is known, and the reading of the log.  Must not know what the records mean.

Only one append is under way at a time.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from sparklog.client.backoff import ExponentialBackoff
from sparklog.client.data_client import DataClient
from sparklog.client.produce_api import Produced
from sparklog.driver.transaction_coordinator.coordinator_identity import (
    CoordinatorIdentity,
    coordinator_identity,
    exhausted_identity,
    fence_record,
)
from sparklog.driver.transactions import TransactionRecord
from sparklog.errors import DecodeError, ErrorCode, KafkaError, SparklogError
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import Isolation, OffsetSpec, TopicPartition
from sparklog.wire.records.batch import add_sequence, check_batch, iter_batches
from sparklog.wire.records.builder import Record, encode_batch, iter_records

#: How long one attempt to append looks for the leader before it is counted as a failure, in
#: seconds.  The next attempt repeats the batch.
_ATTEMPT_S: Final = 10.0
#: Pauses between attempts in seconds: the first and the longest.
_PAUSE_S: Final = (0.05, 2.0)
#: The refusals after which a batch is certainly not in the log, however often it was sent.
_REFUSED: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
    }
)

logger = logging.getLogger(__name__)


class CoordinatorFencedError(SparklogError):
    """A controller with a later epoch has taken the partition over."""


class LogChangedError(SparklogError):
    """The log lacks batches that were acknowledged: a replica without them was elected."""


class TransactionLog:
    """The log of one partition.

    Args:
        controller_epoch: the epoch of this controller.
        load_bytes: how many bytes are read at once; a larger batch comes nevertheless.
        replaying: held while records are replayed in a worker thread, so that the event loop shares
            the interpreter with one such thread only.
        wall_ms: returns the time of day in milliseconds.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        data_client: DataClient,
        *,
        controller_epoch: int,
        load_bytes: int,
        replaying: asyncio.Lock,
        wall_ms: Callable[[], int],
    ) -> None:
        self.topic_partition = topic_partition
        self._data_client = data_client
        self._controller_epoch = controller_epoch
        self._identity = coordinator_identity(controller_epoch)
        self._load_bytes = load_bytes
        self._replaying = replaying
        self._wall_ms = wall_ms
        self._next_sequence = 0
        self._lane = str(topic_partition)

    async def load(self, replay: Callable[[TransactionRecord], None]) -> int:
        """Fence earlier controllers and replay every record below the fence.

        Returns:
            The offset of the fence.

        Raises:
            CoordinatorFencedError: a later controller owns the partition.
            SparklogError: the log cannot be read.
        """
        fence = fence_record(self._controller_epoch)
        exhausted = exhausted_identity(self._controller_epoch)
        if exhausted is not None:
            await self._append_as(exhausted, (fence,), 0)
        try:
            offset = await self.append((fence,))
        except LogChangedError:
            await self._find_sequence()
            offset = await self.append((fence,))
        await self._read(offset, replay)
        await self._data_client.cluster.close_lane(self._lane)
        return offset

    async def append(self, records: Sequence[TransactionRecord]) -> int:
        """Append the records as one batch; return its first offset once the batch is replicated.

        Raises:
            KafkaError: the batch was refused and is not in the log.
            CoordinatorFencedError: a later controller owns the partition.
            LogChangedError: the log has to be loaded again.
        """
        offset = await self._append_as(self._identity, records, self._next_sequence)
        self._next_sequence = add_sequence(self._next_sequence, len(records))
        return offset

    async def _append_as(
        self, identity: CoordinatorIdentity, records: Sequence[TransactionRecord], sequence: int
    ) -> int:
        tp = self.topic_partition
        wall_ms = self._wall_ms()
        batch = encode_batch(
            [Record(key=key, value=value, timestamp=wall_ms) for key, value in records],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
        )
        pauses = ExponentialBackoff(*_PAUSE_S)
        while True:
            answers = await self._data_client.produce_each({tp: (batch,)}, timeout_s=_ATTEMPT_S)
            answer = answers[tp]
            if isinstance(answer, Produced):
                return answer.base_offset
            if answer.code in _REFUSED:
                raise answer
            if answer.code == ErrorCode.INVALID_PRODUCER_EPOCH:
                raise CoordinatorFencedError(f"{tp} belongs to a later controller: {answer}")
            if answer.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise LogChangedError(f"{tp} lacks records that it had acknowledged: {answer}")
            logger.warning("a record for %s is not replicated yet: %s", tp, answer)
            await pauses.wait()

    async def _find_sequence(self) -> None:
        """Go on behind the last own batch that the log has kept."""
        last = -1

        end = await self._offset(OffsetSpec.LATEST)
        offset = await self._offset(OffsetSpec.EARLIEST)
        while offset < end:
            records = await self._fetch_below(end, offset)
            for header, _start in iter_batches(records):
                if (header.producer_id, header.producer_epoch) == self._identity:
                    last = header.last_sequence
            offset = _next_offset(records, offset)
        self._next_sequence = 0 if last < 0 else add_sequence(last, 1)

    async def _read(self, fence: int, replay: Callable[[TransactionRecord], None]) -> None:
        offset = await self._offset(OffsetSpec.EARLIEST)
        while offset < fence:
            try:
                records = await self._fetch_below(fence + 1, offset)
            except KafkaError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                await self._require_end(fence + 1)
                offset = await self._offset(OffsetSpec.EARLIEST)
                continue
            async with self._replaying:
                offset = await run_blocking(_replay, records, offset, replay)

    async def _fetch_below(self, end: int, offset: int) -> memoryview:
        """Records from an offset on, of a log that had reached ``end``.

        Raises:
            LogChangedError: the log ends below ``end`` now.
        """
        records = await self._fetch(offset)
        if not records:
            await self._require_end(end)
        return records

    async def _require_end(self, end: int) -> None:
        """Raises LogChangedError if the log ends below ``end``, which it had reached."""
        found = await self._offset(OffsetSpec.LATEST)
        if found < end:
            tp = self.topic_partition
            raise LogChangedError(f"{tp} ends at offset {found}, and had records up to {end}")

    async def _fetch(self, offset: int) -> memoryview:
        fetched = await self._data_client.fetch(
            self.topic_partition,
            offset,
            max_bytes=self._load_bytes,
            isolation=Isolation.READ_UNCOMMITTED,
            lane=self._lane,
        )
        return fetched.records

    async def _offset(self, spec: OffsetSpec) -> int:
        tp = self.topic_partition
        found = await self._data_client.list_offsets(
            {tp: int(spec)}, isolation=Isolation.READ_UNCOMMITTED
        )
        return found[tp].offset


def _replay(data: memoryview, from_offset: int, replay: Callable[[TransactionRecord], None]) -> int:
    """Replay records from an offset on; return the offset behind them.  Blocks."""
    for header, start in iter_batches(data):
        check_batch(data, start, header)
        if header.is_control:
            continue
        for record in iter_records(data, start, header, from_offset=from_offset):
            if record.offset >= from_offset and record.key is not None:
                replay(TransactionRecord(record.key, record.value))
    return _next_offset(data, from_offset)


def _next_offset(data: memoryview, from_offset: int) -> int:
    """The offset behind the batches; ``from_offset`` when nothing was fetched.

    Raises:
        DecodeError: the batches lie below the offset.
    """
    next_offset = from_offset
    for header, _start in iter_batches(data):
        next_offset = header.next_offset
    if len(data) and next_offset <= from_offset:
        raise DecodeError(f"{len(data)} bytes were read at offset {from_offset}")
    return next_offset
