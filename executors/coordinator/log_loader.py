"""Loading the state of a coordinator from its partition's log.

Owns: which records a load reads, in which portions, and how many partitions load at once.  Must not
know what the records mean, or what follows a load.

A load reads up to the log end, above the high watermark too: the state of a coordinator runs ahead
of it, and responses wait.  The records of a transaction are kept until its marker commits or aborts
them; without a marker they stay undecided.  Reading, decoding and replaying happen in a worker
thread, in portions of ``offsets.load.buffer.size``.  Nothing else uses a state machine while it
loads.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from sparklog.errors import DecodeError
from sparklog.executors.coordinator.state_machine import CoordinatorRecord, CoordinatorStateMachine
from sparklog.executors.partition import Partition
from sparklog.storage_backends.base import Region
from sparklog.storage_backends.blocking import run_blocking
from sparklog.wire.records.batch import BatchHeader, check_batch, iter_batches
from sparklog.wire.records.builder import iter_records
from sparklog.wire.records.control import ControlType, read_marker

#: Partitions of one runtime that load at the same time, as in Kafka.  Worker threads are few, and
#: flushes need them too.
LOADS_AT_ONCE: Final = 1


class LogLoader:
    """The loads of one runtime.  ``buffer_bytes`` returns the size of a portion."""

    def __init__(self, buffer_bytes: Callable[[], int]) -> None:
        self._buffer_bytes = buffer_bytes
        self._gate = asyncio.Semaphore(LOADS_AT_ONCE)

    async def load(self, partition: Partition, machine: CoordinatorStateMachine) -> int:
        """Replay the whole log of a partition that this broker leads.

        Returns:
            The log end offset; everything below it was replayed.

        Raises:
            KafkaError: the partition is not led any more, or a batch is damaged.
            StorageError, DecodeError: the log cannot be read.
        """
        leader_epoch = partition.leader_epoch
        async with self._gate:
            partition.require_leader(leader_epoch)
            offset = partition.log.local_log_start_offset
            while (offset := max(offset, partition.log.local_log_start_offset)) < (
                end := partition.log.log_end_offset
            ):
                read = partition.read(
                    offset,
                    self._buffer_bytes(),
                    current_leader_epoch=leader_epoch,
                    replica_id=partition.node_id,  # up to the log end
                )
                if read.records is None:
                    break  # compaction has left no batch at or above the offset
                try:
                    offset = await run_blocking(replay_region, read.records, offset, machine)
                finally:
                    read.records.release()
            return end


def replay_region(region: Region, from_offset: int, machine: CoordinatorStateMachine) -> int:
    """Replay the records of a region from an offset on; return the offset behind them.  Blocks."""
    data = region.read()
    next_offset = from_offset
    for header, start in iter_batches(data):
        check_batch(data, start, header)
        if header.is_control:
            _replay_marker(data, start, header, machine)
        else:
            _replay_batch(data, start, header, from_offset, machine)
        next_offset = header.next_offset
    if next_offset <= from_offset:
        raise DecodeError(f"{len(data)} of {region.size} bytes were read at offset {from_offset}")
    return next_offset


def _replay_batch(
    data: bytes,
    start: int,
    header: BatchHeader,
    from_offset: int,
    machine: CoordinatorStateMachine,
) -> None:
    for record in iter_records(data, start, header, from_offset=from_offset):
        # Kafka's internal topics are compacted, so they hold no record without a key.
        if record.offset >= from_offset and record.key is not None:
            replayed = CoordinatorRecord(key=record.key, value=record.value)
            if header.is_transactional:
                machine.replay_in_transaction(replayed, header.producer_id)
            else:
                machine.replay(replayed)


def _replay_marker(
    data: bytes, start: int, header: BatchHeader, machine: CoordinatorStateMachine
) -> None:
    marker = read_marker(data, start, header)
    if marker is not None:
        committed = marker.control_type is ControlType.COMMIT
        machine.replay_transaction_end(header.producer_id, committed=committed)
