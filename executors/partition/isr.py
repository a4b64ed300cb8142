"""Which replicas of a partition are in sync, as its leader sees it, and how that is to change.

Owns: the followers' progress, the ISR that the controller has committed, the one change to it that
is asked for (KIP-497), and how far the high watermark may go for it all.  Must not know logs,
requests or clocks.

Until a change is known to have been refused, it may have been made: the high watermark waits for
the *maximal* ISR, the committed one together with those who are to join it; who is to leave stays
until the controller has said so.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from sparklog.errors import ErrorCode
from sparklog.executors.partition.follower_progress import NEVER_MS, FollowerProgress
from sparklog.executors.partition.outcomes import IsrProposal
from sparklog.metadata import PartitionImage
from sparklog.types import NO_BROKER_EPOCH, NO_OFFSET

#: The epoch of a broker that is alive, -1 where that is not known; None of one that is not alive.
LiveEpoch: TypeAlias = Callable[[int], int | None]

#: How long a leader waits after the controller has refused a change to the ISR.
RETRY_MS = 500
#: Refusals that say for certain that nothing was changed.
_NOT_MADE = (
    ErrorCode.INELIGIBLE_REPLICA,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
)
#: Refusals that say that this leader is behind the controller: the image will tell.
_BEHIND = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class IsrState:
    """Of a partition that this node leads; empty while it does not."""

    __slots__ = (
        "_followers",
        "_lag_time_max_ms",
        "_live_epoch",
        "_maximal",
        "_min_isr",
        "_node_id",
        "_now_ms",
        "_overtaken",
        "_pending",
        "_quiet_until_ms",
        "_state",
        "needed",
        "too_few",
    )

    def __init__(self, node_id: int, lag_time_max_ms: int, live_epoch: LiveEpoch) -> None:
        self._node_id = node_id
        self._lag_time_max_ms = lag_time_max_ms
        self._live_epoch = live_epoch
        self._state: PartitionImage | None = None
        self._min_isr = 1
        #: When something was last heard of followers, or asked about them.
        self._now_ms = 0
        self._followers: dict[int, FollowerProgress] = {}
        self._maximal: frozenset[int] = frozenset()
        self._pending: IsrProposal | None = None
        #: What is pending is answered, but the answer does not say what the ISR is.
        self._overtaken = False
        self._quiet_until_ms = NEVER_MS
        #: How many in-sync replicas there must be, as the controller counts them.
        self.needed = 1
        #: Whether the ISR is smaller: nothing is acknowledged then that waits for all (KIP-966).
        self.too_few = False

    @property
    def size(self) -> int:
        return len(self._state.isr) if self._state else 0

    @property
    def has_followers(self) -> bool:
        return bool(self._followers)

    @property
    def followers(self) -> Mapping[int, FollowerProgress]:
        return self._followers

    @property
    def maximal(self) -> frozenset[int]:
        """Who may count as in sync, without this node."""
        return self._maximal

    # role

    def lead(self, state: PartitionImage, min_isr: int, now_ms: int) -> None:
        """A leader epoch of this node begins: nothing is known of the others."""
        self.stop()
        self._now_ms = now_ms
        self.commit(state, min_isr)
        for replica_id in state.isr:
            if replica_id != self._node_id:
                self._followers[replica_id].caught_up_ms = now_ms

    def commit(self, state: PartitionImage, min_isr: int) -> None:
        """What the controller has decided, in the same leader epoch."""
        held = self._state
        if held is None or held.partition_epoch != state.partition_epoch:
            self._pending, self._overtaken, self._quiet_until_ms = None, False, NEVER_MS
        self._state, self._min_isr = state, min_isr
        known = self._followers
        self._followers = {i: known.get(i) or FollowerProgress() for i in self._others(state)}
        for replica_id in held.isr if held else ():
            if replica_id not in state.isr and replica_id in self._followers:
                self._followers[replica_id].expelled = True
        self._measure()

    def stop(self) -> None:
        """This node leads no more."""
        self._state = None
        self._followers = {}
        self._pending, self._overtaken, self._quiet_until_ms = None, False, NEVER_MS
        self._measure()

    # progress

    def record(
        self,
        replica_id: int,
        offset: int,
        log_start_offset: int,
        *,
        broker_epoch: int,
        leader_end: int,
        now_ms: int,
    ) -> bool:
        """A follower's fetch; whether its log start is news.

        Nothing is learnt from who has no replica, or from a process that has had a successor.
        """
        follower = self._followers.get(replica_id)
        if follower is None or broker_epoch < follower.broker_epoch:
            return False
        self._now_ms = now_ms
        started = follower.log_start_offset != log_start_offset
        follower.fetched(
            offset,
            log_start_offset,
            broker_epoch=broker_epoch,
            leader_end=leader_end,
            now_ms=now_ms,
        )
        return started

    def bound(self, own_end: int, leader_end: int) -> int:
        """Up to where everybody who counts has the log.

        Who has caught up and is about to join counts too: else the high watermark, which it must
        reach for that, would always be ahead of it while the ISR is a fast leader alone.
        """
        reached = own_end
        for replica_id, follower in self._followers.items():
            if follower.end_offset < reached and (
                replica_id in self._maximal
                or (
                    follower.is_about_to_join(leader_end, self._now_ms, self._lag_time_max_ms)
                    and self._is_alive(replica_id, follower)
                )
            ):
                reached = follower.end_offset
        return reached

    def starts(self, replica_ids: Iterable[int]) -> list[int]:
        """Where the followers' logs start; -1 of those that have not fetched."""
        known = (self._followers.get(replica_id) for replica_id in replica_ids)
        return [NO_OFFSET if one is None else one.log_start_offset for one in known]

    # changes to the ISR

    @property
    def proposal(self) -> IsrProposal | None:
        """What the controller is to be asked for, once more when there was no answer."""
        return None if self._overtaken else self._pending

    def consider_joining(self, replica_id: int, least_end: int, now_ms: int) -> bool:
        """After a fetch of this follower: whether there is a new proposal.

        Who joins has all up to ``least_end``: the high watermark, and where this epoch began.
        """
        if self._state is None or replica_id in self._state.isr or not self._may_propose(now_ms):
            return False
        return self._may_join(replica_id, least_end) and self._propose((), (replica_id,))

    def consider_all(self, leader_end: int, least_end: int, now_ms: int) -> bool:
        """Who lags leaves, who has caught up joins; whether there is a new proposal."""
        if self._state is None:
            return False
        self._now_ms = now_ms
        for follower in self._followers.values():
            # A fetch session says nothing of partitions where nothing happens.
            if follower.end_offset == leader_end:
                follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        if not self._may_propose(now_ms):
            return False
        isr, lag_ms = self._state.isr, self._lag_time_max_ms
        caught_up = {
            replica_id
            for replica_id, follower in self._followers.items()
            if follower.is_caught_up(leader_end, now_ms, lag_ms)
        }
        lagging = [i for i in self._followers if i in isr and i not in caught_up]
        # It may have all that is needed since long ago, and have stopped fetching.
        outside = [i for i in self._followers if i in caught_up and i not in isr]
        joining = [i for i in outside if self._may_join(i, least_end)]
        return bool(lagging or joining) and self._propose(lagging, joining)

    def refused(self, proposal: IsrProposal, error: ErrorCode, now_ms: int) -> None:
        """The controller has answered this proposal with an error; others ask again."""
        if proposal != self._pending:
            return
        if error in _NOT_MADE:
            self._pending = None
            self._quiet_until_ms = now_ms + RETRY_MS
            self._measure()
        elif error in _BEHIND:
            self._overtaken = True

    def check_invariants(self) -> None:
        if self._state is None:
            assert not self._followers
            assert self._pending is None
            return
        others = set(self._others(self._state))
        assert set(self._followers) == others
        assert set(self._state.isr) & others <= self._maximal <= others

    def _others(self, state: PartitionImage) -> list[int]:
        return [i for i in dict.fromkeys((*state.replicas, *state.isr)) if i != self._node_id]

    def _may_propose(self, now_ms: int) -> bool:
        return self._pending is None and now_ms >= self._quiet_until_ms

    def _may_join(self, replica_id: int, least_end: int) -> bool:
        follower = self._followers.get(replica_id)
        return (
            follower is not None
            and follower.end_offset >= least_end
            and self._is_alive(replica_id, follower)
        )

    def _is_alive(self, replica_id: int, follower: FollowerProgress) -> bool:
        """Whether who fetched is who is registered now (KIP-903)."""
        epoch = self._live_epoch(replica_id)
        return epoch is not None and epoch in (follower.broker_epoch, NO_BROKER_EPOCH)

    def _propose(self, leaving: Iterable[int], joining: Iterable[int]) -> bool:
        state = self._state
        assert state is not None
        isr = [*(i for i in state.isr if i not in leaving), *joining]
        self._pending = IsrProposal(
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            isr=tuple((i, self._epoch_of(i)) for i in isr),
        )
        self._measure()
        return True

    def _epoch_of(self, replica_id: int) -> int:
        if replica_id != self._node_id:
            return self._followers[replica_id].broker_epoch
        epoch = self._live_epoch(replica_id)
        return NO_BROKER_EPOCH if epoch is None else epoch

    def _measure(self) -> None:
        state, pending = self._state, self._pending
        isr = state.isr if state else ()
        joining = (replica_id for replica_id, _ in pending.isr) if pending else ()
        self._maximal = frozenset((*isr, *joining)) - {self._node_id}
        self.needed = state.required_isr(self._min_isr) if state else 1
        self.too_few = state is not None and len(isr) < self.needed
