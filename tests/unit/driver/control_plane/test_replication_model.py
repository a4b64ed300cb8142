"""A real controller over modelled brokers: no history loses a committed entry.

Hypothesis or a random generator makes the history: brokers stop cleanly and uncleanly, lose
unflushed entries or their whole directory, fall silent, and see changes late or never.  Leaders
propose in-sync replicas and miss the responses.  Replicas move, settings change, controllers are
replaced.  After every step the controller's invariants hold, and every leader has all committed
entries unless the controller has counted an unclean recovery.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparklog.driver.control_plane.controller import (
    CountUncleanRecoveries,
    Decision,
    Event,
    TimePassed,
)
from sparklog.errors import KafkaError
from sparklog.metadata import PartitionImage
from sparklog.types import NO_NODE
from sparklog.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from sparklog.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from sparklog.wire.protocol.private import (
    BrokerHeartbeatRequest,
    LogEnd,
    LostBroker,
    OfflineReplica,
    ReportLogEndsRequest,
    ReportLossRequest,
)
from tests.unit.driver.control_plane.driver_fakes import (
    ControllerUnderTest,
    directory,
    incarnation,
    partition,
    registration,
)
from tests.unit.driver.control_plane.replication_model import Host, Ledger

BROKERS = (1, 2, 3, 4)
SESSION_S = 9
ENDS = ("crash", "crash", "stop", "emptied")
WISHES = ("elect", "elect unclean", "replace", "stop")
UNCLEAN = ("false", "false", "false", "true")
brokers = st.sampled_from(BROKERS)
few_brokers = st.sets(brokers, max_size=2)
min_isrs = st.sampled_from((1, 2, 2, 2, 3))


class ReplicatedPartition(RuleBasedStateMachine):
    """Partition a-0."""

    @initialize(min_isr=min_isrs)
    def begin(self, min_isr: int) -> None:
        self.under_test = ControllerUnderTest(unclean_recovery_timeout_ms="5000")
        self.under_test.register_all(len(BROKERS))
        self.topic_id = self.under_test.place(
            "a", partition(1, 2, 3), min_insync_replicas=str(min_isr)
        )
        self.hosts = {b: Host(b, running=True, broker_epoch=0) for b in BROKERS}
        self.ledger = Ledger()
        self.leaders: dict[int, int] = {0: 1}
        self.unclean = 0
        self.values = 0
        self.sent: list[tuple[AlterPartitionRequest, tuple[int, ...]]] = []
        self.learn(set(BROKERS))

    # -- the controller

    @property
    def present(self) -> PartitionImage:
        return self.under_test.state("a")

    @property
    def min_isr(self) -> int:
        return int(self.under_test.image.topic_overrides("a")["min.insync.replicas"])

    def ask(self, event: Event, proposed: tuple[int, ...] = ()) -> Decision | None:
        """The controller's response; None when it refuses."""
        before = self.present
        try:
            decision = self.under_test.handle(event)
        except KafkaError:
            assert self.present == before
            return None
        self.check_step(before, decision, {*proposed})
        return decision

    def check_step(self, before: PartitionImage, decision: Decision, proposed: set[int]) -> None:
        after = self.present
        story = (before, after)
        unclean = sum(
            effect.partitions
            for effect in decision.effects
            if isinstance(effect, CountUncleanRecoveries)
        )
        self.unclean += unclean
        assert (after.partition_epoch > before.partition_epoch) == (after != before), story
        assert after.partition_epoch >= before.partition_epoch, story
        assert after.leader_epoch >= before.leader_epoch, story
        assert after.leader == before.leader or after.leader_epoch > before.leader_epoch, story
        assert self.leaders.setdefault(after.leader_epoch, after.leader) == after.leader, story
        if after.eligible:
            assert len(after.isr) < after.required_isr(self.min_isr), story
        if after.leader_epoch > before.leader_epoch and after.leader != NO_NODE:
            safe = {*before.isr, *before.eligible, *proposed}
            assert after.leader in safe or unclean, story
        if unclean:
            self.ledger.overrule(after.leader_epoch)

    # -- normal operation

    @rule(asleep=few_brokers, rounds=st.integers(1, 3), joins=st.booleans())
    def work(self, asleep: set[int], rounds: int, joins: bool) -> None:
        """Produce an entry; all awake brokers learn the state, fetch, and join the ISR."""
        awake = [broker for broker in BROKERS if broker not in asleep]
        for _ in range(rounds):
            for broker in awake:
                self.sync(broker)
            for broker in awake:
                self.produce(broker, 1)
            for broker in awake:
                self.fetch(broker, 1000)
        for broker in awake if joins else ():
            self.propose(broker, leave=None, lose_answer=False)

    @rule(
        broker=brokers,
        end=st.sampled_from(ENDS),
        told=st.booleans(),
        lost=st.integers(0, 3),
    )
    def restart(self, broker: int, end: str, told: bool, lost: int) -> None:
        self.end(broker, end, told)
        self.start(broker, lost, end == "emptied")

    @rule(broker=brokers, end=st.sampled_from(ENDS), told=st.booleans())
    def end(self, broker: int, end: str, told: bool) -> None:
        """A process ends; its death may or may not be reported."""
        host = self.hosts[broker]
        if not host.running:
            return
        host.stop(clean=end == "stop")
        if told and end == "stop":
            self.heartbeat(host, has_stopped=True)
        elif told:
            self.report_broker_death({broker})

    @rule(broker=brokers, lost=st.integers(0, 3), emptied=st.booleans())
    def start(self, broker: int, lost: int, emptied: bool) -> None:
        host = self.hosts[broker]
        if host.running:
            return
        host.start(lost=lost, new_directory=emptied)
        self.register(host)
        if emptied and host.running:
            state = self.present
            assert broker not in {*state.isr, *state.eligible, *state.last_known}

    @rule(lost=few_brokers)
    def report_broker_death(self, lost: set[int]) -> None:
        """The launcher reports deaths, possibly a wrong one."""
        named = tuple(LostBroker(broker_id=broker_id) for broker_id in sorted(lost))
        self.ask(ReportLossRequest(brokers=named))

    @rule(broker=brokers, told=st.booleans())
    def fail(self, broker: int, told: bool) -> None:
        """A broker's log goes offline."""
        host = self.hosts[broker]
        host.broken = host.running
        if told and host.running:
            self.heartbeat(host)

    @rule(silent=few_brokers)
    def time_passes(self, silent: set[int]) -> None:
        """A session timeout passes: some brokers are silent, the others report log ends."""
        for broker in BROKERS:
            if broker not in silent:
                self.sync(broker)
                self.report_end(broker)
        for _ in range(SESSION_S + 1):
            self.under_test.now_ms += 1000
            for host in self.hosts.values():
                if host.running and host.broker_id not in silent:
                    self.heartbeat(host)
            self.ask(TimePassed())

    def register(self, host: Host) -> None:
        request = registration(
            host.broker_id,
            directory_id=directory(host.broker_id + 10 * host.directory),
            incarnation=incarnation(host.broker_id + 10 * host.incarnation),
            clean_stop=host.clean,
        )
        decision = self.ask(request)
        if decision is None:  # its former process counts as alive still
            host.stop(clean=False)
        else:
            response: Any = decision.response
            host.broker_epoch = response.broker_epoch
            host.clean = False

    def heartbeat(self, host: Host, **flags: bool) -> None:
        failed = (OfflineReplica(topic_id=self.topic_id, partition=0),) if host.broken else ()
        self.ask(
            BrokerHeartbeatRequest(
                broker_id=host.broker_id, broker_epoch=host.broker_epoch, offline=failed, **flags
            )
        )

    # -- step by step

    @rule(awake=few_brokers)
    def learn(self, awake: set[int]) -> None:
        for broker in sorted(awake):
            self.sync(broker)

    def sync(self, broker: int) -> None:
        """A broker learns the present state."""
        host = self.hosts[broker]
        image = self.under_test.image.brokers[broker]
        if not host.running or image.broker_epoch != host.broker_epoch:
            return
        before = host.state
        brokers = self.under_test.image.brokers.values()
        epochs = {each.broker_id: each.broker_epoch for each in brokers}
        host.take(self.present, self.min_isr, epochs)
        if host.leads:
            if before is None or before.leader_epoch != self.present.leader_epoch:
                self.ledger.take(host)
            self.ledger.commit(host)

    @rule(broker=brokers, count=st.integers(1, 3))
    def produce(self, broker: int, count: int) -> None:
        host = self.hosts[broker]
        if host.leads:
            for _ in range(count):
                self.values += 1
                host.append(self.values)
            self.ledger.commit(host)

    @rule(broker=brokers)
    def flush(self, broker: int) -> None:
        self.hosts[broker].flushed = len(self.hosts[broker].log)

    @rule(broker=brokers, count=st.integers(0, 3))
    def fetch(self, broker: int, count: int) -> None:
        follower = self.hosts[broker]
        if follower.state is None or follower.broken or follower.leads:
            return
        if follower.state.leader == NO_NODE:
            return
        if broker not in follower.state.replicas:
            return
        leader = self.hosts[follower.state.leader]
        if leader.leads and leader.leader_epoch == follower.leader_epoch:
            follower.follow(leader, count)
            self.ledger.commit(leader)

    @rule(broker=brokers, leave=st.none() | brokers, lose_answer=st.booleans())
    def propose(self, broker: int, leave: int | None, lose_answer: bool) -> None:
        """The leader proposes that caught-up followers join the ISR, or that a member leaves."""
        host = self.hosts[broker]
        if not host.leads or host.state is None or leave == broker:
            return
        if host.proposal is None:
            wanted = {*host.state.isr, *host.caught_up()} - {leave}
            if wanted == {*host.state.isr}:
                return
            host.propose(wanted)
        proposal = host.proposal
        assert proposal is not None
        data = PartitionData(
            leader_epoch=host.leader_epoch,
            partition_epoch=proposal.partition_epoch,
            new_isr_with_epochs=tuple(
                BrokerState(broker_id=member, broker_epoch=epoch)
                for member, epoch in proposal.members.items()
            ),
        )
        topics = (TopicData(topic_id=self.topic_id, partitions=(data,)),)
        request = AlterPartitionRequest(
            broker_id=broker, broker_epoch=host.broker_epoch, topics=topics
        )
        self.sent.append((request, tuple(proposal.members)))
        decision = self.ask(request, tuple(proposal.members))
        if not lose_answer and decision is not None:
            host.proposal = None
            self.sync(broker)

    @rule(number=st.integers(1, 4))
    def arrive_again(self, number: int) -> None:
        """An old proposal of a leader arrives once more."""
        if number <= len(self.sent):
            self.ask(*self.sent[-number])

    @rule(broker=brokers)
    def report_end(self, broker: int) -> None:
        host = self.hosts[broker]
        if host.state is None or host.broken or host.state.leader != NO_NODE:
            return
        end = LogEnd(
            topic_id=self.topic_id,
            current_leader_epoch=host.state.leader_epoch,
            leader_epoch=host.log[-1][0] if host.log else -1,
            log_end_offset=len(host.log),
        )
        self.ask(
            ReportLogEndsRequest(broker_id=broker, broker_epoch=host.broker_epoch, ends=(end,))
        )

    # -- operators

    @rule(wish=st.sampled_from(WISHES), broker=brokers)
    def wish(self, wish: str, broker: int) -> None:
        if wish == "replace":
            image = self.under_test.image.copy()
            self.under_test = ControllerUnderTest(image, unclean_recovery_timeout_ms="5000")
        elif wish == "stop":
            if self.hosts[broker].running:
                self.heartbeat(self.hosts[broker], wants_stop=True)
        else:
            wanted = (TopicPartitions(topic="a", partitions=(0,)),)
            election_type = int(wish == "elect unclean")
            self.ask(ElectLeadersRequest(election_type=election_type, topic_partitions=wanted))

    @rule(min_isr=min_isrs, unclean=st.sampled_from(UNCLEAN))
    def configure(self, min_isr: int, unclean: str) -> None:
        before = self.present
        decision = self.under_test.configure(
            "a", min_insync_replicas=str(min_isr), unclean_leader_election_enable=unclean
        )
        self.check_step(before, decision, set())

    @rule(replicas=st.none() | st.lists(brokers, unique=True, min_size=1, max_size=4))
    def reassign(self, replicas: list[int] | None) -> None:
        wanted = ReassignablePartition(replicas=None if replicas is None else tuple(replicas))
        topics = (ReassignableTopic(name="a", partitions=(wanted,)),)
        self.ask(AlterPartitionReassignmentsRequest(topics=topics))

    # -- invariants

    @invariant()
    def the_image_is_sound(self) -> None:
        if hasattr(self, "under_test"):
            self.under_test.controller.check_invariants()


