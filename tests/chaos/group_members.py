"""The consumer groups of a run: members as processes, and what happens to them.

Owns: the life of members (they leave, come back, are killed, stand still) and the history of what
they report.  Must not know what is done to the cluster, nor what the checkers make of the history.
"""

import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import psutil
from confluent_kafka import KafkaError

from sparklog.metadata.coordinators import partition_for
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from tests.chaos.chain_member import HUNG
from tests.chaos.chaos_clients import Load
from tests.chaos.cluster_processes import stopped
from tests.chaos.group_member import (
    CHAIN,
    COOPERATIVE,
    EAGER,
    LIBRDKAFKA,
    REQUEST_TIMEOUT_MS,
    SPARKLOG,
    ChainAborted,
    CommitBegun,
    CommitTaken,
    Complained,
    Fenced,
    MemberPlan,
    OffsetsNotFetched,
    Polled,
    Refused,
    Report,
    ends_of,
)
from tests.chaos.journal_watch import JournalWatch
from tests.simulation.events import (
    LogId,
    OffsetCommitAcked,
    OffsetCommitInvoked,
    PartitionsAssigned,
    Processed,
)

#: Not ``-m``: the classes of reports would be others in the process's main module.
START = "from tests.chaos.group_member import main; main()"
#: Seconds between two troubles of members, of a pause, and of an absence.
CALM_S = (1.0, 5.0)
PAUSE_S = (0.5, 9.0)
ABSENCE_S = (0.0, 8.0)
STOP_S_MAX = 30.0
NO_GENERATION = -1

