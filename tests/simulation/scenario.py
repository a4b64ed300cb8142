"""One run: what a seed makes of a cluster, its clients and its troubles, and the verdict on it.

Owns: the choice of everything from the seed, and the order of a run.  Must not know what a workload
does or what a checker looks for.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from sparklog.driver.control_plane.control_plane import ControlPlane
from sparklog.executors.broker import Broker
from tests.simulation.bugs import planted
from tests.simulation.checkers import violations
from tests.simulation.events import ClusterBegun
from tests.simulation.exercised import count_journal
from tests.simulation.final_state import FinalState
from tests.simulation.history import History
from tests.simulation.workloads import (
    chains,
    closest,
    collect,
    commits,
    committed_readers,
    compacted,
    compaction_sight,
    consume,
    coordinator_crashes,
    cut_readers,
    delete_records,
    ending,
    follow,
    group_requests,
    groups,
    idempotent,
    late_requests,
    leaving,
    library,
    losing,
    nemesis,
    observe,
    produce,
    rejoining,
    scaling,
    settings,
    stranding,
    tier_sight,
    tiered,
    times,
    topics,
    transaction_sight,
    transactional,
    transactions,
    unclean_takeovers,
    wiping,
)
from tests.simulation.workloads.scene import Scene
from tests.simulation.world import World

Workload = Callable[[Scene, str, random.Random], Coroutine[Any, Any, None]]

#: Always there, and there in most runs.
STEADY: Mapping[str, Workload] = {
    "plain": produce.run,
    "idempotent": idempotent.run,
    "reader": consume.run,
    "follower": consume.run,
}
OFTEN: Mapping[str, Workload] = {
    "library": library.run,
    "consumer": follow.run,
    "topics": topics.run,
    "settings": settings.run,
    "cutter": delete_records.run,
}
#: There in clusters with several brokers, and where a topic has unclean elections; chosen from a
#: stream of their own, so that other runs stay as they were.
RARE: Mapping[str, nemesis.Fault] = {
    "scaling": scaling.run,
    "stranding": stranding.run,
    "rejoining": rejoining.run,
    "losing": losing.run,
}
#: Those of both that may be there beside unclean takeovers: they end no broker.
BESIDE_TAKEOVERS: Sequence[str] = ("disks", "network", "controller")
#: There where topics are compacted, in place of those that are there often.
COMPACTED: Mapping[str, Workload] = {
    "keyed": compacted.write,
    "keyed-idempotent": compacted.write_idempotently,
    "transactions": transactions.run,
    "tables": compacted.read_tables,
    "seldom": compacted.read_seldom,
}
#: There where there are transactions, likewise.
TRANSACTIONAL: Mapping[str, Workload] = {
    "input": transactional.feed,
    "transactional": transactional.run,
    "chain": chains.run,
    "committed": committed_readers.run,
    "cuts": cut_readers.run,
}
#: A topic that would rather lose records than wait, for others and for replicas in sync.
UNCLEAN: Mapping[str, str] = {
    "unclean.leader.election.enable": "true",
    "min.insync.replicas": "1",
}
#: How many of the seeds have consumer groups; a stream of their own leaves the others as they were.
GROUPS_SHARE = 0.3
#: How many have compacted topics, likewise.
COMPACTED_SHARE = 0.1
#: How many of the others have transactions, likewise.
TRANSACTIONS_SHARE = 0.25
#: Seeds from here on have tiered topics; all others stay as they were.
TIERED_FROM = 1_000_000
#: Tiered seeds from here on also look up times, and some lose all replicas of partitions; the
#: seeds below stay as they were.
WIPED_FROM = 1_010_000
#: Tiered seeds from here on also have a tiered topic with unclean elections, of which new leaders
#: lack what the bucket has, and few other troubles; the seeds below stay as they were.
UNCLEAN_FROM = 1_100_000
#: How many of those between lose all replicas of partitions.
WIPED_SHARE = 0.6
#: How many of them have transactions.
TIERED_TRANSACTIONS_SHARE = 0.4
#: How many of their topics are tiered.
TIERED_TOPICS_SHARE = 0.75
#: How many of them have a topic that leaves the bucket, if one may.
LEAVING_SHARE = 0.7
#: Virtual seconds of trouble.
LENGTH_S = (6.0, 14.0)
#: Virtual seconds within which clients notice that a run is over.
WIND_UP_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``found``: what is wrong; nothing else matters then than ``trace``."""

    seed: int
    found: tuple[str, ...]
    counters: Counter[str]
    trace: tuple[str, ...]


