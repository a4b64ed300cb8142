"""Unclean recovery: the election when no replica is known to hold every acknowledged record.

Owns: the log ends that brokers report for leaderless partitions, and how long further reports are
waited for.  Must not know how a log end is found, or what the election does to the partition.

* When all last known complete replicas have stopped uncleanly, the one with the best log is
  elected: once all have reported, or ``unclean.recovery.timeout.ms`` after the first report.
* A topic with ``unclean.leader.election.enable`` elects the best log of all alive replicas as soon
  as these have reported, however incomplete their logs may be.
* For such a topic an offline replica is not waited for.  An offline replica is never elected,
  whatever was reported of it before.
* When every replica of a tiered partition has an empty log, and none is known to have had another
  one, only the bucket has records: the first replica is elected.  It takes over the end of the
  bucket before it leads.  While one replica is away, or has records, the partition waits: for that
  replica, for its replacement, or for an election on request.

The best log has the highest leader epoch in its last record, then the highest log end offset.  The
reason: a record that was acknowledged in one epoch is in the log of the leader of every later
epoch.

A report belongs to the leader epoch in which the partition has lost its leader.  Once another
leader has been elected, logs change, and reports of former epochs do not count, also when they
arrive late.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeAlias
from uuid import UUID

from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.controller.decision import Decision, Effect, WarnOperator
from sparklog.driver.control_plane.controller.partition_changes import PartitionChanges, Step, named
from sparklog.driver.control_plane.controller.partition_transitions import Rules, elect_unclean
from sparklog.driver.control_plane.controller.sessions import Sessions, check_broker_epoch
from sparklog.metadata import ClusterImage, PartitionImage
from sparklog.types import NO_LEADER_EPOCH, TopicPartition
from sparklog.wire.protocol.private import LogEnd, ReportLogEndsRequest, ReportLogEndsResponse

#: Topic id and partition.
PartitionKey: TypeAlias = tuple[UUID, int]


class _Report(NamedTuple):
    """One report.  ``end`` is the leader epoch of the last record and the log end offset."""

    end: tuple[int, int]
    broker_epoch: int
    current_leader_epoch: int

    @property
    def is_empty(self) -> bool:
        """Whether the log has never had a record."""
        leader_epoch, log_end_offset = self.end
        return leader_epoch == NO_LEADER_EPOCH or log_end_offset == 0


@dataclass(slots=True)
class _OfflinePartition:
    """A leaderless partition: its reports, and the brokers ``wanted`` since ``since_ms``."""

    reports: dict[int, _Report] = field(default_factory=dict)
    wanted: frozenset[int] = frozenset()
    since_ms: int = 0


class UncleanRecoveries:
    """The reports about leaderless partitions.

    They are kept in memory only: brokers report again to a controller that has just started.
    ``sessions`` knows which replicas are offline on alive brokers.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._offline: dict[PartitionKey, _OfflinePartition] = {}

    def add(self, image: ClusterImage, broker_id: int, broker_epoch: int, end: LogEnd) -> None:
        found = _find_offline(image, end.topic_id, end.partition)
        if found is None or broker_id not in found[1].replicas:
            return
        if end.current_leader_epoch != found[1].leader_epoch:
            return
        assert end.topic_id is not None
        offline = self._offline.setdefault((end.topic_id, end.partition), _OfflinePartition())
        offline.reports[broker_id] = _Report(
            (end.leader_epoch, end.log_end_offset), broker_epoch, end.current_leader_epoch
        )

    def best(self, image: ClusterImage, tp: TopicPartition) -> int | None:
        """The replica for an unclean election on request.

        That is the alive replica with the best reported log; without reports of records, an alive
        replica that is not offline and has not reported, preferably a last known complete one.
        None if there is no such replica.
        """
        topic = image.topics[tp.topic]
        state = topic.partitions[tp.partition]
        key = topic.topic_id, tp.partition
        offline = self._offline.get(key)
        reports = self._valid(image, key, state, offline) if offline else {}
        best = _best(reports, state.replicas)
        if best is None or reports[best].is_empty:
            by_hope = sorted(state.replicas, key=lambda b: b not in state.last_known)
            silent = (b for b in by_hope if b not in reports and self._works(image, key, b))
            best = next(silent, best)
        return best

    def recover(
        self,
        image: ClusterImage,
        changes: PartitionChanges,
        timeout_ms: int,
        now_ms: int,
        only: Collection[PartitionKey] | None,
    ) -> list[TopicPartition]:
        """Elect a leader where all awaited brokers have reported, or the wait is over.

        Returns:
            The partitions whose wait begins now.
        """
        waiting: list[TopicPartition] = []
        for key in list(self._offline) if only is None else self._offline.keys() & only:
            offline, found = self._offline[key], _find_offline(image, *key)
            if found is None:
                del self._offline[key]
                continue
            tp, state = found
            reports = self._valid(image, key, state, offline)
            works = partial(self._works, image, key)
            rules = replace(changes.rules(tp.topic), is_alive=works)
            wanted = _wanted(state, rules, reports)
            begins = wanted != offline.wanted
            if begins:
                offline.wanted, offline.since_ms = wanted, now_ms
            if wanted <= reports.keys() or now_ms - offline.since_ms >= timeout_ms:
                leader = _best(reports, [b for b in state.replicas if b in wanted])
                if leader is not None:
                    changes.change(tp, _electing(leader))
                    del self._offline[key]
            elif begins:
                waiting.append(tp)
        return waiting

    def _valid(
        self,
        image: ClusterImage,
        key: PartitionKey,
        state: PartitionImage,
        offline: _OfflinePartition,
    ) -> dict[int, _Report]:
        """The reports of running broker processes, of working logs, for the present epoch."""
        return {
            broker_id: report
            for broker_id, report in offline.reports.items()
            if self._works(image, key, broker_id)
            and image.brokers[broker_id].broker_epoch == report.broker_epoch
            and report.current_leader_epoch == state.leader_epoch
        }

    def _works(self, image: ClusterImage, key: PartitionKey, broker_id: int) -> bool:
        return image.is_alive(broker_id) and not self._sessions.has_failed(broker_id, *key)


