"""What brokers hold of transactions, seen from outside: decisions, markers, open transactions.

Owns: reading without being noticed, no operation on a disk and no draw from a seed.  Must not know
which of it is right.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from sparklog.driver.transactions import (
    PREPARED,
    Decision,
    Now,
    Transaction,
    TransactionRecord,
    TransactionShard,
    TransactionState,
    read_transaction_record,
)
from sparklog.errors import KafkaError
from sparklog.executors.partition import Effect
from sparklog.executors.partition.partition import Partition
from sparklog.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from sparklog.wire.records.batch import BatchHeader
from sparklog.wire.records.builder import iter_records
from sparklog.wire.records.control import ControlType, read_marker
from tests.simulation.events import LogId
from tests.simulation.transaction_events import (
    MarkerAppended,
    Producer,
    TransactionsSettled,
    TransactionStateCommitted,
)
from tests.simulation.workloads import platter
from tests.simulation.workloads.consume import tp_of
from tests.simulation.workloads.scene import Scene

#: Virtual time after which a transaction is given up that has not ended.
SETTLE_S = 60.0
_DEAD = TransactionState.DEAD.label
_NOBODY = Producer(-1, -1)


@contextmanager
def committed(scene: Scene) -> Iterator[None]:
    """Meanwhile records of coordinators and markers are events when they are committed.

    Loads of coordinators and timeouts of transactions are counted.
    """
    real, real_loaded = Partition.move_high_watermark, TransactionShard.loaded
    real_timeouts = TransactionShard._abort_timed_out

    def move_high_watermark(self: Partition, reached: int) -> list[Effect]:
        tp = self.topic_partition
        log = LogId(tp.topic, self.topic_id, tp.partition)
        if scene.transactional and self.is_leader and reached > self.high_watermark:
            if tp.topic == TRANSACTION_STATE:
                _note_states(scene, self, log, self.high_watermark, reached)
            elif tp.topic == CONSUMER_OFFSETS or scene.is_transactional(log):
                _note_markers(scene, self, log, self.high_watermark, reached)
        return real(self, reached)

    def loaded(self: TransactionShard, now: Now) -> Decision:
        scene.count("transaction_loads")
        return real_loaded(self, now)

    def abort_timed_out(self: TransactionShard, now: Now, outcome: Any) -> None:
        before = len(outcome.appends)
        real_timeouts(self, now, outcome)
        scene.count("transaction_timeouts", len(outcome.appends) - before)

    with (
        patch.object(Partition, "move_high_watermark", move_high_watermark),
        patch.object(TransactionShard, "loaded", loaded),
        patch.object(TransactionShard, "_abort_timed_out", abort_timed_out),
    ):
        yield


def _replicated(
    scene: Scene, partition: Partition, begin: int, end: int
) -> list[tuple[bytes, BatchHeader]]:
    """The batches with offsets from ``begin`` to ``end``.

    The leader's files may have vanished behind its back; then those of another member have them.
    """
    assert partition.state is not None
    found: list[tuple[bytes, BatchHeader]] = []
    for node_id in (partition.node_id, *partition.state.isr):
        disk = scene.world.brokers[node_id].disk.backend.disk
        batches = platter.whole_batches(disk, node_id, partition.topic_partition, begin)
        found = [each for each in batches if each[1].base_offset < end]
        if found and found[-1][1].next_offset >= end:
            break
    return found


def _note_states(scene: Scene, partition: Partition, log: LogId, begin: int, end: int) -> None:
    for data, header in _replicated(scene, partition, begin, end):
        for record in iter_records(data, 0, header):
            if not begin <= record.offset < end or record.key is None:
                continue
            read = read_transaction_record(TransactionRecord(record.key, record.value))
            if read is not None:  # else a fence
                scene.history.record(_state_of(log, record.offset, *read))


def _state_of(
    log: LogId, offset: int, transactional_id: str, transaction: Transaction | None
) -> TransactionStateCommitted:
    if transaction is None:
        return TransactionStateCommitted(
            log=log, offset=offset, transactional_id=transactional_id, state=_DEAD, producer=_NOBODY
        )
    return TransactionStateCommitted(
        log=log,
        offset=offset,
        transactional_id=transactional_id,
        state=transaction.state.label,
        producer=Producer(transaction.producer_id, transaction.producer_epoch),
        partitions=frozenset((tp.topic, tp.partition) for tp in transaction.partitions),
    )


def _note_markers(scene: Scene, partition: Partition, log: LogId, begin: int, end: int) -> None:
    for data, header in _replicated(scene, partition, begin, end):
        if header.is_control and begin <= header.base_offset:
            marker = read_marker(data, 0, header)
            if marker is not None:
                scene.count("markers_committed")
                scene.history.record(
                    MarkerAppended(
                        log=log,
                        offset=header.base_offset,
                        producer=Producer(header.producer_id, header.producer_epoch),
                        committed=marker.control_type is ControlType.COMMIT,
                    )
                )


async def settle(scene: Scene) -> None:
    """Until no transaction is open, neither for a coordinator nor in a partition."""
    began = scene.now_ms
    while True:
        found, unstable = tuple(_open(scene)), tuple(_unstable(scene))
        if not found and not unstable:
            break
        if scene.now_ms - began > SETTLE_S * 1000:
            break
        await asyncio.sleep(0.2)
    took_ms = scene.now_ms - began
    scene.history.record(TransactionsSettled(took_ms=took_ms, open=found, unstable=unstable))


def _open(scene: Scene) -> Iterator[str]:
    control = scene.world.control.control_plane
    if control is None:
        yield "there is no control plane"
        return
    if control.image.topic(TRANSACTION_STATE) is None:
        return
    try:
        for shard in control.transaction_coordinator.shards():
            for transaction in shard.transactions():
                if transaction.state is TransactionState.ONGOING or transaction.state in PREPARED:
                    yield f"{transaction.transactional_id} is {transaction.state.label}"
    except KafkaError as error:
        yield str(error)


def _unstable(scene: Scene) -> Iterator[LogId]:
    for log in scene.transaction_logs + scene.coordinator_logs(CONSUMER_OFFSETS):
        host = scene.world.brokers.get(scene.leader(log))
        broker = host.broker if host is not None else None
        led = broker.replica_manager.get(tp_of(log)) if broker is not None else None
        is_led = led is not None and led.is_leader
        if led is None or not is_led or led.last_stable_offset < led.high_watermark:
            yield log
