"""Replicas of one partition on disks of their own, and what a cluster does with them, by hand.

A follower fetches when it is told to, and a controller elects whom it is told to.  Clocks stand
still unless a test moves them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sparklog.config import TopicConfig
from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.log import Log
from sparklog.executors.log.steps import run_through
from sparklog.executors.partition import (
    Effect,
    EpochEnd,
    FetchPosition,
    FlushLog,
    IsrProposal,
    PartitionRead,
    SubmitAlterPartition,
    Truncated,
)
from sparklog.executors.partition.partition import Partition
from sparklog.executors.partition.producer_state import ProducerStateManager
from sparklog.metadata import PartitionImage
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import NO_NODE
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import iter_records
from tests.unit.executors.partition.partition_maker import NOW, TOPIC_ID, TP, batch

LAG_MS = 30_000
#: What survives a process that dies while its host lives.
EVERYTHING = 10**9


@dataclass
class Host:
    """A broker's disk, what it has checkpointed, and its replica while the process lives."""

    node_id: int
    config: TopicConfig
    live_epochs: dict[int, int]
    backend: MemoryBackend = field(default_factory=MemoryBackend)
    files: FileCache = field(default_factory=lambda: FileCache(16))
    recovery_point: int = 0
    log_start_offset: int = 0
    clean: bool = False
    partition: Partition | None = None

    @property
    def replica(self) -> Partition:
        assert self.partition is not None, f"replica {self.node_id} is down"
        return self.partition

    def open(self) -> Partition:
        producers = ProducerStateManager(TP)
        log = Log.open(
            self.backend,
            "broker/t-0",
            topic_partition=TP,
            config=self.config,
            files=self.files,
            producers=producers,
            now_ms=NOW,
            clean=self.clean,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            topic_id=TOPIC_ID,
        )
        self.clean = False
        self.partition = Partition(
            topic_partition=TP,
            topic_id=TOPIC_ID,
            node_id=self.node_id,
            log=log,
            producers=producers,
            config=self.config,
            lag_time_max_ms=LAG_MS,
            live_epoch=self.live_epochs.get,
        )
        self.partition.opened(NOW)
        return self.partition

    def checkpoint(self) -> None:
        self.recovery_point = self.replica.log.recovery_point
        self.log_start_offset = self.replica.log.log_start_offset

    def stop(self) -> None:
        """Cleanly."""
        self.replica.log.close(NOW)
        self.checkpoint()
        self.clean, self.partition = True, None

    def crash(self, keep_unflushed: int = 0, *, lose_names: bool = False) -> None:
        """The process dies, and of what was not flushed all but so many bytes per file."""
        self.backend.crash(keep_unflushed, lose_names=lose_names)
        self.files.close()
        self.partition = None

    def flush(self) -> Sequence[Effect]:
        replica = self.replica
        job = replica.log.start_flush(NOW, force=True)
        assert job is not None
        job.run()
        replica.log.finish_flush(job, NOW)
        return replica.flushed(NOW)

    def records(self, below: int | None = None) -> list[tuple[int, int, bytes | None]]:
        """Leader epoch, offset and value of each that its first batch and those after it hold."""
        log, found = self.replica.log, []
        offset = log.log_start_offset
        end = log.log_end_offset if below is None else below
        while offset < end:
            read = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
            assert read.region is not None
            data = read.region.read()
            read.region.release()
            for header, start in iter_batches(data):
                for record in iter_records(data, start, header):
                    if record.offset < end:
                        epoch = header.partition_leader_epoch
                        found.append((epoch, record.offset, record.value))
                offset = header.next_offset
        return found

    def values(self) -> list[bytes | None]:
        return [value for _, _, value in self.records()]


