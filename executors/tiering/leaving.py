"""A topic leaves the bucket (KIP-950): what is in the bucket only is deleted, the rest stays.

Owns: up to where the records go, and the order in which logs and manifest change.  Must not know
how other replicas are asked, or how a call to the bucket is made.

``remote.storage.enable`` was switched off with ``remote.log.delete.on.disable``.  Then the log
starts where the files of every replica have begun: at the highest local log start of all replicas,
in sync or not.  A replica that is not asked could lead later, and hide records that consumers have
seen.  So the leader waits for every replica.  Until then the bucket is read as before, and nothing
is copied.

1. All replicas tell their local log starts, which do not rise any more.
2. The log start moves to the highest of them, if it is replicated; the checkpoint has it first.
3. The manifest follows, and then loses all other segments in one commit.  They become garbage, as
   do segments that are too old.

Every step may be repeated, by this leader or by another one.  Only the last one cannot be taken
back, so once it has begun it is finished, even if the topic is tiered again: copies then begin at
the log start.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from sparklog.errors import SparklogError, StorageError
from sparklog.executors.partition import Partition
from sparklog.executors.tiering.leadership import Leadership
from sparklog.plurals import listed
from sparklog.remote_log.service import RemoteLogState
from sparklog.types import TopicPartition

#: Asks the other replicas of a partition for their local log starts; see ``LocalStarts``.
AskReplicas: TypeAlias = Callable[[Partition], Awaitable[Mapping[int, int | SparklogError]]]
#: Replicas that a message names.
_NAMED_MAX = 5


class Call(Protocol):
    """Calls a method of the remote log of a partition.  Raises SparklogError."""

    def __call__(self, led: Leadership, method: str, *args: Any) -> Awaitable[Any]: ...


class MissingReplicasError(SparklogError):
    """Replicas have not told where their files begin."""


class RemoteLeaving:
    """The leaving partitions that one broker leads.

    Args:
        call: calls the remote log.
        take_state: takes what a call has told.
        advance_log_start: moves the log start up.
        follow_log_start: tells the manifest where the log starts.
        tell: logs what is waited for, at most every few minutes.
        now_ms: the time of day.
    """

    def __init__(
        self,
        ask_replicas: AskReplicas,
        *,
        call: Call,
        take_state: Callable[[Leadership, RemoteLogState], Awaitable[None]],
        advance_log_start: Callable[[Leadership, int], Awaitable[None]],
        follow_log_start: Callable[[Leadership], Awaitable[None]],
        tell: Callable[[TopicPartition, SparklogError], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._ask_replicas = ask_replicas
        self._call = call
        self._take_state = take_state
        self._advance_log_start = advance_log_start
        self._follow_log_start = follow_log_start
        self._tell = tell
        self._now_ms = now_ms
        #: The partitions whose segments are being removed from the manifest, with the leader epoch.
        self._removing: dict[tuple[UUID, int], int] = {}

    def is_removing(self, led: Leadership) -> bool:
        """Whether segments may be removed from the manifest at any time, by a call whose answer was
        lost.

        Nothing in the bucket counts until this is over, also if the topic is tiered again.
        """
        return self._removing.get(_key(led)) == led.leader_epoch

    async def leave(self, led: Leadership) -> None:
        """Take the next steps, as far as they can be taken now.  Raises SparklogError."""
        if not self.is_removing(led) and await self._has_moved(led):
            self._removing[_key(led)] = led.leader_epoch
        if self.is_removing(led):
            await self._remove_all(led)

    async def _has_moved(self, led: Leadership) -> bool:
        """Move the log start; whether no replica needs the segments that are left now."""
        partition, log = led.partition, led.partition.log
        if not _segments(led) and log.local_log_start_offset <= log.log_start_offset:
            return False
        disable_count = log.remote_disable_count
        start = await self._common_start(partition)
        if start is None or start > partition.high_watermark:
            return False
        await self._advance_log_start(led, start)
        await self._follow_log_start(led)
        # The settings may have changed meanwhile, and back: replicas may have deleted files then.
        leaves = partition.config.leaves_remote_storage
        if not leaves or log.remote_disable_count != disable_count or not _segments(led):
            return False
        assert led.state is not None
        return start <= log.log_start_offset <= led.state.log_start_offset

    async def _common_start(self, partition: Partition) -> int | None:
        """The highest local log start of all replicas; None if it is not known."""
        answers = await self._ask_replicas(partition)
        missing = [f"{b} ({a})" for b, a in answers.items() if isinstance(a, SparklogError)]
        if missing:
            self._tell(
                partition.topic_partition,
                MissingReplicasError(
                    "the topic leaves the remote_dir once every replica has told where its files "
                    f"begin; no answer from broker {listed(missing, _NAMED_MAX)}"
                ),
            )
            return None
        state = partition.state
        if state is None or set(state.replicas) != {*answers, partition.node_id}:
            return None
        starts = [each for each in answers.values() if isinstance(each, int)]
        return max((partition.log.local_log_start_offset, *starts))

    async def _remove_all(self, led: Leadership) -> None:
        state = led.state
        assert state is not None
        if state.segments:
            end = state.end_offset
            last = await self._call(led, "segments_between", end - 1, end)
            if not last:
                raise StorageError("the segments have left the manifest meanwhile")
            args = led.leader_epoch, last[-1].segment_id, self._now_ms()
            state = await self._call(led, "remove_segments", *args)
        if not state.segments:
            del self._removing[_key(led)]
        await self._take_state(led, state)


def _key(led: Leadership) -> tuple[UUID, int]:
    return led.partition.topic_id, led.partition.topic_partition.partition


def _segments(led: Leadership) -> int:
    return 0 if led.state is None else led.state.segments
