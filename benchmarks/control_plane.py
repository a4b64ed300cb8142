"""The cost of a large cluster for its control plane: failovers, their commits, and the journal.

Owns: a controller with its journal in memory, and the CPU that its work takes.  Must not know how a
row is shown.  No process or socket takes part, and CPU is measured, so a busy machine does not
change the result.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from uuid import UUID

from rich.console import Console

from benchmarks.harness import Row
from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.controller import Controller, Decision
from sparklog.driver.control_plane.journal import TAIL_BYTES_MAX, CommitHeader, Journal
from sparklog.metadata import (
    ClusterCreated,
    ClusterImage,
    ControllerChanged,
    Record,
    decode_records,
    encode_records,
)
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from sparklog.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from sparklog.wire.protocol.private import LostBroker, RegisterBrokerRequest, ReportLossRequest

BROKERS = 50
#: Number of brokers on one host.
PER_HOST = 5
TOPICS = 200
PARTITIONS = 20_000
REPLICAS = 3

_CLUSTER = "bench"


def rows(console: Console) -> list[Row]:
    """Return every row.  The console shows what is being measured."""
    console.print(f"control_plane: {BROKERS} brokers, {PARTITIONS} partitions, {REPLICAS} replicas")
    plane = _Plane()
    creating = [plane.cpu_of(plane.create_topic) for _ in range(TOPICS)]
    assert plane.image.partition_count == PARTITIONS
    lost, back, whole = zip(*(plane.lose_and_return([n]) for n in range(1, 11)), strict=True)
    hosts = (range(n, n + PER_HOST) for n in range(1, BROKERS, PER_HOST))
    host, _, _ = zip(*map(plane.lose_and_return, hosts), strict=True)
    plane.image.check_invariants()
    console.print("control_plane: the journal at its longest")
    return [
        _at_most("a topic of 100 partitions is created, median", "ms CPU", median(creating), 100),
        _at_most("a broker is lost: decided and committed, worst", "ms CPU", max(lost), 1_000),
        _at_most("its commit", "KB", plane.commit_bytes_max / 1e3, 400),
        _at_most("a broker takes that in", "ms CPU", plane.follow(), 100),
        _at_most("a broker comes back, worst", "ms CPU", max(back), 1_000),
        _at_most("then its ISRs are whole again, worst", "ms CPU", max(whole), 1_000),
        _at_most("a host of five brokers is lost, worst", "ms CPU", max(host), 1_000),
        *plane.measure_journal(),
    ]


class _Plane:
    """The controller, whose image runs ahead, the committed image, and the journal."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self._journal = Journal(MemoryBackend())
        self._ids = iter(range(1, 1 << 30))
        self._largest: tuple[Record, ...] = ()
        self.commit_bytes_max = 0
        self._commit(
            (
                ClusterCreated(cluster_id=_CLUSTER, created_ms=0),
                ControllerChanged(controller_epoch=1, host="127.0.0.1", port=9092),
            )
        )
        self._controller = Controller(
            self.image.copy(),
            BrokerConfig.resolve({}),
            new_id=self._new_id,
            now_ms=0,
            wall_ms=lambda: 0,
        )
        for broker_id in range(1, BROKERS + 1):
            self._register(broker_id)

    def cpu_of(self, work: Callable[[], object]) -> float:
        """CPU in ms.  Garbage collection ignores existing objects, as in a started process."""
        gc.collect()
        gc.freeze()
        began = time.process_time()
        work()
        return (time.process_time() - began) * 1000

    def cpu_of_start(self) -> float:
        """CPU of a start in ms.  A process collects no garbage while it starts."""
        gc.disable()
        try:
            return self.cpu_of(self._journal.load)
        finally:
            gc.enable()

    def create_topic(self) -> None:
        topic = CreatableTopic(
            name=f"topic-{len(self.image.topics)}",
            num_partitions=PARTITIONS // TOPICS,
            replication_factor=REPLICAS,
        )
        request = CreateTopicsRequest(topics=(topic,))
        self._commit(self._controller.handle(request, 0).records)

    def lose_and_return(self, brokers: Sequence[int]) -> tuple[float, float, float]:
        """Measure the loss of several brokers at once, and their return.

        Returns the CPU in ms of the loss, of the return, and of the proposals of all leaders to
        take them into their ISRs again.
        """
        request = ReportLossRequest(brokers=tuple(LostBroker(broker_id=b) for b in brokers))
        decided: list[Decision] = []

        def lose() -> None:
            decided.append(self._controller.handle(request, 0))
            size = self._commit(decided[0].records)
            if len(brokers) == 1 and size > self.commit_bytes_max:
                self.commit_bytes_max, self._largest = size, decided[0].records

        lost = self.cpu_of(lose)

        def come_back() -> None:
            for broker_id in brokers:
                self._register(broker_id)

        def make_whole() -> None:
            for proposal in proposals:
                self._propose(proposal)

        back = self.cpu_of(come_back)
        proposals = [*self._proposals()]
        whole = self.cpu_of(make_whole)
        assert all(state.isr == state.replicas for _, state in self.image.partitions())
        return lost, back, whole

    def follow(self) -> float:
        """Return the CPU in ms that a broker's image needs for the largest failover."""
        image, encoded = self.image.copy(), encode_records(self._largest)
        return self.cpu_of(lambda: image.replay_commit(image.version + 1, decode_records(encoded)))

    def measure_journal(self) -> list[Row]:
        """Measure a checkpoint, and as many failovers as fit between two checkpoints."""
        header = self._header(self.image.version)
        snapshot = tuple(self.image.snapshot_records())
        writing = self.cpu_of(lambda: self._journal.write_checkpoint(header, snapshot))
        loading = self.cpu_of_start()
        self._journal.reset_tail()
        while self._journal.tail_bytes < TAIL_BYTES_MAX:
            self._commit(self._largest)
        replaying = self.cpu_of_start()
        return [
            _at_most("a checkpoint is written", "ms CPU", writing, 1_000),
            _at_most("a start from it", "s CPU", loading / 1000, 5),
            _at_most("a start with 16 MB of failovers after it", "s CPU", replaying / 1000, 5),
        ]

    def _register(self, broker_id: int) -> None:
        former = self._controller.image.broker(broker_id)
        request = RegisterBrokerRequest(
            cluster_id=_CLUSTER,
            broker_id=broker_id,
            directory_id=UUID(int=broker_id),
            incarnation=self._new_id(),
            host="127.0.0.1",
            port=9100 + broker_id,
            executor_host=f"host-{(broker_id - 1) // PER_HOST}",
            executor_id=str(broker_id),
            job=str(broker_id),
            clean_stop=former is not None,
        )
        self._commit(self._controller.handle(request, 0).records)

    def _proposals(self) -> Iterator[AlterPartitionRequest]:
        """One proposal of each leader: every replica is in sync."""
        image = self.image
        for broker in image.alive_brokers():
            by_topic: dict[str, list[PartitionData]] = {}
            for tp, state in image.partitions_led_by(broker.broker_id).items():
                if len(state.isr) < len(state.replicas):
                    data = PartitionData(
                        partition_index=tp.partition,
                        leader_epoch=state.leader_epoch,
                        partition_epoch=state.partition_epoch,
                        new_isr_with_epochs=tuple(
                            BrokerState(broker_id=b, broker_epoch=image.brokers[b].broker_epoch)
                            for b in state.replicas
                        ),
                    )
                    by_topic.setdefault(tp.topic, []).append(data)
            topics = tuple(
                TopicData(topic_id=image.topics[name].topic_id, partitions=tuple(partitions))
                for name, partitions in by_topic.items()
            )
            if topics:
                yield AlterPartitionRequest(
                    broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, topics=topics
                )

    def _propose(self, proposal: AlterPartitionRequest) -> None:
        self._commit(self._controller.handle(proposal, 0).records)

    def _commit(self, records: tuple[Record, ...]) -> int:
        """Commit records, and return their size in bytes."""
        encoded = encode_records(records)
        version = self.image.version + 1
        self._journal.commit(self._header(version), encoded)
        self.image.replay_commit(version, records)
        return len(encoded)

    def _header(self, version: int) -> CommitHeader:
        return CommitHeader(version=version, controller_epoch=1, nonce=str(version), time_ms=0)

    def _new_id(self) -> UUID:
        return UUID(int=next(self._ids) << 64)


def _at_most(what: str, unit: str, figure: float, asked: float) -> Row:
    return Row(what=what, unit=unit, ours=figure, base=None, asked=asked, at_most=True)