#: Errors of a transaction that somebody else has ended, or that the coordinator does not know.
ENDED_BY_OTHERS = frozenset(
    {
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.PRODUCER_FENCED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

#: The group of the eager assignors, that of the cooperative one, and that of the chain.
EAGER_GROUP, COOPERATIVE_GROUP, CHAIN_GROUP = "eager-group", "cooperative-group", "chain-group"
#: Member by name: client, assignors, whether it commits itself, whether it is a static member.
MEMBERS: Mapping[str, Mapping[str, tuple[str, tuple[str, ...], bool, bool]]] = {
    EAGER_GROUP: {
        "sync": (LIBRDKAFKA, EAGER, True, False),
        "auto": (LIBRDKAFKA, EAGER, False, False),
        "ours": (SPARKLOG, EAGER, True, False),
    },
    COOPERATIVE_GROUP: {
        "sync": (LIBRDKAFKA, COOPERATIVE, True, False),
        "auto": (LIBRDKAFKA, COOPERATIVE, False, True),
        "ours": (SPARKLOG, COOPERATIVE, True, False),
    },
    CHAIN_GROUP: {
        "one": (CHAIN, EAGER, True, False),
        "two": (CHAIN, EAGER, True, False),
    },
}


def plans_of(load: Load) -> list[MemberPlan]:
    """The members of all groups."""
    return [
        MemberPlan(
            bootstrap=load.bootstrap,
            group=group,
            name=f"{group}-{name}",
            client=client,
            assignors=assignors,
            commits_itself=commits_itself,
            instance_id=f"{group}-{name}" if is_static else None,
            logs=tuple(load.logs),
            settings={
                key: value for key, value in load.client_settings(name).items() if "." in key
            },
        )
        for group, members in MEMBERS.items()
        for name, (client, assignors, commits_itself, is_static) in members.items()
    ]


class Reports:
    """What one life of a member tells becomes history."""

    def __init__(
        self, load: Load, plan: MemberPlan, coordinator_epoch: Callable[[], int] = lambda: 0
    ) -> None:
        """``coordinator_epoch`` tells how often the group's coordinator has moved."""
        self._load, self._plan = load, plan
        self._coordinator_epoch = coordinator_epoch
        self._epoch_at_start = coordinator_epoch()
        self._last_commit: OffsetCommitInvoked | None = None

    def note(self, report: Report) -> None:
        history, counters = self._load.history, self._load.counters
        match report:
            case Processed():
                counters["records_processed"] += len(report.records)
                if not self._plan.commits_itself:  # from now on its client may do so at any time
                    self._invoked(NO_GENERATION, ends_of([report]))
                history.record(report)
            case PartitionsAssigned():
                counters["assignments"] += 1
                history.record(report)
            case CommitBegun():
                self._last_commit = self._invoked(report.generation, report.offsets)
            case CommitTaken():
                assert self._last_commit is not None
                counters["commits_acked"] += 1
                counters["transactions committed"] += self._plan.client == CHAIN
                history.record(OffsetCommitAcked(op=self._last_commit.op))
                if report.took_ms >= 0.8 * REQUEST_TIMEOUT_MS:  # an attempt may have been given up
                    self._invoked(self._last_commit.generation, self._last_commit.offsets)
            case ChainAborted():
                self._note_aborted(report)
            case Fenced():
                self.note_fenced()
            case Refused():
                self._note_refused(report)
            case Complained():
                self._load.complaints.append(f"{self._plan.name}: {report.text}")
            case OffsetsNotFetched() | Polled():
                pass

    def note_fenced(self) -> None:
        """A restarted static member has a new member id, of which a coordinator that takes over in
        the middle of the rebalance does not know: Kafka's fence it as well."""
        self._load.counters["members fenced"] += 1
        if self._coordinator_epoch() == self._epoch_at_start:
            name = self._plan.name
            self._load.complaints.append(f"{name} was fenced, its coordinator has not moved")

    def _note_aborted(self, report: ChainAborted) -> None:
        self._load.counters["transactions aborted"] += 1
        if report.code in ENDED_BY_OTHERS and not report.timed_out:
            self._load.complaints.append(f"{self._plan.name} had to abort: {report.text}")

    def _note_refused(self, report: Refused) -> None:
        """A member is alone with its transactional id, so only the timeout ends its producer."""
        self._load.counters["producers refused"] += 1
        if not report.timed_out:
            self._load.complaints.append(f"{self._plan.name} was refused: {report.text}")

    def _invoked(
        self, generation: int, offsets: tuple[tuple[LogId, int], ...]
    ) -> OffsetCommitInvoked:
        event = OffsetCommitInvoked(
            op=self._load.history.new_op(),
            group=self._plan.group,
            generation=generation,
            offsets=offsets,
        )
        self._load.history.record(event)
        return event


@dataclass(slots=True, kw_only=True)
class Member:
    """One place in a group; after a death another process takes it."""

    plan: MemberPlan
    load: Load
    journal: JournalWatch
    process: "subprocess.Popen[bytes] | None" = None
    thread: threading.Thread | None = None
    leaves: threading.Event = field(default_factory=threading.Event)
    started: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self.leaves.clear()
        self.started.clear()
        self.thread = threading.Thread(target=self._serve, name=self.plan.name)
        self.thread.start()
        self.started.wait()

    def leave(self) -> None:
        """Ask the process to leave the group; ``join`` waits for its end."""
        self.leaves.set()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def join(self) -> bool:
        """Wait for the end of the process.  Returns False if it had to be killed."""
        assert self.thread is not None
        self.thread.join(STOP_S_MAX)
        if not self.thread.is_alive():
            return True
        self.kill()
        self.thread.join()
        return False

    def _serve(self) -> None:
        """Run the process, and start it again if it says so by its last report."""
        while self._live():
            self.load.counters["members started again"] += 1

    def _coordinator_epoch(self) -> int:
        image = self.journal.catch_up()
        topic = image.topic(CONSUMER_OFFSETS)
        if topic is None:
            return 0
        number = partition_for(self.plan.group, len(topic.partitions))
        return topic.partitions[number].leader_epoch

    def _live(self) -> bool:
        """Answer the reports of one process until it ends; whether it is to be started again."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-c", START, str(theirs.fileno())]
        with theirs:
            self.process = subprocess.Popen(command, pass_fds=(theirs.fileno(),))
        self.started.set()
        reports, report = Reports(self.load, self.plan, self._coordinator_epoch), None
        with Connection(ours.detach()) as connection, suppress(EOFError, OSError):
            connection.send(self.plan)
            while True:
                report = connection.recv()
                reports.note(report)
                connection.send(not self.leaves.is_set())
        if self.process.wait() == HUNG:
            self.load.counters["members hung in librdkafka"] += 1
            return not self.leaves.is_set()
        return isinstance(report, Fenced | OffsetsNotFetched | Refused)


class Groups:
    """All groups of a run.  ``run_troubles`` is for a thread of its own."""

    def __init__(self, load: Load, journal: JournalWatch, chance: random.Random) -> None:
        self._load, self._chance = load, chance
        self._members: Sequence[Member] = [
            Member(plan=plan, load=load, journal=journal) for plan in plans_of(load)
        ]

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(member.plan.group for member in self._members))

    @contextmanager
    def running(self) -> Iterator[None]:
        """All members are there at first, and leave at the end."""
        for member in self._members:
            member.start()
        try:
            yield
        finally:
            self._stop()

    def run_troubles(self, over: threading.Event) -> None:
        """Until ``over``; then all members are there."""
        while not over.wait(self._chance.uniform(*CALM_S)):
            member = self._chance.choice(self._members)
            trouble = self._chance.choice((self._kill, self._leave, self._pause))
            trouble(member, over)

    def _stop(self) -> None:
        for member in self._members:
            member.leave()
        for member in self._members:
            if not member.join():
                name = member.plan.name
                self._load.complaints.append(f"{name} did not leave its group in {STOP_S_MAX} s")

    def _kill(self, member: Member, over: threading.Event) -> None:
        self._load.counters["members killed"] += 1
        member.kill()
        member.join()
        over.wait(self._chance.uniform(*ABSENCE_S))
        member.start()

    def _leave(self, member: Member, over: threading.Event) -> None:
        self._load.counters["members left"] += 1
        member.leave()
        member.join()
        over.wait(self._chance.uniform(*ABSENCE_S))
        member.start()

    def _pause(self, member: Member, over: threading.Event) -> None:
        """The process stands still; meanwhile the group goes on without it, perhaps."""
        if member.process is None:
            return
        with suppress(psutil.Error), stopped(psutil.Process(member.process.pid)):
            self._load.counters["members paused"] += 1
            over.wait(self._chance.uniform(*PAUSE_S))
