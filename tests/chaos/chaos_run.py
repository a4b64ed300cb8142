"""``make chaos MINUTES=N``: a real cluster, clients that are not ours, and kills every few seconds.

Owns: the order of a run, its verdict and its minimums.  Must not know what a client does or how a
process dies.  The seed chooses the faults; when they strike is the machine's doing, so a run that
fails is told by its history, not repeated by its seed.  History and checkers are the simulation's,
whose folder has to be on the path.
"""

import argparse
import logging
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sparklog.cluster import Cluster, start, start_processes
from sparklog.session import create_session
from tests.chaos.chaos_clients import CLIENTS, Load, probe, run_client
from tests.chaos.cluster_processes import ClusterProcesses
from tests.chaos.journal_watch import JournalWatch
from tests.chaos.remains import folders_of, read_logs, replicas_of
from tests.chaos.shared_history import SharedHistory
from tests.chaos.status_watch import StatusWatch, totals
from tests.chaos.troubles import Troubles
from tests.simulation.checkers import violations
from tests.simulation.events import (
    ClusterBegun,
    Committed,
    Healed,
    InSync,
    LogId,
    Probed,
    TopicCreated,
    TopicCreateInvoked,
)
from tests.simulation.final_state import FinalState, JournalCommit

BROKERS = 3
PARTITIONS = 4
TOPICS = {
    "plain": {"min.insync.replicas": "2"},
    "small": {"min.insync.replicas": "2", "segment.bytes": "200000"},
}
#: Executors of one core each: one broker on each of three, and a core for queries.
MASTER = "local-cluster[4,1,1024]"
SETTINGS = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "2000",
    "broker.replacement.delay.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "leader.imbalance.check.interval.seconds": "20",
}
UNCLEAN_RECOVERY_MS = 30_000
#: What ten minutes must have exercised, and a shorter run its share of.
MINIMUMS = {"leader_changes": 20, "truncations": 10, "isr_shrinks": 5}
MINIMUMS_OF_MINUTES = 10
#: Chance decides whether two minutes see any (0 to 23 were seen), so a shorter run need not.
ONLY_IN_LONG_RUNS = frozenset({"truncations"})
MINUTES_IN_TESTS = 2
#: Counters of brokers, by the names that a run gives them.
COUNTED = {"truncations": "truncations", "torn bytes recovered from": "bytes_truncated"}
#: After the troubles everything works again within so long.
HEAL_SECONDS_MAX = 120.0
LOOK_S = 0.05
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


@dataclass(slots=True, kw_only=True)
class Verdict:
    """``found``: what is wrong."""

    found: list[str] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)

    def neglected(self, minutes: float) -> list[str]:
        """What a run of this length should have exercised more."""
        share = min(1.0, minutes / MINIMUMS_OF_MINUTES)
        return [
            f"{name}: {self.counters[name]}, at least {int(least * share)} are asked for"
            for name, least in MINIMUMS.items()
            if self.counters[name] < int(least * share)
            and (share == 1.0 or name not in ONLY_IN_LONG_RUNS)
        ]


def run(folder: Path, *, minutes: float, seed: int, in_spark: bool) -> Verdict:
    """A whole run in an empty folder."""
    data_dir = folder / "data"
    history = SharedHistory()
    history.record(ClusterBegun(unclean_recovery_ms=UNCLEAN_RECOVERY_MS))
    journal = JournalWatch(data_dir / "journal", partial(_committed, history))
    with _cluster(data_dir, in_spark) as cluster, _watching(journal), _status(cluster) as status:
        logs = _create_topics(cluster, journal, history)
        load = Load(bootstrap=cluster.bootstrap_servers, logs=logs, history=history)
        troubles = Troubles(
            processes=ClusterProcesses(data_dir),
            journal=journal,
            history=history,
            chance=random.Random(f"{seed}/troubles"),
            over=threading.Event(),
            trash=folder / "trash",
            say=partial(_say, history.now_ms, history),
        )
        _play(load, troubles, minutes, seed)
        _heal(journal, load)
        final_logs = read_logs(cluster.bootstrap_servers, logs)
        status.look()
    journal.catch_up()
    final = FinalState(
        logs=final_logs,
        replicas=tuple(replicas_of(data_dir, final_logs)),
        journal=tuple(journal.commits),
        folders=folders_of(data_dir),
    )
    counters = journal.counters + troubles.counters + load.counters + totals(status, COUNTED)
    found = [*violations(history, final), *(f"clients: {text}" for text in load.complaints)]
    return Verdict(found=found, counters=counters)


