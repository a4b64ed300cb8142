"""A model of one replicated partition: hosts with logs, under the decisions of a real controller.

The hosts behave as brokers, in a few lines each and without a network.  A host acts on the state of
the partition that it has seen last, which may be old.  ``committed`` are the entries that any
leader's high watermark has passed.  They may only be lost by an election that the controller counts
as unclean.
"""

from dataclasses import dataclass, field

from sparklog.metadata import PartitionImage

#: Leader epoch and value.
Entry = tuple[int, int]


class LostError(AssertionError):
    """A leader lacks acknowledged entries."""


@dataclass
class Proposal:
    """A proposed change of the ISR; its members with their broker epochs."""

    members: dict[int, int]
    partition_epoch: int


@dataclass
class Host:
    """A broker's process and its disk.  ``flushed`` entries survive unless the disk is replaced."""

    broker_id: int
    running: bool = False
    #: Whether the log is offline while the process is alive.
    broken: bool = False
    clean: bool = True
    incarnation: int = 0
    directory: int = 0
    broker_epoch: int = -1
    log: list[Entry] = field(default_factory=list)
    flushed: int = 0
    state: PartitionImage | None = None
    min_isr: int = 1
    high_watermark: int = 0
    #: The followers' log ends and broker epochs, from their fetches in this leader epoch.
    followers: dict[int, tuple[int, int]] = field(default_factory=dict)
    epoch_start: int = 0
    #: The epochs of all brokers in the image.
    known_epochs: dict[int, int] = field(default_factory=dict)
    proposal: Proposal | None = None

    # -- life

    def start(self, *, lost: int, new_directory: bool) -> None:
        """Start a new process.  After an unclean stop ``lost`` unflushed entries are gone."""
        self.running, self.broken = True, False
        self.incarnation += 1
        if new_directory:
            self.directory += 1
            self.log = []
        elif not self.clean:
            del self.log[max(self.flushed, len(self.log) - lost) :]
        self.flushed = len(self.log)
        self._forget()

    def stop(self, *, clean: bool) -> None:
        self.running, self.clean = False, clean and not self.broken
        if self.clean:
            self.flushed = len(self.log)
        self._forget()

    def _forget(self) -> None:
        self.state, self.proposal = None, None
        self.followers = {}
        self.high_watermark = 0

    # -- the partition

    def take(self, state: PartitionImage, min_isr: int, epochs: dict[int, int]) -> None:
        """Take over a newer state."""
        before, self.state, self.min_isr = self.state, state, min_isr
        self.known_epochs = epochs
        if self.proposal is not None and state.partition_epoch != self.proposal.partition_epoch:
            self.proposal = None
        if self.broker_id not in state.replicas:
            self.log, self.flushed, self.high_watermark = [], 0, 0
        led_anew = before is None or before.leader_epoch != state.leader_epoch
        if self.leads and led_anew:
            self.followers = {}
            self.epoch_start = len(self.log)

    @property
    def leads(self) -> bool:
        return self.state is not None and self.state.leader == self.broker_id and not self.broken

    @property
    def leader_epoch(self) -> int:
        assert self.state is not None
        return self.state.leader_epoch

    def append(self, value: int) -> None:
        self.log.append((self.leader_epoch, value))

    def follow(self, leader: "Host", count: int) -> None:
        """Fetch once from a leader of the same epoch: send the log end, append the new entries."""
        common = 0
        for own, other in zip(self.log, leader.log, strict=False):
            if own != other:
                break
            common += 1
        del self.log[common:]
        self.flushed = min(self.flushed, common)
        leader.followers[self.broker_id] = (common, self.broker_epoch)
        self.log += leader.log[common : common + count]

    def advance(self) -> None:
        """Advance the high watermark as far as the maximal ISR allows."""
        state = self.state
        assert state is not None
        if len(state.isr) < state.required_isr(self.min_isr):
            return
        maximal = {*state.isr, *(self.proposal.members if self.proposal else ())}
        reached = min(self._end_of(broker_id) for broker_id in maximal)
        self.high_watermark = max(self.high_watermark, reached)

    def _end_of(self, broker_id: int) -> int:
        if broker_id == self.broker_id:
            return len(self.log)
        return self.followers.get(broker_id, (0, 0))[0]

    def caught_up(self) -> list[int]:
        """The followers that may join the ISR."""
        assert self.state is not None
        bound = max(self.high_watermark, self.epoch_start)
        return [
            broker_id
            for broker_id, (end, _) in self.followers.items()
            if broker_id in self.state.replicas and end >= bound
        ]

    def propose(self, members: set[int]) -> None:
        """Propose an ISR, with the broker epochs that this leader knows."""
        assert self.state is not None
        epochs = {member: self._epoch_of(member) for member in sorted(members)}
        self.proposal = Proposal(epochs, self.state.partition_epoch)

    def _epoch_of(self, member: int) -> int:
        if member == self.broker_id:
            return self.broker_epoch
        return self.followers.get(member, (0, self.known_epochs.get(member, -1)))[1]


@dataclass
class Ledger:
    """The committed entries, by offset."""

    entries: dict[int, Entry] = field(default_factory=dict)
    #: Leaders of earlier epochs were overruled by an unclean election: what they commit is lost.
    overruled: int = 0
    #: Whether the leader of that election has not taken over yet.
    pending: bool = False

    def overrule(self, epoch: int) -> None:
        """An unclean election: entries that the elected log lacks are lost, and were counted."""
        self.overruled, self.pending = epoch, True

    def take(self, leader: Host) -> None:
        """A host has become leader.  Raises LostError if it lacks committed entries."""
        if leader.leader_epoch < self.overruled:
            return
        lost = [
            offset for offset, entry in self.entries.items() if _at(leader.log, offset) != entry
        ]
        if lost and not self.pending:
            raise LostError(f"broker {leader.broker_id} lacks offsets {lost}: {leader}")
        for offset in lost:
            del self.entries[offset]
        self.pending = False

    def commit(self, leader: Host) -> None:
        """A leader's high watermark may have advanced."""
        leader.advance()
        if leader.leader_epoch < self.overruled:
            return
        for offset, entry in enumerate(leader.log[: leader.high_watermark]):
            assert self.entries.setdefault(offset, entry) == entry, (
                f"two records at offset {offset}: {self.entries[offset]}, {entry} of {leader}"
            )


def _at(log: list[Entry], offset: int) -> Entry | None:
    return log[offset] if offset < len(log) else None
