"""Which replicas hold what was acknowledged, and when it may legally be gone: the fault bound.

Owns: the story of each partition as the journal tells it.  Must not know records.

A partition's *holders* are its in-sync and its eligible replicas, and those that were so since the
ISR last had min.insync.replicas members: while it has fewer, nothing new is acknowledged.  A holder
is *damaged* when its disk is lost, or when its machine loses power and the topic does not promise a
flush, or when its directory vanishes or a file of it is cut; it is sound again when it joins the
ISR anew.  While one holder is sound, nothing may be lost that all in-sync replicas acknowledged.
An *unclean recovery* elects a replica that is neither in sync nor eligible.  What was acknowledged
may be gone with it if

* no holder was sound, or
* one that was not was elected, and
  - the sound ones had unclean.recovery.timeout.ms to come back and did not, or
  - the topic has unclean elections, and none of the sound ones lived with a log that worked, or
  - an operator asked for an unclean election.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import itemgetter
from uuid import UUID

from sparklog.metadata import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    ConfigChanged,
    PartitionChanged,
    PartitionImage,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from sparklog.types import NO_NODE, ResourceType
from tests.simulation.events import (
    BrokerDied,
    ClusterBegun,
    Committed,
    ImageTaken,
    LogId,
    LogLost,
    ReplicasOffline,
    UncleanElectionAsked,
)
from tests.simulation.history import NEVER, History

DEFAULT_UNCLEAN_RECOVERY_MS = 30_000


@dataclass(slots=True, kw_only=True)
class Recovery:
    """An unclean recovery at a position.

    ``allowed``: the topic or an operator would rather lose records than wait.  ``held``: the leader
    was a holder, and has its disk since, or all holders of a tiered log have lost it.
    ``from_bucket``: the bucket alone has what is left.
    ``excused``: what was acknowledged may be gone with it.  ``former`` led before, and may
    acknowledge more, all of which is gone, until the position ``heard``, when it knows, or has been
    started again.
    """

    at: int
    leader: int
    allowed: bool
    held: bool
    from_bucket: bool
    excused: bool
    former: int
    heard: int


@dataclass(slots=True, kw_only=True)
class Copies:
    """One partition, from its creation to the end of the history."""

    log: LogId
    state: PartitionImage
    #: Positions and what the partition was from there on.
    changes: list[tuple[int, PartitionImage]]
    min_isr: int = 1
    #: Whether it has promised a flush since it was created.
    durable: bool = False
    #: In sync or eligible, without those that stopped uncleanly since.
    complete: set[int] = field(default_factory=set)
    holders: set[int] = field(default_factory=set)
    damaged: set[int] = field(default_factory=set)
    #: Those of whose log nothing is left; those that live, and have told that this log has failed.
    emptied: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    #: Those whose log was lost while their disk goes on, and the leader epoch then; NEVER while
    #: their process has not noticed, as it had the files open.
    lost_in: dict[int, int] = field(default_factory=dict)
    #: Of these the process that ran then.
    lost_by: dict[int, UUID | None] = field(default_factory=dict)
    #: By broker: from when until when what it had of the log was lost, and not copied again.
    lost_spans: dict[int, list[list[int]]] = field(default_factory=dict)
    leaderless_since_ms: int = 0
    #: The topic has, or had, unclean elections; an operator asked for one.
    unclean_topic: bool = False
    unclean_asked: bool = False
    recoveries: list[Recovery] = field(default_factory=list)
    former_leader: int = NO_NODE
    #: What the journal itself says wrongly.
    wrong: list[str] = field(default_factory=list)
    deleted_at: int = NEVER
    #: Every broker that ever had a replica.
    brokers: set[int] = field(default_factory=set)
    #: Of a story that is told: positions of excused recoveries, and until where any up to there may
    #: have lost what was acknowledged.
    _losses: list[tuple[int, int]] | None = None

    def lost(self, start: int, end: int) -> bool:
        """Whether what was acknowledged at ``start`` may be gone at ``end``."""
        if self._losses is None:
            excused = [recovery for recovery in self.recoveries if recovery.excused]
            heard = accumulate((recovery.heard for recovery in excused), max)
            self._losses = [(r.at, until) for r, until in zip(excused, heard, strict=True)]
        before = bisect_right(self._losses, end, key=itemgetter(0))
        return before > 0 and start <= self._losses[before - 1][1]

    def is_lost(self, broker_id: int, position: int) -> bool:
        """Whether a broker then lacked what had been on its disk."""
        return any(start <= position < end for start, end in self.lost_spans.get(broker_id, ()))

    def state_at(self, position: int) -> PartitionImage | None:
        """As the journal had it; None before the partition was there, and after."""
        at = bisect_right(self.changes, position, key=lambda change: change[0])
        return self.changes[at - 1][1] if at and position < self.deleted_at else None

    def elected(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Positions and brokers of the leaders that were elected between the two positions."""
        for (_, before), (at, after) in pairwise(self.changes):
            if start < at <= end and after.leader not in (before.leader, NO_NODE):
                yield at, after.leader

    @property
    def ever_moved(self) -> bool:
        """Whether a leader epoch has ended."""
        return self.state.leader_epoch > self.changes[0][1].leader_epoch

    @property
    def is_alone(self) -> bool:
        """Whether there has been one replica only, always the same."""
        return len(self.brokers) == 1