def _say(began_ms: int, history: SharedHistory, text: str) -> None:
    print(f"{(history.now_ms - began_ms) / 1000:6.1f} s  {text}", flush=True)


@contextmanager
def _cluster(data_dir: Path, in_spark: bool) -> Iterator[Cluster]:
    if not in_spark:
        with start_processes(BROKERS, data_dir=data_dir, settings=SETTINGS) as cluster:
            yield cluster
        return
    spark = create_session(MASTER, BROKERS, "chaos")
    try:
        with start(spark, BROKERS, data_dir=data_dir, settings=SETTINGS) as cluster:
            yield cluster
    finally:
        spark.stop()


def _status(cluster: Cluster) -> StatusWatch:
    assert cluster._launcher is not None
    control = cluster._launcher.control_plane
    return StatusWatch(control.endpoint, control.secret)


@contextmanager
def _watching(journal: JournalWatch) -> Iterator[None]:
    """Commits come into the history soon after they were made."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_S):
            journal.catch_up()

    thread = threading.Thread(target=watch, name="journal-watch")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _committed(history: SharedHistory, commit: JournalCommit) -> None:
    history.record(Committed(number=commit.number, records=commit.records))


def _create_topics(cluster: Cluster, journal: JournalWatch, history: SharedHistory) -> list[LogId]:
    logs: list[LogId] = []
    for name, configs in TOPICS.items():
        op = history.new_op()
        history.record(
            TopicCreateInvoked(
                op=op, topic=name, configs=tuple(configs.items()), partitions=PARTITIONS
            )
        )
        cluster.create_topic(name, PARTITIONS, replication_factor=BROKERS, configs=configs)
        topic = journal.catch_up().topics[name]
        leaders = tuple(topic.partitions[number].leader for number in range(PARTITIONS))
        history.record(TopicCreated(op=op, topic=name, topic_id=topic.topic_id, leaders=leaders))
        logs += [LogId(name, topic.topic_id, number) for number in range(PARTITIONS)]
    return logs


def _play(load: Load, troubles: Troubles, minutes: float, seed: int) -> None:
    """Clients and troubles for so long; returns when all of them have ended."""
    clients = [
        threading.Thread(target=run_client, args=(load, name, seed), name=name) for name in CLIENTS
    ]
    trouble = threading.Thread(target=troubles.run, name="troubles")
    for thread in (*clients, trouble):
        thread.start()
    try:
        troubles.over.wait(60 * minutes)
    finally:
        troubles.over.set()
        trouble.join()
        load.over.set()
        for thread in clients:
            thread.join()


def _heal(journal: JournalWatch, load: Load) -> None:
    """Wait until all is well, and try every partition."""
    history, began = load.history, load.history.now_ms
    history.record(Healed())
    end = time.monotonic() + HEAL_SECONDS_MAX
    while not journal.is_whole() and time.monotonic() < end:
        time.sleep(LOOK_S)
    image = journal.catch_up()
    for log in load.logs:
        state = image.topics[log.topic].partitions[log.partition]
        missing = tuple(sorted(set(state.replicas) - set(state.isr)))
        history.record(InSync(log=log, took_ms=history.now_ms - began, missing=missing))
        asked = history.now_ms
        error = probe(load, log)
        history.record(Probed(log=log, took_ms=history.now_ms - asked, error=error))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="chaos_run.py", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("spark", "process"), default="spark")
    parser.add_argument("--keep", action="store_true", help="keep the folder of a run that failed")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="sparklog-chaos-"))
    logging.basicConfig(filename=folder / "launcher.log", level=logging.INFO, format=LOG_FORMAT)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    began = time.monotonic()
    verdict = Verdict(found=["the run did not come to its end"])
    try:
        verdict = run(
            folder,
            minutes=options.minutes,
            seed=options.seed,
            in_spark=options.engine == "spark",
        )
    finally:
        if options.keep and verdict.found:
            print(f"what is left is in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    for name, number in sorted(verdict.counters.items()):
        print(f"{number:12,} {name}")
    print(f"seed {options.seed}, {time.monotonic() - began:.0f} s")
    for line in [*verdict.found[:20], *verdict.neglected(options.minutes)]:
        print(line)
    return 1 if verdict.found or verdict.neglected(options.minutes) else 0


if __name__ == "__main__":
    sys.exit(main())
