"""The failed logs of this broker: why each failed, and when a lost log may be replaced.

Owns: the reasons, and the rule that says when the rest of a lost log may be renamed.  Must not know
files, threads or the network.

A log whose files vanished or changed, or that is damaged, is *lost*.  The controller is told, and
takes the replica out of every set from which leaders come, if another replica can lead.  Once the
cluster image shows that this was done after the loss, nothing depends on the rest of the log any
more, and the broker copies the leader's log.  Where no other replica can lead, the rest is kept.

A lost log is *gone* if no log file is left of it, or if ``lost.logs.accept`` accepts its loss.  The
controller takes such a replica of a tiered partition out of every set even if no other can lead.
Then the broker makes an empty log in its place, and reports that (``log_end_reports``).  So it does
if nothing is left of any of several replicas of another partition, which an unclean election may
let one of them lead then.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from uuid import UUID

from sparklog.errors import (
    ChangedFileError,
    CorruptLogError,
    DamagedLogError,
    GoneLogError,
    LostLogError,
    SparklogError,
)
from sparklog.metadata import ClusterImage, PartitionImage
from sparklog.types import NO_LEADER_EPOCH, NO_NODE, TopicPartition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedLog:
    """Why a replica does not work.

    ``lost`` means that the log of another replica is to be copied, ``gone`` that there is nothing
    left to save.  ``leader_epoch`` is the highest leader epoch that this broker knew when the log
    failed.
    """

    topic_id: UUID
    error: SparklogError
    lost: bool
    gone: bool
    leader_epoch: int


def means_loss(error: SparklogError) -> bool:
    """Whether a log that failed with this error will not work again after a restart either."""
    return isinstance(error, LostLogError | ChangedFileError | CorruptLogError | DamagedLogError)


class FailedLogs:
    """The failed logs of one broker, by partition."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._failed: dict[TopicPartition, FailedLog] = {}

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._failed

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(tuple(self._failed))

    def __len__(self) -> int:
        return len(self._failed)

    def get(self, topic_partition: TopicPartition) -> FailedLog | None:
        return self._failed.get(topic_partition)

    def add(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        error: SparklogError,
        state: PartitionImage | None,
        *,
        is_tiered: bool = False,
    ) -> None:
        """Note a failure in place of an earlier one.  ``state`` is the partition in the image."""
        gone = isinstance(error, GoneLogError)
        self._failed[topic_partition] = FailedLog(
            topic_id=topic_id,
            error=error,
            lost=means_loss(error),
            gone=gone,
            leader_epoch=NO_LEADER_EPOCH if state is None else state.leader_epoch,
        )
        remedy = ""
        if gone and is_tiered:
            remedy = (
                "; it is copied anew once another replica leads; if no replica has a log, it goes "
                "on behind what is in the remote_dir"
            )
        elif means_loss(error):
            remedy = _remedy(topic_partition, state, self._node_id)
        logger.error("%s is offline: %s%s", topic_partition, error, remedy)

    def remove(self, topic_partition: TopicPartition) -> FailedLog | None:
        """Forget the failure, because the replica works again or is not hosted any more."""
        return self._failed.pop(topic_partition, None)

    def errors(self) -> dict[TopicPartition, SparklogError]:
        """The failures by partition."""
        return {tp: failed.error for tp, failed in self._failed.items()}

    def replaceable(self, image: ClusterImage) -> list[TopicPartition]:
        """The lost logs that may be replaced by copies now."""
        states = ((tp, image.partition(tp)) for tp in self._failed)
        return [tp for tp, state in states if state is not None and self.may_copy(tp, state)]

    def given_up(
        self, image: ClusterImage, is_tiered: Callable[[str], bool]
    ) -> list[TopicPartition]:
        """The gone logs of partitions that have no leader, because the controller counts on none of
        these logs any more.

        If no bucket has its records either, a partition is given up only if the controller counts
        on no replica at all.  What an only replica held is not replaced.
        """
        states = ((tp, image.partition(tp)) for tp in self._failed)
        return [
            tp
            for tp, state in states
            if state is not None
            and self._is_given_up(tp, state)
            and (is_tiered(tp.topic) or (len(state.replicas) > 1 and not _known(state)))
        ]

    def accept(self, topic_partition: TopicPartition) -> None:
        """The operator accepts the loss of what is left of a lost log."""
        failed = self._failed[topic_partition]
        self._failed[topic_partition] = replace(failed, gone=True)

    def without_other_replica(self, image: ClusterImage) -> list[TopicPartition]:
        """The lost logs of partitions of which no other broker has a replica."""
        states = ((tp, image.partition(tp)) for tp, failed in self._failed.items() if failed.lost)
        own = (self._node_id,)
        return [tp for tp, state in states if state is not None and state.replicas == own]

    def is_lost(self, topic_partition: TopicPartition) -> bool:
        failed = self._failed.get(topic_partition)
        return failed is not None and failed.lost

    def is_gone(self, topic_partition: TopicPartition) -> bool:
        failed = self._failed.get(topic_partition)
        return failed is not None and failed.gone

    def is_new_failure(self, topic_partition: TopicPartition, error: SparklogError) -> bool:
        """Whether the failure must be added, because it is not known yet.

        A failure is new if it is the log's first one, or a worse one than before: a loss, or the
        loss of everything.
        """
        failed = self._failed.get(topic_partition)
        return (
            failed is None
            or (means_loss(error) and not failed.lost)
            or (isinstance(error, GoneLogError) and not failed.gone)
        )

    def may_copy(self, topic_partition: TopicPartition, state: PartitionImage) -> bool:
        """Whether the controller has given up this replica's log, and another replica leads.

        A leader epoch that began before the loss does not prove it: its leader may still count
        what this replica had fetched, and take it into the ISR.
        """
        failed = self._failed.get(topic_partition)
        if failed is None or not failed.lost or state.leader in (NO_NODE, self._node_id):
            return False
        return state.leader_epoch > failed.leader_epoch and self._is_out(state)

    def _is_given_up(self, topic_partition: TopicPartition, state: PartitionImage) -> bool:
        """Whether the controller counts on this replica no more, which has no leader to follow.

        It may have counted on it no more before the loss already.  The leader epoch of a partition
        without a leader has none that may still count what this replica had fetched.
        """
        return self._failed[topic_partition].gone and state.offline and self._is_out(state)

    def _is_out(self, state: PartitionImage) -> bool:
        """Whether the controller has taken the replica out of every set."""
        return self._node_id not in _known(state)


def _known(state: PartitionImage) -> tuple[int, ...]:
    """The replicas that the controller counts on."""
    return (*state.isr, *state.eligible, *state.last_known)


def _remedy(topic_partition: TopicPartition, state: PartitionImage | None, node_id: int) -> str:
    """What the operator can do about the loss of this replica's log."""
    if state is None:
        return ""
    if state.replicas == (node_id,):
        return (
            f"; this is the only replica, and what it held is not replaced by an empty log: put "
            f"the files back and restart broker {node_id}, or give the records up with its setting "
            f"lost.logs.accept={topic_partition}"
        )
    return (
        "; it is copied anew once another replica leads; if none can, `sparklog elect-leaders "
        f"--unclean` lets one lead that may lack records: {list(state.replicas)} have replicas"
    )
