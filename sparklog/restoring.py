"""Restoring a cluster from its journal and its remote_dir, after the loss of the brokers' disks.

Owns: ``restore``: what the journal says will be lost, the start on empty disks, the elections of
replicas that begin empty, and the report.  Must not know how a cluster is started, or how a replica
goes on behind the bucket.

Tiered partitions are recovered by controller and brokers themselves (``unclean_recoveries``,
``bucket_recoveries``): all that they need are brokers.  Of other topics the cluster has only the
names and settings.  They begin empty, which has to be accepted; so do the internal topics, which
hold the positions of consumer groups and the state of transactions.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from sparklog.client.admin import Admin
from sparklog.client.blocking import BlockingClient
from sparklog.cluster import start_in_spark
from sparklog.cluster_handle import Cluster
from sparklog.config import BrokerConfig, TopicConfig
from sparklog.driver.control_plane.journal_repair import (
    RepairError,
    Survey,
    locked_journal,
    require_no_controller,
    survey_journal,
)
from sparklog.errors import ErrorCode, SparklogError, StartError, StorageError
from sparklog.metadata import ClusterImage
from sparklog.metadata.topic_names import INTERNAL_TOPICS
from sparklog.remote_log.service import RemoteLogService
from sparklog.start_options import (
    Location,
    absolute_location,
    as_texts,
    check_whole_number,
    checked_storage_options,
)
from sparklog.storage_backends.registry import (
    open_backend,
    open_file_half,
    require_conditional_create,
)
from sparklog.types import NO_NODE, ElectionType, OffsetSpec, TopicPartition

__all__ = [
    "RestorePlan",
    "Restored",
    "RestoredTopic",
    "lead_all",
    "plan_restore",
    "restore",
    "restore_planned",
]

#: How long tiered partitions are waited for, and the time between two looks, in seconds.
RECOVERY_SECONDS_MAX: Final = 120.0
LOOK_SECONDS: Final = 0.2
#: How long brokers have to report the logs that are here after all, in seconds.
REPORT_SECONDS: Final = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTopic:
    """A topic after a restore.

    Args:
        topic: its name.
        partitions: the number of its partitions.
        tiered: whether its records were in the remote_dir.
        offsets: the number of offsets that can be read now, in all partitions.
        emptied: the partitions that begin empty: nothing is left of them, or they had no records.
        waiting: the partitions that have no leader yet; the brokers' logs say why.
    """

    topic: str
    partitions: int
    tiered: bool
    offsets: int
    emptied: int
    waiting: int

    @property
    def lost(self) -> str:
        """What is lost, as far as it is known."""
        if self.waiting:
            return "not known yet"
        if self.emptied == self.partitions:
            return "everything"
        if not self.emptied:
            return "what was not copied" if self.tiered else "nothing"
        lost = f"everything in {self.emptied} of {self.partitions} partitions"
        return f"{lost}, and what was not copied of the others" if self.tiered else lost


class Restored(NamedTuple):
    """The running cluster, and its topics in alphabetical order.

    ``unknown_topics`` are in the remote_dir, and the journal does not know them: it is an old copy,
    or lacks commits.  Nothing deletes their objects.
    """

    cluster: Cluster
    topics: tuple[RestoredTopic, ...]
    unknown_topics: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """What the journal says about the cluster: partitions by topic, and the number of brokers."""

    cluster_id: str
    #: Those of topics, and of deleted ones that the remote_dir still has something of.
    topic_ids: frozenset[UUID]
    brokers: int
    partitions: Mapping[str, int]
    tiered: frozenset[str]

    @property
    def not_copied(self) -> list[str]:
        """The topics of users that are not copied to the remote_dir."""
        return sorted(self.partitions.keys() - self.tiered - INTERNAL_TOPICS)

    def brokers_to_start(self, asked: int | None) -> int:
        """As many as the cluster had, or more if more are asked for."""
        return max(asked or 1, self.brokers)


def restore(
    spark: Any,
    brokers: int | None = None,
    *,
    data_dir: Location | list[Location],
    journal_dir: Location,
    remote_dir: Location,
    accept_loss: bool = False,
    **options: Any,
) -> Restored:
    """Start a cluster whose brokers have lost all disks from its journal and its remote_dir.

    See docs/restore.md.  Broker directories that are in ``data_dir`` nevertheless are used.

    Args:
        spark: As for ``start``.
        brokers: Number of brokers.  Default: as many as the cluster had, and never fewer.
        data_dir: The folder, or several, for the brokers' new logs.
        journal_dir: Where the cluster's journal is.
        remote_dir: Where the segments of its tiered topics are.
        accept_loss: Let topics that are not tiered begin empty.
        options: Further arguments of ``start``.

    Raises:
        StartError: There is no such cluster, it still runs, some topics are not tiered and their
            loss is not accepted, or the cluster cannot start; the message names the remedy.
        ConfigError: As for ``start``.
    """
    if brokers is not None:
        check_whole_number("brokers", brokers)
    plan = plan_restore(
        journal_dir,
        options.get("storage_options"),
        options.get("settings"),
        accept_loss=accept_loss,
    )
    return restore_planned(
        plan,
        partial(start_in_spark, spark),
        brokers=plan.brokers_to_start(brokers),
        data_dir=data_dir,
        journal_dir=journal_dir,
        remote_dir=remote_dir,
        **options,
    )


def restore_planned(plan: RestorePlan, start: Callable[..., Cluster], **options: Any) -> Restored:
    """Start the cluster of a plan on empty disks, and wait until its topics are back.

    Args:
        plan: what ``plan_restore`` has found.
        start: ``start_in_spark`` for a session, or ``start_on_this_machine``.
        options: Arguments of ``start``; ``brokers`` are those of ``plan.brokers_to_start``.

    Raises what ``start`` raises.
    """
    unknown = _unknown_topics(plan, options["remote_dir"], options.get("storage_options"))
    cluster = start(disks_are_lost=True, **options)
    return Restored(cluster, _finish(cluster, plan), unknown)


def _unknown_topics(
    plan: RestorePlan, remote_dir: Location, storage_options: Mapping[str, Any] | None
) -> tuple[UUID, ...]:
    """The topics that the remote_dir has and the journal does not know.  Raises StartError."""
    url = absolute_location("remote_dir", remote_dir)
    try:
        require_conditional_create(url)
        remote = RemoteLogService(open_backend(url, storage_options or {}), open_file_half)
        if remote.owner.name(plan.cluster_id) != plan.cluster_id:
            return ()  # the start will say what is wrong
        unknown = tuple(remote.unknown_topics(plan.topic_ids))
    except StorageError as error:
        raise StartError(f"remote_dir={url} cannot be used: {error}") from error
    if unknown:
        ids = ", ".join(map(str, unknown))
        log.warning("the journal does not know these topics of remote_dir=%s: %s", url, ids)
    return unknown


def plan_restore(
    journal_dir: Location,
    storage_options: Mapping[str, Any] | None,
    settings: Mapping[str, Any] | None,
    *,
    accept_loss: bool,
) -> RestorePlan:
    """Read the journal, and check that its cluster is dead and that what will be lost is accepted.

    A cluster that still runs has its disks: a restore would take its journal over and give empty
    directories to its brokers, so everything that was not copied would be lost.

    Raises ConfigError, StartError, StorageError.
    """
    url = absolute_location("journal_dir", journal_dir)
    opening = checked_storage_options(storage_options)
    texts = as_texts(settings)
    require_conditional_create(url)
    backend = open_backend(url, opening)
    _image_of(survey_journal(backend))  # refuses a wrong place before a lock file is made there
    try:
        with locked_journal(backend):
            survey = survey_journal(backend)
            require_no_controller(survey)
    except RepairError as error:
        raise StartError(str(error)) from error
    config = BrokerConfig.resolve(texts)
    plan = _plan_of(_image_of(survey), config)
    if plan.not_copied and not accept_loss:
        names = ", ".join(plan.not_copied)
        raise StartError(
            f"these topics are not copied to the remote_dir, so their records are lost: {names}; "
            "bring a disk back and start the cluster as usual, or accept the loss "
            "(accept_loss=True, --accept-loss): then they begin empty, or with what was copied once"
        )
    return plan


def _image_of(survey: Survey) -> ClusterImage:
    """The cluster of a journal that a control plane can start from.  Raises StartError."""
    url = survey.url
    if survey.image is None or not survey.starts:
        problem = "holds no journal" if survey.is_empty else "is damaged"
        raise StartError(f"journal_dir={url} {problem}; see `sparklog journal check {url}`")
    return survey.image


def _plan_of(image: ClusterImage, config: BrokerConfig) -> RestorePlan:
    tiered = (
        name
        for name in image.topics
        if TopicConfig.resolve(image.topic_overrides(name), config).copies_segments
    )
    return RestorePlan(
        cluster_id=image.cluster_id,
        topic_ids=frozenset(image.topics_by_id.keys() | image.remote_deletes.keys()),
        brokers=sum(broker.registered for broker in image.brokers.values()),
        partitions={topic.name: len(topic.partitions) for topic in image.topics.values()},
        tiered=frozenset(tiered),
    )


def _finish(cluster: Cluster, plan: RestorePlan) -> tuple[RestoredTopic, ...]:
    """Wait for the leaders, and make the report; an error stops the cluster again."""
    client = BlockingClient(cluster.bootstrap_servers)
    try:
        seconds = RECOVERY_SECONDS_MAX + client.timeout_s
        return client.run(lead_all(client.async_admin, plan), seconds)
    except BaseException:
        cluster.stop()
        raise
    finally:
        client.close()


async def lead_all(admin: Admin, plan: RestorePlan) -> tuple[RestoredTopic, ...]:
    """Wait until the partitions of the plan are led, and report on each topic.

    A tiered partition without records counts as begun empty, because its election cannot be seen:
    the controller holds it as soon as the brokers are there.
    """
    topics = list(plan.partitions)
    if not topics:
        return ()
    elected = await _elect_unclean(admin, [topic for topic in topics if topic not in plan.tiered])
    end = asyncio.get_running_loop().time() + RECOVERY_SECONDS_MAX
    starts: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    partitions = {
        TopicPartition(topic, number)
        for topic, count in plan.partitions.items()
        for number in range(count)
    }
    while partitions - ends.keys() and asyncio.get_running_loop().time() < end:
        missing = partitions - ends.keys()
        starts |= await _find(admin, missing, OffsetSpec.EARLIEST)
        ends |= await _find(admin, missing & starts.keys(), OffsetSpec.LATEST)
        await asyncio.sleep(LOOK_SECONDS if partitions - ends.keys() else 0)
    begun_empty = Counter(
        tp.topic
        for tp, offset in ends.items()
        if starts[tp] == offset and (tp in elected or tp.topic in plan.tiered)
    )
    waiting = Counter(tp.topic for tp in partitions - ends.keys())
    if waiting:
        names = ", ".join(sorted(waiting))
        log.error("partitions of %s are not led yet; the logs of the brokers say why", names)
    offsets: Counter[str] = Counter()
    for tp, offset in ends.items():
        offsets[tp.topic] += offset - starts[tp]
    return tuple(
        RestoredTopic(
            topic=topic,
            partitions=plan.partitions[topic],
            tiered=topic in plan.tiered,
            offsets=offsets[topic],
            emptied=begun_empty[topic],
            waiting=waiting[topic],
        )
        for topic in sorted(topics)
    )


async def _find(
    admin: Admin, partitions: set[TopicPartition], spec: OffsetSpec
) -> dict[TopicPartition, int]:
    """The offsets of those partitions whose leaders answer."""
    if not partitions:
        return {}
    try:
        found = await admin.find_offsets(dict.fromkeys(partitions, spec), timeout_s=5.0)
    except SparklogError as error:
        log.info("offsets are asked for again: %s", error)
        return {}
    return {tp: answer.offset for tp, answer in found.items()}


async def _elect_unclean(admin: Admin, topics: list[str]) -> set[TopicPartition]:
    """Elect leaders of the partitions of these topics that have none; returns these partitions.

    Where a complete replica is here after all, it leads without that.
    """
    dark = await _leaderless(admin, topics)
    if dark:
        await asyncio.sleep(REPORT_SECONDS)
        dark = await _leaderless(admin, topics)
    if not dark:
        return set()
    refusals = await admin.replicas.elect_leaders(dark, ElectionType.UNCLEAN)
    refused = {tp: error for tp, error in refusals.items() if error is not None}
    for tp, error in refused.items():
        if error.code != ErrorCode.ELECTION_NOT_NEEDED:
            log.error("%s gets no leader: %s", tp, error)
    return {tp for tp in dark if tp not in refused}


async def _leaderless(admin: Admin, topics: list[str]) -> list[TopicPartition]:
    described = await admin.replicas.describe(topics) if topics else {}
    return [tp for tp, each in described.items() if each.leader == NO_NODE]
