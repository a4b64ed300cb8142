"""Transactions in compacted topics: keyed batches that are committed or aborted some time later.

Owns: a stand-in for the transaction coordinator, which confirms every transaction, and appends
markers at the leader as ``WriteTxnMarkers`` would.  Must not know what compaction makes of them.

An abort bumps the producer's epoch, so that a batch that is still on its way cannot begin the
transaction anew.  What is committed has been acknowledged to its last batch.
"""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.data_client import DataClient
from sparklog.client.producer_sequences import ProducerIdentity
from sparklog.errors import KafkaError, SparklogError
from sparklog.executors.broker import Broker
from sparklog.executors.partition.append_draft import AppendDraft
from sparklog.executors.partition.leader_role import LeaderRole
from sparklog.executors.partition.producer_state import TransactionEnd
from sparklog.wire.records.control import ControlType, EndTxnMarker
from tests.simulation.actors import Killed
from tests.simulation.events import LogId
from tests.simulation.workloads import idempotent
from tests.simulation.workloads.consume import tp_of
from tests.simulation.workloads.scene import KeyedValues, Scene

TIMEOUT_S = 3.0
#: Virtual time after which a transaction stays open, in a partition that does not work.
FINISH_S = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction whose end has been decided, and is not in the log for sure."""

    log: LogId
    producer_id: int
    producer_epoch: int
    commits: bool


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    values = KeyedValues(name, chance)
    sequences: dict[LogId, idempotent.Sequence] = {}
    async with await scene.world.cluster_client(name) as cluster:
        while not scene.over:
            log = chance.choice(scene.compacted_logs)
            try:
                if log not in sequences:
                    identity = await DataClient(cluster).init_producer_id(timeout_s=TIMEOUT_S)
                    sequences[log] = idempotent.Sequence(identity)
            except SparklogError:
                continue
            transaction = await _write(scene, cluster, name, log, values, sequences[log], chance)
            if not transaction.commits:
                identity = ProducerIdentity(
                    producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch
                )
                sequences[log] = idempotent.Sequence(identity)
            await scene.pause(chance, 1000)
            scene.open_transactions.append(transaction)
            while not scene.over and not await _end(scene, transaction):
                await scene.pause(chance, 500)
            if not scene.over:
                scene.open_transactions.remove(transaction)
                scene.count("transactions_ended")
            await scene.pause(chance, 1000)


async def finish(scene: Scene) -> None:
    """After the healing: end what has not been ended."""
    began_s = scene.now_ms / 1000
    for transaction in scene.open_transactions:
        while not await _end(scene, transaction):
            await asyncio.sleep(0.2)
            if scene.now_ms / 1000 - began_s > FINISH_S:
                return


@contextmanager
def confirmed() -> Iterator[None]:
    """Meanwhile every transaction is confirmed, as if a coordinator had been asked."""
    real = LeaderRole._draft

    def draft(self: LeaderRole, now_ms: int, verified: bool) -> AppendDraft:
        return real(self, now_ms, True)

    with patch.object(LeaderRole, "_draft", draft):
        yield


async def _write(
    scene: Scene,
    cluster: ClusterClient,
    name: str,
    log: LogId,
    values: KeyedValues,
    sequence: idempotent.Sequence,
    chance: random.Random,
) -> OpenTransaction:
    """The batches of a transaction, and the decision about it."""
    known = True
    for _ in range(chance.choice((1, 1, 2, 3))):
        batch = idempotent.begin(scene, log, name, values.some(), sequence, transactional=True)
        known = await idempotent.send_until_known(scene, cluster, log, name, [batch], chance)
        if not known:
            break
    identity, commits = sequence.identity, known and chance.random() < 0.6
    return OpenTransaction(
        log=log,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch + (not commits),
        commits=commits,
    )


async def _end(scene: Scene, transaction: OpenTransaction) -> bool:
    """Append a marker where the partition is led; whether it is replicated."""
    host = scene.world.brokers.get(scene.leader(transaction.log))
    if host is None or host.broker is None or host.node is None or host.node.holds:
        return False
    marking = host.node.spawn(scene.world.loop, _append(host.broker, transaction))
    await asyncio.wait([marking], timeout=TIMEOUT_S)  # it never ends if the broker dies
    return marking.done() and not marking.cancelled() and marking.result()


async def _append(broker: Broker, transaction: OpenTransaction) -> bool:
    replica_manager = broker.replica_manager
    partition = replica_manager.get(tp_of(transaction.log))
    if partition is None:
        return False
    kind = ControlType.COMMIT if transaction.commits else ControlType.ABORT
    end = TransactionEnd(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        marker=EndTxnMarker(control_type=kind, coordinator_epoch=0),
    )
    try:
        appended = partition.end_transaction(end, now_ms=replica_manager.now_ms())
        replica_manager.carry_out(appended.effects)
        required = appended.required_offset
        while required is not None and not partition.has_reached(required):
            await asyncio.sleep(0.02)
    except (KafkaError, Killed):  # the broker may die in the middle of the append
        return False
    return True
