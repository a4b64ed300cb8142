"""``make chaos MINUTES=N``: a real cluster, clients that are not ours, and kills every few seconds.

Producers and readers, the members of consumer groups, a chain of transactions and a compacted topic
are the load; brokers, control plane, cleaners and members die or stand still, and one broker is
added.  With ``--bucket`` one topic is tiered, and its bucket goes away now and then.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sparklog.cluster import Cluster, start, start_processes
from sparklog.session import create_session
from tests.chaos import offsets_forward
from tests.chaos.added_broker import AddedBroker, missing_replicas
from tests.chaos.chain_member import OUTPUT, OUTPUT_PARTITIONS
from tests.chaos.chain_watch import read_output, unsettled
from tests.chaos.chain_watch import verdict as chain_verdict
from tests.chaos.chaos_clients import CLIENTS, Load, probe, run_client
from tests.chaos.cluster_processes import ClusterProcesses
from tests.chaos.fault_bound import FaultBound
from tests.chaos.group_members import Groups
from tests.chaos.group_watch import drain, ends_of_logs, read_offsets
from tests.chaos.journal_watch import JournalWatch
from tests.chaos.keyed_clients import (
    CONFIGS,
    KEYED,
    KEYED_PARTITIONS,
    KeyedLoad,
    read_keys,
    read_passage,
    replicas_on,
    write_keys,
)
from tests.chaos.keyed_story import as_passage
from tests.chaos.keyed_story import verdict as keyed_verdict
from tests.chaos.remains import partition_dirs_of, read_logs, replicas_of
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
from tests.support.s3_server import S3Server, require_binary

BROKERS = 3
PARTITIONS = 4
TOPICS = {
    "plain": (PARTITIONS, {"min.insync.replicas": "2"}),
    "small": (PARTITIONS, {"min.insync.replicas": "2", "segment.bytes": "200000"}),
}
#: With a bucket, most of it is there alone after a while.
TIERED_TOPICS = {
    "tiered": (
        PARTITIONS,
        {
            "min.insync.replicas": "2",
            "segment.bytes": "100000",
            "remote.storage.enable": "true",
            "local.retention.bytes": "150000",
        },
    )
}
#: Executors of one core each: one broker on each of three and of the added one, a core for queries.
MASTER = "local-cluster[5,1,1024]"
SETTINGS = {
    "auto.create.topics.enable": "false",
    # Of the internal topics, too: with 1, a broker whose files are cut while all others are killed
    # may be the last one in the ISR, and lead with what is left.
    "min.insync.replicas": "2",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "2000",
    "broker.replacement.delay.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "leader.imbalance.check.interval.seconds": "20",
    "log.cleaner.backoff.ms": "6000",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "100000",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.segment.bytes": "100000",
}
BUCKET_SETTINGS = {
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "0",
}
UNCLEAN_RECOVERY_MS = 30_000
#: What ten minutes must have exercised, and a shorter run its share of.
MINIMUMS = {
    "leader_changes": 20,
    "truncations": 10,
    "isr_shrinks": 5,
    "assignments": 50,
    "commits_acked": 150,
    "offsets_read": 50,
    "logs cleaned": 30,
    "steady_passages": 20,
    "members killed": 10,
    "transactions committed": 100,
    "transactions aborted": 5,
    "cleaners killed": 2,
}
#: About half of what a round of faults has: a loaded machine does not finish it in ten minutes.
BUCKET_MINIMUMS = {"segments copied": 200, "buckets away": 3, "tiering processes killed": 3}
MINIMUMS_OF_MINUTES = 10
#: Chance decides whether two minutes see any (0 to 30 truncations, 0 to 5 aborts), so a shorter run
#: need not.
ONLY_IN_LONG_RUNS = frozenset({"truncations", "transactions aborted"})
MINUTES_IN_TESTS = 2
#: Faults that a run of any length has at least once.
AT_LEAST_ONCE = frozenset({"buckets away"})
#: Counters of brokers, by the names that a run gives them.
COUNTED = {
    "truncations": "truncations",
    "torn bytes recovered from": "bytes_truncated",
    "logs cleaned": "logs_cleaned",
    "cleanings failed": "cleanings_failed",
    "segments copied": "remote_segments_copied",
    "reads of the bucket": "remote_reads",
}
#: After the troubles everything works again within so long.
HEAL_SECONDS_MAX = 120.0
#: The cluster has grown within so long; Spark may have to start an executor again for it.
GROW_SECONDS_MAX = 200.0
#: Readings of committed offsets in a run; the checker compares each of them with all commits.
OFFSET_READS_MAX = 150
LOOK_S = 0.05
#: The file of a run that found something: every event with its milliseconds.
HISTORY = "history.txt"
LINE_MAX, LINES_MAX = 400, 40
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


@dataclass(slots=True, kw_only=True)
class Verdict:
    """``found``: what is wrong."""

    found: list[str] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    minimums: Mapping[str, int] = field(default_factory=lambda: MINIMUMS)

    def neglected(self, minutes: float) -> list[str]:
        """What a run of this length should have exercised more."""
        share = min(1.0, minutes / MINIMUMS_OF_MINUTES)
        wanted = {
            name: max(int(least * share), 1 if name in AT_LEAST_ONCE else 0)
            for name, least in self.minimums.items()
            if share == 1.0 or name not in ONLY_IN_LONG_RUNS
        }
        return [
            f"{name}: {self.counters[name]}, at least {least} are asked for"
            for name, least in wanted.items()
            if self.counters[name] < least
        ]


def run(
    folder: Path, *, minutes: float, seed: int, in_spark: bool, bucket: S3Server | None = None
) -> Verdict:
    """A whole run in an empty folder; with a bucket, one topic is tiered."""
    data_dir = folder / "data"
    history = SharedHistory()
    min_isr = int(SETTINGS["min.insync.replicas"])
    history.record(ClusterBegun(unclean_recovery_ms=UNCLEAN_RECOVERY_MS, min_isr=min_isr))
    journal = JournalWatch(data_dir / "journal", partial(_committed, history))
    options: dict[str, Any] = {"data_dir": data_dir, "settings": SETTINGS}
    topics, minimums = TOPICS, MINIMUMS
    if bucket is not None:
        topics, minimums = TOPICS | TIERED_TOPICS, MINIMUMS | BUCKET_MINIMUMS
        options |= {
            "settings": SETTINGS | BUCKET_SETTINGS,
            "remote_dir": f"s3://{bucket.make_bucket('chaos')}/log",
            "storage_options": bucket.options,
        }
    with _cluster(in_spark, options) as cluster, _watching(journal), _status(cluster) as status:
        keyed_topic = {KEYED: (KEYED_PARTITIONS, CONFIGS)}
        logs = _create_topics(cluster, journal, history, topics)
        chain_topic = {OUTPUT: (OUTPUT_PARTITIONS, {"min.insync.replicas": "2"})}
        _create_topics(cluster, journal, history, keyed_topic | chain_topic)
        load = Load(bootstrap=cluster.bootstrap_servers, logs=logs, history=history)
        keyed = KeyedLoad(load=load, journal=journal)
        groups = Groups(load, journal, _chance(seed, "groups"))
        say = partial(_say, history.now_ms, history)
        troubles = Troubles(
            processes=ClusterProcesses(data_dir),
            journal=journal,
            history=history,
            chance=_chance(seed, "troubles"),
            over=threading.Event(),
            trash=folder / "trash",
            bound=FaultBound(min_isr),
            say=say,
            bucket=bucket,
        )
        added = AddedBroker(cluster=cluster, brokers=BROKERS + 1, over=troubles.over, say=say)
        with groups.running():
            _play(load, keyed, groups, troubles, added, minutes, seed)
            say("all clients have ended, except for the groups")
            found = _heal(cluster, journal, load)
            say("every partition works, with all its replicas")
            drain(load, groups.names)
            say("the groups have read everything")
            found += [f"transactions: {text}" for text in unsettled(cluster.bootstrap_servers)]
            found += [
                f"chain: {text}" for text in chain_verdict(ends_of_logs(load), read_output(load))
            ]
            say("the output of the chain was read")
        for partition in range(KEYED_PARTITIONS):
            read_passage(keyed, partition)
        final_logs = read_logs(cluster.bootstrap_servers, logs)
        status.look()
    say("the cluster has stopped")
    journal.catch_up()
    final = FinalState(
        logs=final_logs,
        replicas=tuple(replicas_of(data_dir, final_logs, TIERED_TOPICS)),
        journal=tuple(journal.commits),
        partition_dirs=partition_dirs_of(data_dir),
    )
    counters = journal.counters + troubles.counters + load.counters + totals(status, COUNTED)
    found += violations(history, final)
    found += [f"offsets_forward: {text}" for text in offsets_forward.check(history, final)]
    found += [f"compaction: {text}" for text in _keyed_findings(keyed, data_dir)]
    found += [f"clients: {text}" for text in load.complaints]
    if found:
        history.write(folder / HISTORY)
    return Verdict(found=found, counters=counters, minimums=minimums)


def _keyed_findings(keyed: KeyedLoad, data_dir: Path) -> list[str]:
    replicas = tuple(replicas_on(data_dir))
    passages = [*keyed.passages, *(as_passage(replica, keyed.now_ms) for replica in replicas)]
    return keyed_verdict(keyed.writes, passages, replicas)


def _say(began_ms: int, history: SharedHistory, text: str) -> None:
    print(f"{(history.now_ms - began_ms) / 1000:6.1f} s  {text}", flush=True)


@contextmanager
def _cluster(in_spark: bool, options: Mapping[str, Any]) -> Iterator[Cluster]:
    if not in_spark:
        with start_processes(BROKERS, **options) as cluster:
            yield cluster
        return
    spark = create_session(MASTER, BROKERS, "chaos")
    try:
        with start(spark, BROKERS, **options) as cluster:
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


def _create_topics(
    cluster: Cluster,
    journal: JournalWatch,
    history: SharedHistory,
    topics: Mapping[str, tuple[int, Mapping[str, str]]],
) -> list[LogId]:
    """Topics by name, with their partitions and configs."""
    logs: list[LogId] = []
    for name, (partitions, configs) in topics.items():
        op = history.new_op()
        history.record(
            TopicCreateInvoked(
                op=op, topic=name, configs=tuple(configs.items()), partitions=partitions
            )
        )
        cluster.create_topic(name, partitions, replication_factor=BROKERS, configs=configs)
        topic = journal.catch_up().topics[name]
        leaders = tuple(topic.partitions[number].leader for number in range(partitions))
        history.record(TopicCreated(op=op, topic=name, topic_id=topic.topic_id, leaders=leaders))
        logs += [LogId(name, topic.topic_id, number) for number in range(partitions)]
    return logs


def _play(
    load: Load,
    keyed: KeyedLoad,
    groups: Groups,
    troubles: Troubles,
    added: AddedBroker,
    minutes: float,
    seed: int,
) -> None:
    """Clients and troubles for so long; returns when all of them have ended."""
    reads_s = max(1.0, 60 * minutes / OFFSET_READS_MAX)
    clients: dict[str, Callable[[], None]] = {
        **{name: partial(CLIENTS[name], load, name, _chance(seed, name)) for name in CLIENTS},
        "offsets": partial(read_offsets, load, groups.names, reads_s),
        "keyed-producer": partial(write_keys, keyed, _chance(seed, "keyed-producer")),
        "keyed-reader": partial(read_keys, keyed),
    }
    client_threads = [
        threading.Thread(target=run_client, args=(load, name, client), name=name)
        for name, client in clients.items()
    ]
    trouble_threads = [
        threading.Thread(target=troubles.run, name="troubles"),
        threading.Thread(target=groups.run_troubles, args=(troubles.over,), name="members"),
    ]
    growth = threading.Thread(
        target=added.run, args=(_chance(seed, "growth"), 60 * minutes), name="growth", daemon=True
    )
    for thread in (*client_threads, *trouble_threads, growth):
        thread.start()
    try:
        troubles.over.wait(60 * minutes)
    finally:
        troubles.over.set()
        for thread in trouble_threads:
            thread.join()
        load.over.set()
        for thread in client_threads:
            thread.join()
    growth.join(GROW_SECONDS_MAX)
    if not added.grown.is_set():
        load.complaints.append(f"the cluster has not grown: {added.failures[-1:]}")


def _chance(seed: int, name: str) -> random.Random:
    return random.Random(f"{seed}/{name}")


def _heal(cluster: Cluster, journal: JournalWatch, load: Load) -> list[str]:
    """Wait until all is well, and try every partition.  Returns what is wrong with the brokers."""
    history, began = load.history, load.history.now_ms
    history.record(Healed())
    _await_whole(journal)
    cluster.rebalance(progress=False)
    _await_whole(journal)
    image = journal.catch_up()
    for log in load.logs:
        state = image.topics[log.topic].partitions[log.partition]
        missing = tuple(sorted(set(state.replicas) - set(state.isr)))
        history.record(InSync(log=log, took_ms=history.now_ms - began, missing=missing))
        asked = history.now_ms
        error = probe(load, log)
        history.record(Probed(log=log, took_ms=history.now_ms - asked, error=error))
    return [f"brokers: {text}" for text in missing_replicas(image, BROKERS + 1)]


def _await_whole(journal: JournalWatch) -> None:
    end = time.monotonic() + HEAL_SECONDS_MAX
    while not journal.is_whole() and time.monotonic() < end:
        time.sleep(LOOK_S)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="chaos_run.py", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("spark", "process"), default="spark")
    parser.add_argument("--bucket", action="store_true", help="with a tiered topic (versitygw)")
    parser.add_argument("--keep", action="store_true", help="keep the folder of a run that failed")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="sparklog-chaos-"))
    logging.basicConfig(filename=folder / "launcher.log", level=logging.INFO, format=LOG_FORMAT)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    began = time.monotonic()
    verdict = Verdict(found=["the run did not come to its end"])
    bucket = S3Server(require_binary(), folder / "s3") if options.bucket else None
    try:
        verdict = run(
            folder,
            minutes=options.minutes,
            seed=options.seed,
            in_spark=options.engine == "spark",
            bucket=bucket,
        )
    finally:
        if bucket is not None:
            bucket.stop()
        if options.keep and verdict.found:
            print(f"what is left is in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    for name, number in sorted(verdict.counters.items()):
        print(f"{number:12,} {name}")
    print(f"seed {options.seed}, {time.monotonic() - began:.0f} s")
    found = Counter(line[:LINE_MAX] for line in verdict.found)
    for line, times in [*found.items()][:LINES_MAX]:
        print(line if times == 1 else f"{line} ({times} times)")
    for line in verdict.neglected(options.minutes):
        print(line)
    return 1 if verdict.found or verdict.neglected(options.minutes) else 0


if __name__ == "__main__":
    sys.exit(main())
