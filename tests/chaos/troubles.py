"""What is done to a running cluster: kills, lost and cut disks, processes that stand still.

Owns: the choice of faults and victims from a seed, and the history of deaths.  Must not know what
clients do, nor how a broker's disk is damaged.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from threading import Event
from typing import TypeVar

import psutil

from tests.chaos.cluster_processes import ClusterProcesses, nobody_in, send, stopped
from tests.chaos.disk_damage import cut_to_flushed, lose_log_dir
from tests.chaos.fault_bound import FaultBound
from tests.chaos.journal_watch import JournalWatch
from tests.chaos.shared_history import SharedHistory
from tests.simulation.events import BrokerDied
from tests.support.s3_server import S3Server

T = TypeVar("T")
#: Seconds between faults, and of those that end by themselves.
CALM_S = (0.5, 4.0)
HANG_S = (0.3, 9.0)
#: How long the rest of the cluster may take to become such that a disk may be damaged.
PATIENCE_S = 20.0
LOOK_S = 0.05
PLAIN, LOSE, CUT = "plain", "directory lost", "files cut"
DAMAGES = (PLAIN, LOSE, CUT)


def dealt(counts: Mapping[T, int], chance: random.Random) -> Iterator[T]:
    """Without end: in each round everything as often as it counts, in another order.

    No kind of fault is left out of a run by chance.
    """
    while True:
        cards = [card for card, count in counts.items() for _ in range(count)]
        chance.shuffle(cards)
        yield from cards


@dataclass(slots=True, kw_only=True)
class Troubles:
    """``over`` ends them; what stands still goes on then."""

    processes: ClusterProcesses
    journal: JournalWatch
    history: SharedHistory
    chance: random.Random
    over: Event
    trash: Path
    bound: FaultBound
    counters: Counter[str] = field(default_factory=Counter)
    say: Callable[[str], None] = print
    bucket: S3Server | None = None

    def run(self) -> None:
        faults = dealt(_FAULTS, self.chance)
        if self.bucket is not None:  # first of all: a short run ends within the first round
            every = dealt(_FAULTS | _BUCKET_FAULTS, self.chance)
            faults = chain((Troubles.take_bucket_away,), every)
        while not self.over.is_set():
            self._calm()
            next(faults)(self)
        self.say("no more troubles")

    def _calm(self) -> None:
        """A while; often until all is well, so that the next fault meets a whole cluster."""
        self.over.wait(self.chance.uniform(*CALM_S))
        if self.chance.random() < 0.6:
            self._await(self.journal.is_whole)

    def _await(self, condition: Callable[[], bool]) -> bool:
        end = time.monotonic() + PATIENCE_S
        while not (met := condition()) and time.monotonic() < end and not self.over.is_set():
            self.over.wait(LOOK_S)
        return met

    @property
    def _broker_ids(self) -> list[int]:
        return sorted(self.journal.catch_up().brokers)

    # faults

    def kill_broker(self) -> None:
        self._kill("brokers killed", self.processes.broker, self._one())

    def kill_supervisor(self) -> None:
        self._kill("supervisors killed", self.processes.supervisor, self._one())

    def kill_executor(self) -> None:
        self._kill("executors killed", self.processes.executor, self._one())

    def kill_several(self) -> None:
        """At once, maybe all: then nobody is left who stopped cleanly or goes on."""
        count = self.chance.randint(2, len(self._broker_ids))
        victims = self.chance.sample(self._broker_ids, count)
        self._kill("several brokers killed", self.processes.broker, victims)

    def _one(self) -> list[int]:
        return [self.chance.choice(self._broker_ids)]

    def kill_control_plane(self) -> None:
        process = self.processes.control_plane()
        if process is not None and send(process, signal.SIGKILL):
            self._count("control planes killed")

    def kill_cleaner(self) -> None:
        """The next process that cleans a log on any broker."""
        self._await(self._cleaner_was_killed)

    def _cleaner_was_killed(self) -> bool:
        for broker_id in self._broker_ids:
            process = self.processes.cleaner(broker_id)
            if process is not None and send(process, signal.SIGKILL):
                self._count("cleaners killed", f"of broker {broker_id}")
                return True
        return False

    def kill_tiering(self) -> None:
        """The process that talks to the bucket for a broker."""
        broker_id = self.chance.choice(self._broker_ids)
        process = self.processes.tiering(broker_id)
        if process is not None and send(process, signal.SIGKILL):
            self._count("tiering processes killed", f"of broker {broker_id}")

    def take_bucket_away(self) -> None:
        """It refuses connections, or takes them and answers nobody."""
        assert self.bucket is not None
        seconds = self.chance.uniform(*HANG_S)
        self._count("buckets away", f"{seconds:.1f} s")
        if self.chance.random() < 0.5:
            with stopped(psutil.Process(self.bucket.process.pid)):
                self.over.wait(seconds)
            return
        self.bucket.stop()
        self.over.wait(seconds)
        self.bucket.start()

    def hang_broker(self) -> None:
        self._hang(self.processes.broker(self.chance.choice(self._broker_ids)), "brokers hung")

    def hang_control_plane(self) -> None:
        self._hang(self.processes.control_plane(), "control planes hung")

    def _hang(self, process: psutil.Process | None, what: str) -> None:
        if process is None:
            return
        seconds = self.chance.uniform(*HANG_S)
        self._count(what, f"{seconds:.1f} s")
        with stopped(process):
            self.over.wait(seconds)

    def _kill(
        self, what: str, find: Callable[[int], psutil.Process | None], victims: list[int]
    ) -> None:
        """Kill the processes of the victims, and damage the disk of the first, maybe."""
        victim = victims[0]
        damage = self.chance.choice(DAMAGES)
        absent = victims if damage == LOSE else []
        if damage != PLAIN and not self._await(lambda: self._may_damage(victim, absent)):
            damage = PLAIN
        processes = {find(broker_id) for broker_id in victims} - {None}
        dying = [broker_id for broker_id in self._broker_ids if find(broker_id) in processes]
        hit = [process for process in processes if process and send(process, signal.SIGKILL)]
        if not hit:
            return
        with nobody_in(self.processes.log_dir(victim)) as alone:
            if victim not in dying or not alone or not self._may_damage(victim, absent):
                damage = PLAIN
            self._record_deaths(dying, victim, damage)
            self._damage(victim, damage)
        self._count(what, f"{dying}, {damage}")
        self._count(f"kills, {damage}")

    def _may_damage(self, victim: int, dying: list[int]) -> bool:
        return not self.bound.reason_against(self.journal.catch_up(), victim, dying)

    def _record_deaths(self, dying: list[int], victim: int, damage: str) -> None:
        image = self.journal.catch_up()
        for broker_id in dying:
            harmed = broker_id == victim and damage != PLAIN
            self.history.record(
                BrokerDied(
                    broker=broker_id,
                    power_lost=harmed and damage == CUT,
                    disk_lost=harmed and damage == LOSE,
                    incarnation=image.brokers[broker_id].incarnation,
                )
            )

    def _damage(self, victim: int, damage: str) -> None:
        if damage == PLAIN:
            return
        self.bound.note_damage(self.journal.catch_up(), victim)
        log_dir = self.processes.log_dir(victim)
        if damage == LOSE:
            lose_log_dir(log_dir, self.trash)
        else:
            lost = cut_to_flushed(log_dir, self.chance)
            self.counters["bytes cut"] += sum(lost.values())

    def _count(self, what: str, more: str = "") -> None:
        self.counters[what] += 1
        if more:
            self.say(f"{what}: {more}")


#: A run of ten minutes has about as many faults as these are together.
_FAULTS: dict[Callable[[Troubles], None], int] = {
    Troubles.kill_broker: 8,
    Troubles.kill_supervisor: 3,
    Troubles.kill_executor: 3,
    Troubles.kill_several: 2,
    Troubles.kill_control_plane: 2,
    Troubles.kill_cleaner: 3,
    Troubles.hang_broker: 3,
    Troubles.hang_control_plane: 1,
}
_BUCKET_FAULTS: dict[Callable[[Troubles], None], int] = {
    Troubles.kill_tiering: 5,
    Troubles.take_bucket_away: 6,
}
