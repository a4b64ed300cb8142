"""A small cluster over replicas: clients, answers on their way, a controller by KIP-966, troubles.

Each move takes a node and a size; what does not apply then does nothing.
"""

from dataclasses import dataclass, field, replace

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import (
    FetchPosition,
    PartitionRead,
    RequiredOffset,
)
from sparklog.executors.partition.partition import Partition
from sparklog.executors.partition.producer_state import TransactionEnd
from sparklog.types import NO_NODE
from sparklog.wire.records.control import ControlType, EndTxnMarker
from tests.unit.executors.partition.partition_maker import NOW, batch
from tests.unit.executors.partition.replica_trio import EVERYTHING, LAG_MS, Trio

_NOT_THE_LEADER = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)


@dataclass
class Answer:
    """On its way from the leader to a follower."""

    position: FetchPosition
    read: PartitionRead
    data: bytes
    high_watermark: int


@dataclass
class PendingProduce:
    """An append with acks=all that is not answered yet."""

    leader: int
    value: bytes
    offset: int
    required_offset: RequiredOffset


@dataclass
class Cluster(Trio):
    """``Trio`` with a controller of its own."""

    min_isr: int = 2
    eligible: set[int] = field(default_factory=set)
    last_known: set[int] = field(default_factory=lambda: {1, 2, 3})
    damaged: set[int] = field(default_factory=set)
    fenced: set[int] = field(default_factory=set)
    clean: set[int] = field(default_factory=set)
    answers: dict[int, Answer] = field(default_factory=dict)
    pending: list[PendingProduce] = field(default_factory=list)
    #: Offset -> value of what was acknowledged.
    acked: dict[int, bytes] = field(default_factory=dict)
    seen: dict[tuple[int, int], int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    count: int = 0
    truncations: int = 0
    unclean: int = 0

    def __post_init__(self) -> None:
        super().__init__(
            3,
            segment_bytes=600,
            index_interval_bytes=100,
            segment_index_bytes=4096,
            retention_ms=-1,
            min_insync_replicas=self.min_isr,
        )
        self.elect(1)

    # what clients do

    def put(self, node: int, size: int) -> None:
        self.count += 1
        self._append(node, b"%d" % self.count, *[b"+"] * (size - 1))

    def data(self, pid: int, size: int) -> None:
        """A transactional batch."""
        leader = self._leader_of(pid)
        if leader is None:
            return
        self.count += 1
        entry = leader.producers.entries.get(pid)
        sequence = 0 if entry is None else entry.last_sequence + 1
        self._append(
            pid,
            b"t%d" % self.count,
            *[b"+"] * (size - 1),
            producer_id=pid,
            epoch=0,
            sequence=sequence,
            transactional=True,
        )

    def abort(self, pid: int, size: int) -> None:
        self._end(pid, ControlType.ABORT if size > 1 else ControlType.COMMIT)

    def _end(self, pid: int, kind: ControlType) -> None:
        leader = self._leader_of(pid)
        if leader is None:
            return
        marker = EndTxnMarker(control_type=kind, coordinator_epoch=1)
        end = TransactionEnd(producer_id=pid, producer_epoch=0, marker=marker)
        try:
            ended = leader.end_transaction(end, now_ms=NOW)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_ENOUGH_REPLICAS:
                raise
            return
        self.carry_out(leader, ended.effects)

    def _leader_of(self, node: int) -> Partition | None:
        """Who takes this client's requests: a leader that was deposed may not know it yet."""
        for i in (node, self.state.leader):
            host = self.hosts.get(i)
            if host is not None and host.partition is not None and host.partition.is_leader:
                return host.partition
        return None

    def _append(self, node: int, *values: bytes, **more: object) -> None:
        leader = self._leader_of(node)
        if leader is None:
            return
        try:
            appended = leader.append_as_leader(
                batch(*values, **more),  # type: ignore[arg-type]
                acks=-1,
                now_ms=NOW,
                verified="transactional" in more,
            )
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_ENOUGH_REPLICAS:
                raise
            assert leader.state is not None
            assert len(leader.state.isr) < self.min_isr
            return
        self.carry_out(leader, appended.effects)
        if appended.required_offset is None:
            self.acked[appended.base_offset] = values[0]
        else:
            required = appended.required_offset
            self.pending.append(
                PendingProduce(leader.node_id, values[0], appended.base_offset, required)
            )

    def _complete_pending_produces(self) -> None:
        still: list[PendingProduce] = []
        for one in self.pending:
            leader = self.hosts[one.leader].partition
            if leader is None:
                continue
            try:
                acknowledged = leader.has_reached(one.required_offset)
            except KafkaError:
                continue
            if acknowledged:
                self.acked[one.offset] = one.value
            else:
                still.append(one)
        self.pending = still

    # what followers do

    def ask_for(self, node: int, size: int) -> None:
        """Ask, and let the answer travel."""
        follower = self.hosts[node].partition
        position = follower.fetch_position() if follower is not None else None
        if follower is None or position is None:
            return
        leader = self.hosts[follower.leader].partition
        if leader is None:
            return
        try:
            read = leader.read(
                position.offset,
                size * 60,
                current_leader_epoch=position.current_leader_epoch,
                last_fetched_epoch=position.last_fetched_epoch,
                replica_id=node,
            )
        except KafkaError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                epoch = position.current_leader_epoch
                if follower.begin_full_truncation(leader.log.log_start_offset, leader_epoch=epoch):
                    self.hosts[node].checkpoint()
            elif error.code not in _NOT_THE_LEADER:
                raise
            return
        data = b""
        if read.records is not None:
            data = read.records.read()
            read.records.release()
        if read.diverging is None:
            effects = leader.update_follower_fetch_state(
                node,
                position.offset,
                position.log_start_offset,
                broker_epoch=self.broker_epochs.get(node, 0),
                now_ms=self.now_ms,
            )
            self.carry_out(leader, effects)
        self.answers[node] = Answer(position, read, data, leader.high_watermark)

    def arrive(self, node: int, size: int) -> None:
        answer, follower = self.answers.pop(node, None), self.hosts[node].partition
        if answer is None or follower is None:
            return
        epoch = answer.position.current_leader_epoch
        if answer.read.diverging is not None:
            if follower.fetch_position() != answer.position:
                return
            if follower.begin_truncation(answer.read.diverging, leader_epoch=epoch):
                assert follower.fetch_position() is None
                self.hosts[node].checkpoint()
                if size < 4:
                    self.cut(node, size)
            return
        effects = follower.append_as_follower(
            answer.data,
            fetch_offset=answer.position.offset,
            leader_epoch=epoch,
            high_watermark=answer.high_watermark,
            log_start_offset=answer.read.log_start_offset,
            now_ms=NOW,
        )
        self.carry_out(follower, effects)

    def cut(self, node: int, size: int) -> None:
        """A truncation that was begun is done now."""
        del size
        partition = self.hosts[node].partition
        if partition is not None and partition.log.truncating:
            self.finish_truncation(node)
            self.truncations += 1

    def round(self, node: int, size: int) -> None:
        self.cut(node, size)
        self.ask_for(node, size)
        self.arrive(node, size)

    def delete(self, node: int, size: int) -> None:
        """Clients delete records, and retention their segments."""
        leader = self._leader_of(node)
        if leader is not None:
            target = min(leader.log.log_start_offset + size, leader.last_stable_offset)
            self.hosts[leader.node_id].log_start_offset = max(target, leader.log.log_start_offset)
            leader.delete_records(target)
        for host in self.hosts.values():
            if host.partition is not None:
                host.partition.log.delete_old_segments(
                    NOW, host.partition.unclamped_last_stable_offset
                )

    def flush(self, node: int, size: int) -> None:
        host = self.hosts[node]
        if host.partition is not None and not host.partition.log.truncating:
            self.carry_out(host.partition, host.flush())
            if size > 1:
                host.checkpoint()

    # what the controller does

    def alter(self, node: int, size: int) -> None:
        """A proposal reaches it, and sometimes the answer is lost."""
        leader = self._leader_of(node)
        proposal = leader.isr_proposal() if leader is not None else None
        if leader is None or proposal is None:
            return
        state, error = self.state, ErrorCode.NONE
        members = {i for i, _ in proposal.isr}
        if proposal.leader_epoch != state.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif proposal.partition_epoch != state.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            i in self.fenced or epoch not in (-1, self.broker_epochs.get(i))
            for i, epoch in proposal.isr
        ):
            error = ErrorCode.INELIGIBLE_REPLICA
        else:
            self._decide(state.leader, members, new_epoch=False)
        if size == 1:
            return
        answered = self.state if error is ErrorCode.NONE else None
        self.carry_out(leader, leader.isr_answered(proposal, error, answered, self.now_ms))

    def tell_all(self, node: int, size: int) -> None:
        del size
        if self.hosts[node].partition is not None:
            self.tell(node)

    def lag(self, node: int, size: int) -> None:
        del node
        self.now_ms += size * LAG_MS // 2
        for host in self.hosts.values():
            if host.partition is not None:
                self.carry_out(
                    host.partition, host.partition.maybe_shrink_or_expand_isr(self.now_ms)
                )

    def _decide(self, leader: int, isr: set[int], *, new_epoch: bool) -> None:
        gone = set(self.state.isr) - isr
        if len(isr) < self.min_isr:
            self.eligible |= gone
        else:
            self.eligible.clear()
        self.eligible -= isr
        self.damaged -= isr
        if leader != NO_NODE:
            self.last_known = isr | self.eligible
        self.state = replace(
            self.state,
            leader=leader,
            isr=tuple(sorted(isr)),
            leader_epoch=self.state.leader_epoch + new_epoch,
            partition_epoch=self.state.partition_epoch + 1,
        )

    def _elect_one(self) -> None:
        """A leader, if somebody may be one."""
        isr = set(self.state.isr)
        for node in [*sorted(isr), *sorted(self.eligible)]:
            if node not in self.fenced:
                self._decide(
                    node, {i for i in isr if i not in self.fenced} | {node}, new_epoch=True
                )
                return
        if not isr and not self.eligible and not self.last_known & self.fenced:
            logs = {i: self[i].log for i in self.last_known}
            best = max(
                logs,
                key=lambda i: (logs[i].leader_epochs.latest_epoch, logs[i].log_end_offset),
            )
            self.unclean += 1
            self._decide(best, {best}, new_epoch=True)
        elif self.state.leader != NO_NODE:
            self._decide(NO_NODE, isr, new_epoch=True)

    def _fence(self, node: int) -> None:
        self.fenced.add(node)
        self.broker_epochs.pop(node)
        isr = set(self.state.isr) - {node}
        if node == self.state.leader:
            before = self.state
            self._elect_after(isr, node)
            assert self.state.leader_epoch > before.leader_epoch
        elif node in self.state.isr:
            self._decide(self.state.leader, isr, new_epoch=False)

    def _elect_after(self, isr: set[int], node: int) -> None:
        if len(isr) < self.min_isr:
            self.eligible.add(node)
        self.state = replace(self.state, isr=tuple(sorted(isr)))
        self._elect_one()

    # what goes wrong

    def kill(self, node: int, size: int) -> None:
        self._die(node, EVERYTHING)

    def power(self, node: int, size: int) -> None:
        """Unflushed bytes are lost, as many replicas at a time as the fault bound allows."""
        if len(self.damaged | {node}) <= self.min_isr - 1:
            self.damaged.add(node)
            self._die(node, (0, 30, 100, 400)[size % 4])

    def _die(self, node: int, keep: int) -> None:
        if self.hosts[node].partition is None:
            return
        self.answers.pop(node, None)
        self.crash(node, keep)
        self._fence(node)

    def stop(self, node: int, size: int) -> None:
        del size
        if self.hosts[node].partition is None:
            return
        self.cut(node, 1)
        self.answers.pop(node, None)
        self.hosts[node].stop()
        self.clean.add(node)
        self._fence(node)

    def start(self, node: int, size: int) -> None:
        """Unclean, it has left every set; the image reaches it, and others with luck."""
        if self.hosts[node].partition is not None:
            return
        self.count += 1
        self.broker_epochs[node] = 1000 + self.count
        self.fenced.discard(node)
        self.restart(node, tell=False)
        if node not in self.clean:
            self.eligible.discard(node)
            self.state = replace(self.state, isr=tuple(i for i in self.state.isr if i != node))
        self.clean.discard(node)
        if self.state.leader == NO_NODE:
            self._elect_one()
        self.tell(node)
        if size > 1:
            self.tell()

    # what holds

    def check_all(self) -> None:
        self._complete_pending_produces()
        leaders: dict[int, int] = {}
        for host in self.hosts.values():
            partition = host.partition
            if partition is None:
                continue
            partition.check_invariants()
            if partition.is_leader:
                assert leaders.setdefault(partition.leader_epoch, host.node_id) == host.node_id
                key = (host.node_id, partition.leader_epoch)
                assert partition.high_watermark >= self.seen.get(key, 0)
                self.seen[key] = partition.high_watermark
        if self.has_leader and self.leader.state == self.state:
            log = self.leader.log
            held = {o: v for _, o, v in self.hosts[self.state.leader].records()}
            for offset, value in self.acked.items():
                if offset >= log.log_start_offset:
                    assert held.get(offset) == value, (offset, value, log.log_end_offset)

    def heal(self) -> None:
        """Everybody comes back, and catches up."""
        self.answers.clear()
        for node in self.replicas:
            self.start(node, 1)
        self.tell()
        assert self.has_leader
        for _ in range(200):
            for node in self.replicas:
                self.round(node, 100)
            self.now_ms += 1000
            self.lag(1, 0)
            self.alter(1, 2)
            self.tell()
            end = self.leader.log.log_end_offset
            ends = {(self[i].log.log_end_offset, self[i].high_watermark) for i in self.replicas}
            if len(self.state.isr) == 3 and ends == {(end, end)}:
                break
        else:
            raise AssertionError(f"no progress: {self.state}")
        self.check_all()