def has_tiered_topics(seed: int) -> bool:
    return seed >= TIERED_FROM


def has_compacted_topics(seed: int) -> bool:
    """A topic cannot be both, and a seed is not."""
    is_chosen = random.Random(f"{seed}/compacted").random() < COMPACTED_SHARE
    return is_chosen and not has_tiered_topics(seed)


def has_transactions(seed: int) -> bool:
    chance = random.Random(f"{seed}/transaction state")
    share = TIERED_TRANSACTIONS_SHARE if has_tiered_topics(seed) else TRANSACTIONS_SHARE
    return chance.random() < share and not has_compacted_topics(seed)


def loses_all_replicas(seed: int) -> bool:
    """Of a partition at a time, which the bucket survives."""
    chance = random.Random(f"{seed}/wiped")
    return WIPED_FROM <= seed < UNCLEAN_FROM and chance.random() < WIPED_SHARE


def has_unclean_takeovers(seed: int) -> bool:
    return seed >= UNCLEAN_FROM


def run(seed: int, *, bug: str | None = None) -> Verdict:
    """Everything that follows from a seed."""
    chance = random.Random(f"{seed}/scenario")
    brokers, settings = chance.choice((1, 2, 3, 3, 3, 4, 5)), _settings(chance)
    if has_unclean_takeovers(seed):
        brokers = max(3, brokers)
    group_chance = random.Random(f"{seed}/groups")
    with_groups = group_chance.random() < GROUPS_SHARE
    if with_groups:
        settings |= groups.settings(group_chance)
    with_compacted = has_compacted_topics(seed)
    if with_compacted:
        settings |= compacted.settings(random.Random(f"{seed}/compacted settings"))
    with_transactions = has_transactions(seed)
    if with_transactions:
        settings |= transactional.settings(random.Random(f"{seed}/transactional settings"))
    with_tiers = has_tiered_topics(seed)
    if with_tiers:
        settings |= tiered.settings(random.Random(f"{seed}/tiered settings"))
    world = World(seed, brokers=brokers, settings=settings, bug=bug, with_bucket=with_tiers)
    history = world.history = History(world.now_ms)
    scene = Scene(world=world, history=history)
    if with_tiers:
        tier_sight.watch(scene)
    found: list[str]
    with planted(bug), _remembered(scene):
        try:
            final = world.run(
                lambda world: _play(
                    scene,
                    chance,
                    with_groups=with_groups,
                    with_compacted=with_compacted,
                    with_transactions=with_transactions,
                )
            )
            found = violations(history, final)
        except Exception as error:
            found = [f"the run: {type(error).__name__}: {error}"]
    found += [f"the run: {text}" for text in world.unexpected]
    found += [
        f"scrub: broker {broker.options.broker_id} found damage where there is none"
        for broker in scene.brokers
        if broker.counters.damaged_ranges_found
    ]
    _count(scene)
    return Verdict(seed=seed, found=tuple(found), counters=world.counters, trace=tuple(world.trace))


def _settings(chance: random.Random) -> dict[str, str]:
    return {
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": str(chance.choice((1500, 2000, 6000))),
        "log.flush.offset.checkpoint.interval.ms": str(chance.choice((500, 3000, 60000))),
        "log.retention.check.interval.ms": str(chance.choice((500, 3000))),
        "replica.lag.time.max.ms": str(chance.choice((700, 1500, 4000))),
        "replica.fetch.backoff.ms": "300",
        "unclean.recovery.timeout.ms": str(chance.choice((1000, 20000))),
        "auto.create.topics.enable": "false",
        "log.index.size.max.bytes": "8192",
        "log.scrub.interval.ms": "2500",
    }


