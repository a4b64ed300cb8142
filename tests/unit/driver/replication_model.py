"""One replicated partition as a model: hosts with logs, under the decisions of a real controller.

The hosts do what brokers do, in a few lines each and without a network: a host goes by the state of
the partition that it saw last, which may be old.  ``committed`` is what any leader's high watermark
has passed; nobody may ever lose it, except by an election that the controller counts as unclean.
"""

from dataclasses import dataclass, field

from sparklog.metadata import PartitionImage

#: Leader epoch and value.
Entry = tuple[int, int]


class LostError(AssertionError):
    """A leader lacks what was acknowledged."""


@dataclass
class Proposal:
    """A change of the ISR that the controller has been asked for; members with broker epochs."""

    members: dict[int, int]
    partition_epoch: int


@dataclass
class Host:
    """A broker's process and its disk.  ``flushed`` entries survive everything but a new disk."""

    broker_id: int
    running: bool = False
    #: Whether its log does not work, while the process lives.
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
    #: Of followers: log end and broker epoch, as their fetches in this leader epoch tell.
    followers: dict[int, tuple[int, int]] = field(default_factory=dict)
    epoch_start: int = 0
    #: Of all brokers, by the image.
    known_epochs: dict[int, int] = field(default_factory=dict)
    proposal: Proposal | None = None

    # -- life

    def start(self, *, lost: int, new_directory: bool) -> None:
        """A new process.  After an unclean stop ``lost`` entries that were not flushed are gone."""
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
        """Go by a newer state."""
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
        """One fetch: say how far this log is, take what the leader gives, at the same epoch."""
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
        """The high watermark moves as far as the maximal ISR allows."""
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
        """Followers that may join the ISR."""
        assert self.state is not None
        bound = max(self.high_watermark, self.epoch_start)
        return [
            broker_id
            for broker_id, (end, _) in self.followers.items()
            if broker_id in self.state.replicas and end >= bound
        ]

    def propose(self, members: set[int]) -> None:
        """Ask for an ISR, as far as this leader knows its members' processes."""
        assert self.state is not None
        epochs = {member: self._epoch_of(member) for member in sorted(members)}
        self.proposal = Proposal(epochs, self.state.partition_epoch)

    def _epoch_of(self, member: int) -> int:
        if member == self.broker_id:
            return self.broker_epoch
        return self.followers.get(member, (0, self.known_epochs.get(member, -1)))[1]


@dataclass
class Ledger:
    """What was committed, by offset."""

    entries: dict[int, Entry] = field(default_factory=dict)
    #: Leaders before this epoch were overruled by an unclean election: what they commit is lost.
    overruled: int = 0
    #: Whether the leader of that election has not taken its role yet.
    pending: bool = False

    def overrule(self, epoch: int) -> None:
        """An unclean election: what the elected log lacks is lost, and was counted."""
        self.overruled, self.pending = epoch, True

    def take(self, leader: Host) -> None:
        """A host has taken the lead.  Raises LostError when it lacks something."""
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
        """A leader's high watermark may have moved."""
        leader.advance()
        if leader.leader_epoch < self.overruled:
            return
        for offset, entry in enumerate(leader.log[: leader.high_watermark]):
            assert self.entries.setdefault(offset, entry) == entry, (
                f"two records at offset {offset}: {self.entries[offset]}, {entry} of {leader}"
            )


def _at(log: list[Entry], offset: int) -> Entry | None:
    return log[offset] if offset < len(log) else None