def follow(history: History) -> Mapping[LogId, Copies]:
    """Every partition of the journal."""
    walk = _Walk()
    for at, event in enumerate(history.events):
        match event:
            case ClusterBegun():
                walk.unclean_recovery_ms = event.unclean_recovery_ms
                walk.min_isr = event.min_isr
            case Committed():
                walk.commit(at, history.times_ms[at], event)
            case ImageTaken():
                walk.took_image(at, event)
            case BrokerDied():
                walk.died(event)
            case LogLost():
                walk.lost(at, event)
            case ReplicasOffline():
                walk.went_offline(event)
            case UncleanElectionAsked():
                if event.log in walk.copies:
                    walk.copies[event.log].unclean_asked = True
    return walk.copies


class _Walk:
    """What is known of the cluster at one position of the history."""

    def __init__(self) -> None:
        self.copies: dict[LogId, Copies] = {}
        self.unclean_recovery_ms = DEFAULT_UNCLEAN_RECOVERY_MS
        self.min_isr = 1
        self._topics: dict[str, UUID] = {}
        self._configs: dict[tuple[str, str], str | None] = {}
        self._registered: dict[int, BrokerRegistered] = {}
        self._alive: set[int] = set()
        self._touched: dict[LogId, None] = {}
        #: Where commits came, by their numbers.
        self._commits: dict[int, int] = {}
        #: Which logs do not work, as brokers have told it last, by broker and incarnation.
        self._told: dict[tuple[int, UUID | None], frozenset[LogId]] = {}
        #: Processes that have ended, by broker and incarnation.
        self._dead: dict[tuple[int, UUID | None], BrokerDied] = {}

    def commit(self, at: int, now_ms: int, committed: Committed) -> None:
        self._commits[committed.number] = at
        created: list[LogId] = []
        for record in committed.records:
            match record:
                case TopicCreated():
                    self._topics[record.topic] = record.topic_id
                    created += self._add(at, now_ms, record.topic, 0, record.partitions)
                case PartitionsAdded():
                    topic_id = self._topics.get(record.topic)
                    first = sum(log.topic_id == topic_id for log in self.copies)
                    created += self._add(at, now_ms, record.topic, first, record.partitions)
                case PartitionChanged():
                    copies = self._find(record.topic, record.partition)
                    if copies is not None:
                        self._change(copies, at, now_ms, record.state)
                case TopicDeleted():
                    self._delete(at, record)
                case ConfigChanged(resource_type=ResourceType.TOPIC):
                    self._configs[record.resource_name, record.name] = record.value
                    self._reconfigure(record.resource_name)
                case BrokerRegistered() | BrokerUnfenced() | BrokerFenced():
                    self._hear_of(at, record)
        for log in created:
            self.copies[log].durable = self._config(log.topic, "flush.messages") == "1"
        for log in self._touched:
            self._check(self.copies[log])
        self._touched.clear()

    def died(self, event: BrokerDied) -> None:
        """Its incarnation may come into the journal later; nothing it copied counts any more."""
        self._dead[event.broker, event.incarnation] = event
        for copies in self.copies.values():
            _damage(copies, event)

    def took_image(self, at: int, event: ImageTaken) -> None:
        self._heard(at, event.broker, self._commits.get(event.version, -1))

    def lost(self, at: int, event: LogLost) -> None:
        """Of one log something is left, or nothing; the disk goes on."""
        copies = self.copies[event.log]
        copies.lost_spans.setdefault(event.broker, []).append([at, NEVER])
        copies.damaged.add(event.broker)
        is_open = event.whole and event.incarnation is not None
        copies.lost_in[event.broker] = NEVER if is_open else copies.state.leader_epoch
        copies.lost_by[event.broker] = event.incarnation
        if event.whole:
            copies.emptied.add(event.broker)

    def went_offline(self, event: ReplicasOffline) -> None:
        """A process may tell it with its registration, of which the journal hears later.

        A log that was cut and works again in the same process begins anew: what was left of it is
        put aside, and counts as little as a directory that vanished.
        """
        before = self._told.get((event.broker, event.incarnation), frozenset())
        self._told[event.broker, event.incarnation] = frozenset(event.logs)
        for log in set(event.logs).intersection(self.copies):
            copies = self.copies[log]
            if copies.lost_in.get(event.broker) == NEVER:
                copies.lost_in[event.broker] = copies.state.leader_epoch  # it has noticed
        for log in before.difference(event.logs):
            copies = self.copies.get(log)
            if copies is not None and event.broker in copies.lost_in:
                copies.emptied.add(event.broker)
        registered = self._registered.get(event.broker)
        if event.incarnation is None or (
            registered is not None and registered.broker.incarnation == event.incarnation
        ):
            self._take_failed(event.broker, event.incarnation)

    def _take_failed(self, broker_id: int, incarnation: UUID | None) -> None:
        told = self._told.get((broker_id, incarnation), frozenset())
        for log, copies in self.copies.items():
            copies.failed.discard(broker_id)
            if log in told:
                copies.failed.add(broker_id)

    def _add(
        self, at: int, now_ms: int, topic: str, first: int, states: Iterable[PartitionImage]
    ) -> list[LogId]:
        found: list[LogId] = []
        topic_id = self._topics.get(topic)
        for number, state in enumerate(states, first) if topic_id is not None else ():
            log = LogId(topic, topic_id, number)
            members = {*state.isr, *state.eligible}
            self.copies[log] = Copies(
                log=log,
                state=state,
                changes=[(at, state)],
                complete=set(members),
                holders=members,
                brokers=set(state.replicas),
                leaderless_since_ms=now_ms,
            )
            for broker_id in members:
                if (death := self._death(broker_id)) is not None:
                    _damage(self.copies[log], death)  # the controller took it for alive
            found.append(log)
        return found

    def _find(self, topic: str, partition: int) -> Copies | None:
        topic_id = self._topics.get(topic)
        return self.copies.get(LogId(topic, topic_id, partition)) if topic_id else None

    def _config(self, topic: str, name: str) -> str | None:
        return self._configs.get((topic, name))

    def _reconfigure(self, topic: str) -> None:
        for log, copies in self.copies.items():
            if log.topic_id != self._topics.get(topic):
                continue
            copies.durable &= self._config(topic, "flush.messages") == "1"
            if self._config(topic, "unclean.leader.election.enable") == "true":
                copies.unclean_topic = True
            self._touched[log] = None
            self._count_holders(copies)

    def _delete(self, at: int, record: TopicDeleted) -> None:
        for log, copies in self.copies.items():
            if log.topic_id == record.topic_id:
                copies.deleted_at = at
        for topic, name in [key for key in self._configs if key[0] == record.topic]:
            del self._configs[topic, name]

    def _hear_of(self, at: int, record: BrokerRegistered | BrokerUnfenced | BrokerFenced) -> None:
        if isinstance(record, BrokerUnfenced):
            self._alive.add(record.broker_id)
            return
        if isinstance(record, BrokerFenced):
            self._alive.discard(record.broker_id)
            return
        broker_id = record.broker.broker_id
        self._registered[broker_id] = record
        self._alive.discard(broker_id)
        self._heard(at, broker_id, at)
        self._take_failed(broker_id, record.broker.incarnation)
        for copies in self.copies.values():
            if copies.lost_by.get(broker_id) != record.broker.incarnation:
                copies.lost_in.pop(broker_id, None)
            if not record.clean:
                copies.complete.discard(broker_id)

    def _heard(self, at: int, broker_id: int, until: int) -> None:
        """A broker knows which recoveries there have been up to a position."""
        for copies in self.copies.values():
            for recovery in copies.recoveries:
                is_known = recovery.at <= until and recovery.former == broker_id
                if is_known and recovery.heard == NEVER:
                    recovery.heard = at

    def _death(self, broker_id: int) -> BrokerDied | None:
        """Of the process that registered last, if it has ended."""
        registered = self._registered.get(broker_id)
        if registered is None:
            return None
        return self._dead.get((broker_id, registered.broker.incarnation))

    def _change(self, copies: Copies, at: int, now_ms: int, state: PartitionImage) -> None:
        before, copies.state = copies.state, state
        copies.changes.append((at, state))
        self._touched[copies.log] = None
        copies.brokers |= set(state.replicas)
        elected = state.leader != NO_NODE and (
            (state.leader, state.leader_epoch) != (before.leader, before.leader_epoch)
        )
        if before.leader != NO_NODE:
            copies.leaderless_since_ms = now_ms
            copies.former_leader = before.leader
        joined_in = state.leader_epoch
        is_moved = (before.adding or before.removing) and not (state.adding or state.removing)
        if is_moved and before.leader != NO_NODE:
            # The leader has taken in who was missing, and goes in the same commit.
            copies.complete |= set(state.isr)
            joined_in = before.leader_epoch
        counted = {*before.isr, *before.eligible}
        if elected and state.leader not in copies.complete:
            self._recover(copies, at, now_ms, state.leader)
            counted.add(state.leader)  # it has copied nothing
        for broker_id in set(state.isr) - counted:
            if joined_in <= copies.lost_in.get(broker_id, -1):
                continue  # by what it had fetched before its log was lost
            copies.lost_in.pop(broker_id, None)
            _end_losses(copies, broker_id, at)
            copies.damaged.discard(broker_id)
            copies.emptied.discard(broker_id)
            if (death := self._death(broker_id)) is not None:
                _damage(
                    copies, death
                )  # after it had caught up, of which the journal hears only now
        copies.complete = {*state.isr, *state.eligible}
        self._count_holders(copies)

    def _count_holders(self, copies: Copies) -> None:
        state = copies.state
        configured = self._config(copies.log.topic, "min.insync.replicas")
        copies.min_isr = int(configured or self.min_isr)
        if len(state.isr) >= state.required_isr(copies.min_isr):
            copies.holders = set(copies.complete)
        else:
            copies.holders = (copies.holders | copies.complete) & set(state.replicas)

    def _check(self, copies: Copies) -> None:
        """After a commit."""
        state = copies.state
        if state.eligible and len(state.isr) >= state.required_isr(copies.min_isr):
            copies.wrong.append(
                f"{list(state.eligible)} are eligible beside the in-sync {list(state.isr)}, of "
                f"which there are enough"
            )

    def _recover(self, copies: Copies, at: int, now_ms: int, leader: int) -> None:
        sound = copies.holders - copies.damaged
        waited = now_ms - copies.leaderless_since_ms
        allowed = copies.unclean_topic or copies.unclean_asked
        excused = not sound or (
            leader not in sound
            and (
                waited >= self.unclean_recovery_ms
                or copies.unclean_asked
                or (copies.unclean_topic and sound.isdisjoint(self._alive - copies.failed))
            )
        )
        # Who has told that its log does not work, with a registration too, is not waited for.
        useless = copies.emptied | copies.failed
        unasked = copies.holders - useless - self._alive - {leader}
        if unasked and waited < self.unclean_recovery_ms and not allowed:
            copies.wrong.append(
                f"broker {leader} was elected after {waited} ms, {sorted(unasked)} were not waited "
                "for"
            )
        # Nobody has told the controller that this process, and its disk, are no more.
        unheard = self._death(leader) if leader in self._alive else None
        # Of a log that is gone it serves nothing: it leads so that it can say so.
        speechless = leader in copies.emptied and copies.is_lost(leader, at)
        kept = unheard is not None or speechless or leader not in copies.emptied
        # Of a tiered log that is gone everywhere only the bucket has records, for any replica.  One
        # that was in sync may have an old log of its own; it leads if that never had a record.
        tiered = self._config(copies.log.topic, "remote.storage.enable") == "true"
        was_in_sync = any(leader in state.isr for _, state in copies.changes[:-1])
        has_old_log = was_in_sync and leader not in copies.emptied
        is_gone = tiered and copies.holders <= copies.emptied
        from_bucket = is_gone and not has_old_log
        held = is_gone or (leader in copies.holders and kept)
        replaced = allowed and copies.former_leader != leader
        copies.recoveries.append(
            Recovery(
                at=at,
                leader=leader,
                allowed=allowed,
                held=held,
                from_bucket=from_bucket,
                excused=excused,
                former=copies.former_leader,
                heard=NEVER if replaced else at,
            )
        )
        copies.holders = {leader}
        if not speechless:
            _end_losses(copies, leader, at)
            copies.damaged.discard(leader)
            copies.emptied.discard(leader)
            if unheard is not None:
                _damage(copies, unheard)


def _end_losses(copies: Copies, broker_id: int, at: int) -> None:
    """The broker has a whole copy again, or counts as having one."""
    for span in copies.lost_spans.get(broker_id, ()):
        span[1] = min(span[1], at)


def _damage(copies: Copies, death: BrokerDied) -> None:
    """What a process that ended has not left behind."""
    if death.disk_lost or (death.power_lost and not copies.durable):
        copies.damaged.add(death.broker)
    if death.disk_lost:
        copies.emptied.add(death.broker)