async def _play(
    scene: Scene,
    chance: random.Random,
    *,
    with_groups: bool,
    with_compacted: bool,
    with_transactions: bool,
) -> FinalState:
    world = scene.world
    recovery_ms = int(world.settings["unclean.recovery.timeout.ms"])
    scene.history.record(ClusterBegun(unclean_recovery_ms=recovery_ms))
    nemesis.watch_brokers(scene, world.stream("torn"))
    brokers = list(world.brokers)
    grows = chance.random() < 0.3 and not has_unclean_takeovers(world.seed)
    scene.later = tuple(brokers[1:][-chance.choice((1, 2)) :]) if grows else ()
    await world.start(later=scene.later)
    await world.client("setup").run(_create_topics(scene, chance))
    if with_compacted:
        creating = compacted.create_topics(scene, world.stream("compacted"))
        await world.client("setup").run(creating)
    if with_transactions:
        creating = transactional.create_topics(scene, world.stream("transactional"))
        await world.client("setup").run(creating)
    workloads = {**STEADY, **{name: w for name, w in OFTEN.items() if chance.random() < 0.8}}
    rare = world.stream("rare")
    rare_troubles = ["scaling"] * (rare.random() < 0.3 and len(brokers) > 1)
    rare_troubles += ["stranding"] * any(topic.unclean for topic in scene.topics)
    if rare.random() < 0.4 and len(brokers) > 1:
        workloads["follower"] = closest.run
    rare_troubles += ["rejoining"] * (rare.random() < 0.25 and len(brokers) > 1)
    rare_troubles += ["losing"] * (rare.random() < 0.35 and len(brokers) > 1)
    if with_groups:
        workloads["groups"] = groups.run
        workloads["commits"] = groups.commit_alone
    if with_compacted:
        workloads = {n: w for n, w in workloads.items() if n not in OFTEN} | COMPACTED
    if with_transactions:
        workloads = {n: w for n, w in workloads.items() if n not in OFTEN} | TRANSACTIONAL
    workloads |= _tier_clients(scene)
    scene.client_hosts += [f"client-{name}" for name in workloads]
    clients = [
        world.client(name).start(workload(scene, name, world.stream(f"workload {name}")))
        for name, workload in workloads.items()
    ]
    growth = world.loop.create_task(nemesis.growth(scene, world.stream("growth")))
    troubles = [name for name in nemesis.NEMESES if chance.random() < 0.6] or ["brokers"]
    troubles = _fitting([*troubles, *rare_troubles], world.seed)
    every_trouble = {**nemesis.NEMESES, **RARE}
    faults = [
        world.loop.create_task(every_trouble[name](scene, world.stream(f"nemesis {name}")))
        for name in troubles
    ]
    faults += map(world.loop.create_task, _own_faults(scene, with_transactions=with_transactions))
    looking = [world.loop.create_task(observe.run(scene))]
    if with_compacted:
        looking.append(world.loop.create_task(compaction_sight.run(scene)))
    world.note(f"clients {', '.join(workloads)}; troubles {', '.join(troubles)}")
    await world.sleep(chance.uniform(*LENGTH_S))
    scene.over = True
    world.note("winding up")
    await _ended([*faults, *clients, *looking, growth])
    await _heal(scene)
    await transactions.finish(scene)
    if with_transactions:
        await transaction_sight.settle(scene)
    await world.client("prober").run(ending.probe(scene, "prober"))
    if with_transactions:
        await chains.drain(scene)
        await transaction_sight.settle(scene)
    await groups.drain(scene)
    await scaling.finish_drains(scene)
    await ending.await_in_sync(scene)
    await ending.last_crash(scene, chance)
    await groups.read_offsets(scene)
    await tiered.settle(scene)
    if with_compacted:
        await world.client("tables").run(compacted.read_last(scene, "tables"))
        compaction_sight.look(scene)
    return await world.client("last").run(collect.collect(scene, "last"))


def _fitting(troubles: list[str], seed: int) -> list[str]:
    if not has_unclean_takeovers(seed):
        return troubles
    return [name for name in troubles if name in BESIDE_TAKEOVERS]


def _tier_clients(scene: Scene) -> dict[str, Workload]:
    found: dict[str, Workload] = {}
    if scene.world.seed >= WIPED_FROM:
        found["times"] = times.run
    if leaving.leaving_topics(scene) and scene.world.stream("leaving").random() < LEAVING_SHARE:
        found["leaving"] = leaving.run
    return found


async def _heal(scene: Scene) -> None:
    """Clients have ended; what they have left open may be lost before all is well again."""
    if loses_all_replicas(scene.world.seed):
        await wiping.wipe(scene, scene.world.stream("last wipe"))
    tiered.heal(scene)
    await ending.heal(scene)