ReplicatedPartition.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestReplicatedPartition = ReplicatedPartition.TestCase


# -- longer histories, with realistic frequencies

STEPS = 60


def tell(story: ReplicatedPartition, random: Random) -> None:
    """Do one step of a history."""
    broker = random.choice(BROKERS)
    few = set(random.sample(BROKERS, random.choice((0, 0, 1, 1, 2))))
    some = random.sample(BROKERS, random.randint(1, 4))
    yes, lost, end = random.random() < 0.5, random.randint(0, 3), random.choice(ENDS)
    steps: list[tuple[float, Callable[[], object]]] = [
        (6, lambda: story.work(few, random.randint(1, 3), yes)),
        (3, lambda: story.restart(broker, end, yes, lost)),
        (2, lambda: story.end(broker, end, yes)),
        (3, lambda: story.start(broker, lost, random.random() < 0.1)),
        (1, lambda: story.report_broker_death(few)),
        (0.7, lambda: story.fail(broker, yes)),
        (0.5, lambda: story.time_passes(few)),
        (1, lambda: story.learn(few)),
        (1, lambda: story.produce(broker, 2)),
        (1, lambda: story.flush(broker)),
        (3, lambda: story.fetch(broker, random.randint(0, 3))),
        (2, lambda: story.propose(broker, random.choice((None, *BROKERS)), random.random() < 0.3)),
        (1, lambda: story.arrive_again(random.randint(1, 4))),
        (1, lambda: story.report_end(broker)),
        (0.7, lambda: story.wish(random.choice(WISHES), broker)),
        (0.3, lambda: story.configure(random.choice((1, 2, 2, 3)), random.choice(UNCLEAN))),
        (0.5, lambda: story.reassign(random.choice((None, some)))),
    ]
    (chosen,) = random.choices([step for _, step in steps], [weight for weight, _ in steps])
    chosen()
    story.the_image_is_sound()


def test_long_stories_lose_nothing_and_have_everything_in_them() -> None:
    seen: Counter[str] = Counter()
    for seed in range(150):
        random, story = Random(seed), ReplicatedPartition()
        story.begin(min_isr=random.choice((1, 2, 2, 2, 3)))
        for _ in range(STEPS):
            tell(story, random)
        seen["committed"] += len(story.ledger.entries)
        seen["epochs"] += story.present.leader_epoch
        seen["unclean"] += story.unclean
        seen["offline"] += story.present.offline
    assert seen["committed"] > 1000, seen
    assert seen["epochs"] > 300, seen
    assert min(seen["unclean"], seen["offline"]) > 30, seen
