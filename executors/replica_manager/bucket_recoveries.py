"""Recoveries of tiered logs that no replica has any more: a replica leads from the bucket's end.

Owns: which replica looks into the bucket before it leads, the looks that are under way, and the
report of what was lost.  Must not know how the bucket is read, or why the replica was elected.

A replica whose log is empty leads a partition that had leaders before in two cases: the partition
never had a record, or an unclean recovery has elected the replica because every log is lost.  In
the second case the records that were copied to the bucket are left.  If the replica led at once, it
would give their offsets to other records, and its manifest would drop them.  So the replica has no
role until the bucket has answered, however long that takes.

The log then begins where the manifest ends, in the new leader epoch, with the leader epochs and the
producer state of the last segment.  Records above that offset had not been copied.  They are lost,
and their offsets are given to other records, because the segments of a manifest must meet; clients
notice by the leader epoch (KIP-320).  Without any segment nothing has to meet, and the log begins
behind the offsets that are known to have been used.

A transaction may have ended behind the last segment: its records are in the bucket, its marker is
lost, and no coordinator writes another one.  The new leader appends the marker before anything
else, because a transaction that hangs would hold the last stable offset for ever.  The bucket knows
which of these transactions were aborted.  A replica that leads later, because the first leader has
crashed before the markers were replicated, does the same.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Container, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from sparklog.errors import ErrorCode, KafkaError, SparklogError
from sparklog.executors.partition import Effect, Partition, TieredStart
from sparklog.executors.replica_manager.truncations import Truncations
from sparklog.metadata import PartitionImage
from sparklog.plurals import counted
from sparklog.types import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition

#: Looks at the same time.
AT_ONCE: Final = 16
#: Seconds between two looks into a bucket that does not answer, and between two lines about it.
RETRY_S: Final = 1.0
LOG_EVERY_S: Final = 60.0

T = TypeVar("T")

#: Where the records of a partition in the bucket end, for the leader of a leader epoch; None if
#: there never were any.  Raises SparklogError when the bucket does not answer, or has had a later
#: leader.
FindEnd: TypeAlias = Callable[[Partition, int], Awaitable[TieredStart | None]]

#: Which hanging transactions of a partition were aborted: producer ids and first offsets.  Raises
#: SparklogError when the bucket does not answer.
FindAborted: TypeAlias = Callable[[Partition], Awaitable[Container[tuple[int, int]]]]

logger = logging.getLogger(__name__)


async def no_bucket(partition: Partition, leader_epoch: int) -> TieredStart | None:
    """The ``FindEnd`` of a broker without a remote_dir.  Raises KafkaError."""
    raise _no_bucket(partition)


async def no_outcomes(partition: Partition) -> Container[tuple[int, int]]:
    """The ``FindAborted`` of a broker without a remote_dir.  Raises KafkaError."""
    raise _no_bucket(partition)


def _no_bucket(partition: Partition) -> KafkaError:
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"the records of {partition.topic_partition} may be in a remote_dir, and this cluster was "
        "started without one; start it with its remote_dir",
    )


@dataclass(slots=True, eq=False)
class _Look:
    """A look into the bucket for one partition that is to lead in one leader epoch."""

    partition: Partition
    leader_epoch: int
    task: "asyncio.Task[None] | None" = None
    is_answered: bool = False
    #: Where the lost log begins anew; None if nothing is in the bucket.
    end: TieredStart | None = None
    #: The hanging transactions that were aborted; None if the look was for a lost log.
    aborted: Container[tuple[int, int]] | None = None


@dataclass(slots=True)
class _Counts:
    recoveries: int = 0
    lost_offsets: int = 0
    transactions: int = 0


class BucketRecoveries:
    """The recoveries of one broker.

    Args:
        truncations: start a log anew.
        on_failure: called with a partition whose log could not be started anew.
        apply_answers: gives the partitions in ``answered`` their roles.
        carry_out: carries out the effects of markers.
        now_ms: the time of day.

    ``find_end`` and ``find_aborted`` are set by the tiering before the broker serves.
    """

    def __init__(
        self,
        truncations: Truncations,
        *,
        on_failure: Callable[[TopicPartition], None],
        apply_answers: Callable[[], Awaitable[object]],
        carry_out: Callable[[Iterable[Effect]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._truncations = truncations
        self._on_failure = on_failure
        self._apply_answers = apply_answers
        self._carry_out = carry_out
        self._now_ms = now_ms
        self.find_end: FindEnd = no_bucket
        self.find_aborted: FindAborted = no_outcomes
        #: The aborted ones among the hanging transactions that are to be ended in a leader epoch.
        self._aborted: dict[TopicPartition, tuple[int, Container[tuple[int, int]]]] = {}
        self._looks: dict[TopicPartition, _Look] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._lost_ends: dict[TopicPartition, int] = {}
        #: Leaderless partitions whose log here is not counted on: it was lost, or is behind.
        self._not_counted_on: set[TopicPartition] = set()
        self._counts = _Counts()

    @property
    def _has_bucket(self) -> bool:
        return self.find_end is not no_bucket

    @property
    def waiting(self) -> Collection[TopicPartition]:
        """The partitions that have no role before the bucket has answered."""
        return tuple(self._looks)

    @property
    def answered(self) -> bool:
        """Whether a partition may take its role now that the bucket has answered."""
        return any(look.is_answered for look in self._looks.values())

    def as_json(self) -> dict[str, Any]:
        """The part of NodeStatus about recoveries since the start of the broker."""
        return {
            "remote_recoveries": self._counts.recoveries,
            "remote_recoveries_lost_offsets": self._counts.lost_offsets,
            "remote_recoveries_waiting": len(self._looks),
            "remote_recoveries_transactions_ended": self._counts.transactions,
        }

    def note_lost(self, topic_partition: TopicPartition, end_offset: int) -> None:
        """Note that a lost log had offsets below ``end_offset``.

        The empty log in its place may be lost as well, before it leads.
        """
        known = self._lost_ends.get(topic_partition, NO_OFFSET)
        self._lost_ends[topic_partition] = max(known, end_offset)

    async def may_take_role(self, partition: Partition, state: PartitionImage) -> bool:
        """Whether the partition may take the role of ``state``; its log is started anew if needed.

        If not, a look into the bucket has begun, and the partition is among ``waiting``.
        """
        tp = partition.topic_partition
        if tp in self._aborted and self._aborted[tp][0] != state.leader_epoch:
            del self._aborted[tp]
        if self._may_be_due(partition, state):
            # The log is another one afterwards.
            await self._truncations.wait_for_truncation(tp)
        look = self._looks.pop(tp, None)
        if not self.is_due(partition, state):
            _abandon(look)
            if not state.offline:
                self._lost_ends.pop(tp, None)
                self._not_counted_on.discard(tp)
            elif partition.node_id not in {*state.isr, *state.eligible, *state.last_known}:
                self._not_counted_on.add(tp)
            return True
        if look is None or (look.partition, look.leader_epoch) != (partition, state.leader_epoch):
            _abandon(look)
            self._begin(partition, state.leader_epoch)
            return False
        if not look.is_answered:
            self._looks[tp] = look
            return False
        if look.aborted is not None:
            self._aborted[tp] = look.leader_epoch, look.aborted
            return True
        try:
            await self._go_on(look)
        except SparklogError as error:
            logger.error("%s cannot begin where the remote_dir ends: %s", tp, error)
            self._on_failure(tp)
            if partition.log.offline is None:
                self._begin(partition, state.leader_epoch, RETRY_S)
            return False
        if partition.hanging_transactions:
            self._begin(partition, state.leader_epoch)
            return False
        return True

    def role_taken(self, partition: Partition) -> None:
        """End the hanging transactions of a partition that leads since ``may_take_role``.

        What the disk refuses is tried again while the partition leads.
        """
        tp = partition.topic_partition
        leader_epoch, aborted = self._aborted.get(tp, (NO_LEADER_EPOCH, ()))
        if not partition.is_leader or partition.leader_epoch != leader_epoch:
            return
        ended = 0
        try:
            for each in partition.end_hanging_transactions(aborted, now_ms=self._now_ms()):
                ended += 1
                self._carry_out(each.effects)
        except KafkaError as error:
            logger.error("transactions of %s hang: %s", tp, error)
            self._on_failure(tp)
            if partition.log.offline is None:
                asyncio.get_running_loop().call_later(RETRY_S, self.role_taken, partition)
        else:
            del self._aborted[tp]
        self._counts.transactions += ended
        if ended:
            logger.warning(
                "%s in %s, whose markers are lost: the leader has ended them as the remote_dir "
                "says",
                counted(ended, "transaction"),
                tp,
            )

    async def close(self) -> None:
        """End all looks."""
        looks, self._looks = list(self._looks.values()), {}
        for look in looks:
            _abandon(look)
        await asyncio.gather(*(look.task for look in looks if look.task), return_exceptions=True)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Forget a partition that is not hosted any more."""
        _abandon(self._looks.pop(topic_partition, None))
        self._lost_ends.pop(topic_partition, None)
        self._not_counted_on.discard(topic_partition)
        self._aborted.pop(topic_partition, None)

    def is_due(self, partition: Partition, state: PartitionImage) -> bool:
        """Whether the partition must not lead as in ``state`` before the bucket has answered.

        A log that has had records remembers their leader epoch.  A topic that has left the bucket
        needs none.
        """
        return self._may_be_due(partition, state) and (
            _is_empty(partition) or bool(partition.hanging_transactions)
        )

    def _may_be_due(self, partition: Partition, state: PartitionImage) -> bool:
        """Whether a tiered partition takes the lead, in an epoch in which it does not lead yet."""
        config = partition.config
        return (
            (config.remote_storage_enable or (config.may_be_remote and self._has_bucket))
            and state.leader == partition.node_id
            and state.leader_epoch > 0  # a new topic has nothing in the bucket
            and partition.log.offline is None
            and not (partition.is_leader and partition.leader_epoch == state.leader_epoch)
        )

    def _begin(self, partition: Partition, leader_epoch: int, pause_s: float = 0.0) -> None:
        look = self._looks[partition.topic_partition] = _Look(partition, leader_epoch)
        look.task = asyncio.get_running_loop().create_task(self._run(look, pause_s))

    async def _run(self, look: _Look, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        partition = look.partition
        if _is_empty(partition):
            look.end = await self._ask(
                partition, lambda: self.find_end(partition, look.leader_epoch)
            )
        else:
            look.aborted = await self._ask(partition, lambda: self.find_aborted(partition))
        look.is_answered = True
        try:
            await self._apply_answers()
        except SparklogError as error:
            logger.error("%s: %s", look.partition.topic_partition, error)

    async def _ask(self, partition: Partition, find: Callable[[], Awaitable[T]]) -> T:
        now_s = asyncio.get_running_loop().time
        told_s: float | None = None
        while True:
            try:
                async with self._gate:
                    return await find()
            except SparklogError as error:
                if told_s is None or now_s() - told_s >= LOG_EVERY_S:
                    told_s = now_s()
                    tp = partition.topic_partition
                    logger.error("%s is not led before the remote_dir answers: %s", tp, error)
            except Exception:
                logger.exception("the look into the remote_dir for %s failed", partition)
            await asyncio.sleep(RETRY_S)

    async def _go_on(self, look: _Look) -> None:
        """Start the log where the bucket ends.  Raises SparklogError."""
        partition, found = look.partition, look.end
        tp = partition.topic_partition
        lost_end = self._lost_ends.get(tp, NO_OFFSET)
        bucket_end = 0 if found is None else found.offset
        start = found
        if start is None or start.log_start_offset == bucket_end:  # no segment has to meet the log
            begin = max(bucket_end, lost_end, partition.log.log_end_offset)
            start = TieredStart(begin, begin, (), None)
        if start.offset > partition.log.log_end_offset:
            await self._truncations.recover(partition, start)
            self._report(look, start, bucket_end, lost_end)
        elif tp in self._not_counted_on:  # otherwise this log is complete: it never had a record
            self._report(look, start, bucket_end, lost_end)
        self._lost_ends.pop(tp, None)
        self._not_counted_on.discard(tp)

    def _report(self, look: _Look, start: TieredStart, bucket_end: int, lost_end: int) -> None:
        lost_offsets = max(lost_end - bucket_end, 0)
        self._counts.recoveries += 1
        self._counts.lost_offsets += lost_offsets
        has_records = start.log_start_offset < bucket_end
        lost = "records that had not been copied are lost"
        if not has_records:
            lost = "any records that it had are lost"
        if lost_end > 0:  # 0 is what the checkpoints say of a log that they do not know
            lost = f"of the offsets that are known to have been used, {lost_offsets} are lost"
        if start.producer_snapshot is None and start.log_start_offset < start.offset:
            lost += (
                "; so is the state of producers: a batch that is sent again may be written twice"
            )
        logger.error(
            "unclean recovery of %s, of which no replica had a log: the remote_dir has %s; "
            "leader epoch %d begins at offset %d; %s",
            look.partition.topic_partition,
            f"offsets from {start.log_start_offset} up to {bucket_end}"
            if has_records
            else "no records of it",
            look.leader_epoch,
            start.offset,
            lost,
        )


def _is_empty(partition: Partition) -> bool:
    """Whether the log never had a record: otherwise it would remember the leader epoch."""
    log = partition.log
    return log.size == 0 and log.leader_epochs.latest_epoch == NO_LEADER_EPOCH


def _abandon(look: _Look | None) -> None:
    """End a look.  One that is answered may be the caller itself, and ends soon."""
    if look is not None and look.task is not None and not look.is_answered:
        look.task.cancel()