def _own_faults(scene: Scene, *, with_transactions: bool) -> Iterator[Coroutine[Any, Any, None]]:
    """What goes wrong in runs with transactions, and with a bucket."""
    world = scene.world
    if with_transactions:
        yield coordinator_crashes.run(scene, world.stream("crashes"))
        yield late_requests.run(scene, world.stream("late requests"))
    if world.bucket is not None:
        yield tiered.trouble_bucket(scene, world.stream("nemesis bucket"))
    if loses_all_replicas(world.seed):
        yield wiping.run(scene, world.stream("nemesis wiping"))
    if has_unclean_takeovers(world.seed):
        yield unclean_takeovers.run(scene, world.stream("nemesis unclean takeovers"))


async def _create_topics(scene: Scene, chance: random.Random) -> None:
    rare = scene.world.stream("unclean")
    tiering = scene.world.stream("tiered") if scene.world.bucket is not None else None
    unclean = rare.choice(("flushed", "plain", "retained")) if rare.random() < 0.3 else ""
    taken_over = has_unclean_takeovers(scene.world.seed)
    if taken_over:
        unclean = rare.choice(("flushed", "plain"))
    async with await scene.world.cluster_client("setup") as cluster:
        for name, configs in (
            ("flushed", {"flush.messages": "1"}),
            ("plain", {}),
            ("retained", {"retention.bytes": "20000"}),
        ):
            small = {
                "segment.bytes": chance.choice(("1500", "6000", "1048576")),
                "index.interval.bytes": chance.choice(("50", "400", "4096")),
            }
            factor = scene.some_factor(chance)
            is_taken_over = taken_over and name == unclean
            if is_taken_over:
                factor = 3
            safe = {"min.insync.replicas": chance.choice("122")} if factor > 1 else {}
            if tiering is not None and (tiering.random() < TIERED_TOPICS_SHARE or is_taken_over):
                safe |= tiered.configs(tiering, retained=name == "retained")
            topic = await topics.create(
                scene,
                cluster,
                name,
                chance.choice((1, 1, 2)),
                {**configs, **small, **safe, **(UNCLEAN if name == unclean else {})},
                chance,
                factor,
            )
            assert topic is not None
            scene.topics.append(topic)


async def _ended(tasks: list["asyncio.Task[None]"]) -> None:
    """Raises what ended one of them."""
    done, late = await asyncio.wait(tasks, timeout=WIND_UP_S)
    for task in done:
        task.result()
    assert not late, f"still at work {WIND_UP_S:g} s after the end: {late}"


@contextmanager
def _remembered(scene: Scene) -> Iterator[None]:
    """Keep hold of every control plane and broker that is made."""

    class RememberedControlPlane(ControlPlane):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            scene.control_planes.append(self)

    class RememberedBroker(Broker):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            scene.brokers.append(self)

    with (
        patch("tests.simulation.hosts.ControlPlane", RememberedControlPlane),
        patch("tests.simulation.hosts.Broker", RememberedBroker),
        commits.noted(scene),
        transactions.confirmed() if not has_transactions(scene.world.seed) else nullcontext(),
        coordinator_crashes.planned(scene),
        transaction_sight.committed(scene),
        observe.high_watermarks(scene),
        compaction_sight.committed(scene),
        observe.stops(scene),
        observe.offline_replicas(scene),
        observe.images(scene),
        observe.deletions(scene),
        group_requests.watched(scene),
        tier_sight.starts(scene),
    ):
        yield


def _count(scene: Scene) -> None:
    counters = scene.world.counters
    counters["tiered_runs"] += scene.world.bucket is not None
    counters["wiped_runs"] += loses_all_replicas(scene.world.seed)
    counters["unclean_takeover_runs"] += has_unclean_takeovers(scene.world.seed)
    for broker in scene.brokers:
        counters["duplicates_refused"] += broker.counters.duplicates
        counters["recoveries_with_truncation"] += broker.counters.bytes_truncated > 0
        counters["truncations"] += broker.counters.truncations
        counters["coordinator_loads"] += sum(c.metrics.loads for c in broker.coordinators)
        counters["scrub_passes"] += broker.counters.scrub_passes
        counters["cleanings"] += broker.counters.logs_cleaned
        cleaned = broker.counters.cleaner_bytes_read - broker.counters.cleaner_bytes_written
        counters["bytes_compacted"] += max(0, cleaned)
        counters["cleanings_failed"] += broker.counters.cleanings_failed
        if broker.tiering is not None:
            counters["remote_reads"] += broker.tiering.manager.metrics.reads
    counters["fenced_controllers"] += counters["controllers_replaced"]
    counters.update(count_journal(scene.history))