class Trio:
    """Replicas 1, 2 and so on, of one partition; ``elect`` before anything else."""

    def __init__(self, count: int = 3, **settings: object) -> None:
        config = TopicConfig(**settings)  # type: ignore[arg-type]
        self.replicas = tuple(range(1, count + 1))
        self.broker_epochs = {i: 10 + i for i in self.replicas}
        self.hosts = {i: Host(i, config, self.broker_epochs) for i in self.replicas}
        for host in self.hosts.values():
            host.open()
        self.now_ms = 0
        self.state = PartitionImage(
            replicas=self.replicas, isr=self.replicas, leader_epoch=-1, partition_epoch=-1
        )
        #: Proposals that await the controller.
        self.proposed: list[IsrProposal] = []

    def __getitem__(self, node_id: int) -> Partition:
        return self.hosts[node_id].replica

    @property
    def leader(self) -> Partition:
        return self[self.state.leader]

    # the controller

    def elect(self, leader: int, isr: Iterable[int] | None = None, *, tell: bool = True) -> None:
        isr = self.state.isr if isr is None else tuple(isr)
        self.state = replace(
            self.state,
            leader=leader,
            isr=isr,
            leader_epoch=self.state.leader_epoch + 1,
            partition_epoch=self.state.partition_epoch + 1,
        )
        if tell:
            self.tell()

    def change_isr(self, *isr: int) -> None:
        epoch = self.state.partition_epoch + 1
        self.state = replace(self.state, isr=isr, partition_epoch=epoch)
        self.tell()

    def tell(self, *nodes: int) -> None:
        """Give the image to those that live."""
        for node_id in nodes or self.replicas:
            partition = self.hosts[node_id].partition
            if partition is not None:
                self.carry_out(
                    partition, partition.make_leader_or_follower(self.state, self.now_ms)
                )

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> list[Effect]:
        """Answer the oldest proposal."""
        proposal = self.proposed.pop(0)
        if error is ErrorCode.NONE:
            self.state = replace(
                self.state,
                isr=tuple(node_id for node_id, _ in proposal.isr),
                partition_epoch=self.state.partition_epoch + 1,
            )
        state = self.state if error is ErrorCode.NONE else None
        leader = self.leader
        effects = leader.isr_answered(proposal, error, state, self.now_ms)
        self.carry_out(leader, effects)
        return effects

    # the life of a replica

    def restart(self, node_id: int, *, tell: bool = True) -> Partition:
        partition = self.hosts[node_id].open()
        if tell:
            self.tell(node_id)
        return partition

    def crash(self, node_id: int, keep_unflushed: int = 0, *, lose_names: bool = False) -> None:
        self.hosts[node_id].crash(keep_unflushed, lose_names=lose_names)

    # records

    def append(self, *values: bytes, acks: int = 1, **more: object) -> int:
        """One batch through the leader; the offset of its first record."""
        appended = self.leader.append_as_leader(
            batch(*values, **more),  # type: ignore[arg-type]
            acks=acks,
            now_ms=NOW,
            verified=bool(more.get("transactional")),
        )
        self.carry_out(self.leader, appended.effects)
        return appended.base_offset

    def fetch(self, *nodes: int, max_bytes: int = 1 << 20) -> None:
        """One round trip of each: ask, answer, and do what the answer says."""
        for node_id in nodes:
            follower = self[node_id]
            position = follower.fetch_position()
            assert position is not None
            read = self.ask(node_id, position, max_bytes)
            if read is not None:
                self.take(node_id, position, read)

    def catch_up(self, *nodes: int) -> None:
        """Fetch until all of them know that they have everything."""
        for node_id in nodes:
            for _ in range(100):
                self.fetch(node_id)
                if self[node_id].log.log_end_offset == self.leader.log.log_end_offset:
                    break
        self.fetch(*nodes)

    def ask(
        self, node_id: int, position: FetchPosition, max_bytes: int = 1 << 20
    ) -> PartitionRead | None:
        """What the leader answers; None: start over."""
        leader = self.leader
        try:
            read = leader.read(
                position.offset,
                max_bytes,
                current_leader_epoch=position.current_leader_epoch,
                last_fetched_epoch=position.last_fetched_epoch,
                replica_id=node_id,
            )
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self.truncate_fully(node_id, leader.log.log_start_offset)
            return None
        if read.diverging is None:
            effects = leader.update_follower_fetch_state(
                node_id,
                position.offset,
                position.log_start_offset,
                broker_epoch=self.broker_epochs[node_id],
                now_ms=self.now_ms,
            )
            self.carry_out(leader, effects)
        return read

    def take(self, node_id: int, position: FetchPosition, read: PartitionRead) -> list[Effect]:
        """The answer has reached the follower."""
        follower, epoch = self[node_id], position.current_leader_epoch
        if read.diverging is not None:
            self.truncate(node_id, read.diverging)
            return []
        data = b""
        if read.records is not None:
            data = read.records.read()
            read.records.release()
        effects = follower.append_as_follower(
            data,
            fetch_offset=position.offset,
            leader_epoch=epoch,
            high_watermark=self.leader.high_watermark,
            log_start_offset=read.log_start_offset,
            now_ms=NOW,
        )
        self.carry_out(follower, effects)
        return effects

    def truncate(self, node_id: int, diverging: EpochEnd) -> Truncated | None:
        follower = self[node_id]
        if not follower.begin_truncation(diverging, leader_epoch=follower.leader_epoch):
            return None
        return self.finish_truncation(node_id)

    def truncate_fully(self, node_id: int, offset: int) -> None:
        follower = self[node_id]
        assert follower.begin_full_truncation(offset, leader_epoch=follower.leader_epoch)
        self.finish_truncation(node_id)

    def finish_truncation(self, node_id: int) -> Truncated:
        self.hosts[node_id].checkpoint()
        truncated = run_through(self[node_id].truncate(NOW))
        self.carry_out(self[node_id], truncated.effects)
        return truncated

    def carry_out(self, partition: Partition, effects: Iterable[Effect]) -> None:
        """Flushes at once; proposals are kept for ``answer``."""
        for effect in effects:
            if isinstance(effect, FlushLog) and effect.at_ms <= NOW and partition.flush_pending:
                self.carry_out(partition, self.hosts[partition.node_id].flush())
            elif isinstance(effect, SubmitAlterPartition):
                proposal = partition.isr_proposal()
                assert proposal is not None
                self.proposed.append(proposal)

    # what must hold

    def values(self, node_id: int) -> list[bytes | None]:
        return self.hosts[node_id].values()

    def check(self) -> None:
        """Every log and state is sound, and no two replicas differ below what both know safe."""
        alive = [host for host in self.hosts.values() if host.partition is not None]
        for host in alive:
            host.replica.check_invariants()
            if not host.replica.log.truncating:
                host.replica.log.check_invariants()
        for host in alive:
            for other in alive:
                start = max(h.replica.log.log_start_offset for h in (host, other))
                below = min(h.replica.high_watermark for h in (host, other))
                ours = [r for r in host.records(below) if r[1] >= start]
                theirs = [r for r in other.records(below) if r[1] >= start]
                assert ours == theirs, (host.node_id, other.node_id)

    @property
    def has_leader(self) -> bool:
        leader = self.state.leader
        return leader != NO_NODE and self.hosts[leader].partition is not None