def report_log_ends(
    image: ClusterImage,
    sessions: Sessions,
    recoveries: UncleanRecoveries,
    config: BrokerConfig,
    request: ReportLogEndsRequest,
    now_ms: int,
) -> Decision:
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    for end in request.ends:
        recoveries.add(image, broker.broker_id, broker.broker_epoch, end)
    reported = {(end.topic_id, end.partition) for end in request.ends if end.topic_id is not None}
    decision = recover(image, sessions, recoveries, config, now_ms, reported)
    return replace(decision, response=ReportLogEndsResponse())


def recover(
    image: ClusterImage,
    sessions: Sessions,
    recoveries: UncleanRecoveries,
    config: BrokerConfig,
    now_ms: int,
    only: Collection[PartitionKey] | None = None,
) -> Decision:
    """Recover all leaderless partitions that can be recovered now, or ``only`` some of them."""
    changes = PartitionChanges(
        image,
        config,
        in_controlled_shutdown=sessions.in_controlled_shutdown,
        failed_on=sessions.failed_on,
    )
    timeout_ms = config.unclean_recovery_timeout_ms
    waiting = recoveries.recover(image, changes, timeout_ms, now_ms, only)
    effects: list[Effect] = []
    if waiting:
        effects.append(
            WarnOperator(
                message="every replica that is known to be complete has stopped uncleanly; the "
                f"others of them are waited for up to {timeout_ms} ms: {named(waiting)}"
            )
        )
    return Decision(records=changes.records(), effects=(*effects, *changes.effects()))


def _electing(leader: int) -> Step:
    return lambda state, rules: elect_unclean(state, leader, rules)


def _wanted(state: PartitionImage, rules: Rules, reports: Mapping[int, _Report]) -> frozenset[int]:
    """The brokers whose reports the election waits for; empty if no election is to be held."""
    if rules.unclean:
        return frozenset(filter(rules.is_alive, state.replicas))
    nobody_is_safe = not state.isr and not state.eligible
    if nobody_is_safe and any(broker_id in reports for broker_id in state.last_known):
        return frozenset(state.last_known)
    empty = [broker_id for broker_id, report in reports.items() if report.is_empty]
    if (
        rules.tiered
        and not {*state.isr, *state.eligible, *state.last_known}
        and (set(empty) >= set(state.replicas))
    ):
        return frozenset(state.replicas)
    return frozenset()


def _best(reports: Mapping[int, _Report], candidates: Iterable[int]) -> int | None:
    """The candidate with the best reported log, the first one of equals; None without reports."""
    reported = [broker_id for broker_id in candidates if broker_id in reports]
    return max(reported, key=lambda broker_id: reports[broker_id].end, default=None)


def _find_offline(
    image: ClusterImage, topic_id: UUID | None, partition: int
) -> tuple[TopicPartition, PartitionImage] | None:
    """A leaderless partition by its topic's id; None if it has a leader or does not exist."""
    topic = image.topic_by_id(topic_id)
    state = topic.partitions.get(partition) if topic is not None else None
    if topic is None or state is None or not state.offline:
        return None
    return TopicPartition(topic.name, partition), state
