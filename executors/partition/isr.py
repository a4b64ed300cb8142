"""The ISR of a partition, as the leader of the partition sees it.

Owns: the state of the followers, the ISR that the controller has committed, the one pending change
of the ISR (KIP-497), and how far the high watermark may advance with all of them.  Must not know
logs, requests or clocks.

The controller may have made a pending change until the leader knows that it was refused. Therefore
the high watermark waits for the *maximal* ISR: the committed ISR and the replicas that are proposed
to join it. A replica that is proposed to leave stays until the cluster image shows the smaller ISR.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from sparklog.errors import ErrorCode
from sparklog.executors.partition.remote_replica import NEVER_MS, RemoteReplica
from sparklog.executors.partition.results import IsrProposal
from sparklog.metadata import PartitionImage
from sparklog.types import NO_BROKER_EPOCH, NO_OFFSET

#: The broker epoch of a live broker, -1 where it is not known; None for a broker that is not alive.
LiveEpoch: TypeAlias = Callable[[int], int | None]

#: How long a leader waits before its next proposal after the controller has refused a proposal.
RETRY_MS = 500
#: Errors after which it is certain that the controller has not changed the ISR.
_NOT_MADE = (
    ErrorCode.INELIGIBLE_REPLICA,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
)
#: Errors of a leader that is behind the controller; the next image brings the partition's state.
_BEHIND = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class JoiningLog(NamedTuple):
    """What the log of a follower must be to join the ISR.

    It goes up to ``least_end``: the high watermark, and the start of this leader epoch.  It starts
    at ``log_start_offset`` or above: records that DeleteRecords has deleted would be there again if
    the follower leads, which may have come back with an older log start.
    """

    least_end: int
    log_start_offset: int


class IsrState:
    """The ISR of a partition that this broker leads; empty while another broker leads it."""

    __slots__ = (
        "_is_outdated",
        "_lag_time_max_ms",
        "_live_epoch",
        "_maximal_isr",
        "_min_insync_replicas",
        "_next_proposal_ms",
        "_node_id",
        "_now_ms",
        "_pending",
        "_remote_replicas",
        "_state",
        "effective_min_isr",
        "under_min_isr",
    )

    def __init__(self, node_id: int, lag_time_max_ms: int, live_epoch: LiveEpoch) -> None:
        self._node_id = node_id
        self._lag_time_max_ms = lag_time_max_ms
        self._live_epoch = live_epoch
        self._state: PartitionImage | None = None
        self._min_insync_replicas = 1
        #: The time of the last fetch or check of the followers.
        self._now_ms = 0
        self._remote_replicas: dict[int, RemoteReplica] = {}
        self._maximal_isr: frozenset[int] = frozenset()
        self._pending: IsrProposal | None = None
        #: The pending proposal was answered, but the answer does not say what the ISR is.
        self._is_outdated = False
        self._next_proposal_ms = NEVER_MS
        #: How many in-sync replicas acks=all needs, as the controller counts them.
        self.effective_min_isr = 1
        #: Whether the ISR is smaller than that: the high watermark stands still (KIP-966).
        self.under_min_isr = False

    @property
    def size(self) -> int:
        return len(self._state.isr) if self._state else 0

    @property
    def has_remote_replicas(self) -> bool:
        return bool(self._remote_replicas)

    @property
    def remote_replicas(self) -> Mapping[int, RemoteReplica]:
        return self._remote_replicas

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The maximal ISR without this broker."""
        return self._maximal_isr

    # role

    def lead(self, state: PartitionImage, min_insync_replicas: int, now_ms: int) -> None:
        """Begin a leader epoch of this broker; the followers' state starts empty."""
        self.stop()
        self._now_ms = now_ms
        self.commit(state, min_insync_replicas)
        for replica_id in state.isr:
            if replica_id != self._node_id:
                self._remote_replicas[replica_id].last_caught_up_ms = now_ms

    def commit(self, state: PartitionImage, min_insync_replicas: int) -> None:
        """Take the state that the controller has committed in the same leader epoch."""
        held = self._state
        if held is None or held.partition_epoch != state.partition_epoch:
            self._pending, self._is_outdated, self._next_proposal_ms = None, False, NEVER_MS
        self._state, self._min_insync_replicas = state, min_insync_replicas
        known = self._remote_replicas
        self._remote_replicas = {i: known.get(i) or RemoteReplica() for i in self._others(state)}
        for replica_id in held.isr if held else ():
            if replica_id not in state.isr and replica_id in self._remote_replicas:
                self._remote_replicas[replica_id].removed_from_isr = True
        self._derive()

    def stop(self) -> None:
        """End the leadership of this broker."""
        self._state = None
        self._remote_replicas = {}
        self._pending, self._is_outdated, self._next_proposal_ms = None, False, NEVER_MS
        self._derive()

    # fetches

    def update_fetch_state(
        self,
        replica_id: int,
        offset: int,
        log_start_offset: int,
        *,
        broker_epoch: int,
        leader_end: int,
        now_ms: int,
    ) -> bool:
        """Update a follower by its fetch; return whether its log start offset has changed.

        Fetches of brokers without a replica are ignored, and fetches of a broker's former process.
        """
        follower = self._remote_replicas.get(replica_id)
        if follower is None or broker_epoch < follower.broker_epoch:
            return False
        self._now_ms = now_ms
        has_moved = follower.log_start_offset != log_start_offset
        follower.update_fetch_state(
            offset,
            log_start_offset,
            broker_epoch=broker_epoch,
            leader_end=leader_end,
            now_ms=now_ms,
        )
        return has_moved

    def replicated_end(self, own_end: int, leader_end: int) -> int:
        """The end of what all replicas of the maximal ISR have.

        A follower that is caught up and about to join counts too. Otherwise the high watermark,
        which the follower must reach to join, would stay ahead of the follower while a fast leader
        is alone in the ISR.
        """
        reached = own_end
        for replica_id, follower in self._remote_replicas.items():
            if follower.log_end_offset < reached and (
                replica_id in self._maximal_isr
                or (
                    follower.is_about_to_join(leader_end, self._now_ms, self._lag_time_max_ms)
                    and self._is_alive(replica_id, follower)
                )
            ):
                reached = follower.log_end_offset
        return reached

    def log_start_offsets(self, replica_ids: Iterable[int]) -> list[int]:
        """The log start offsets of these followers; -1 for a follower that has not fetched."""
        known = (self._remote_replicas.get(replica_id) for replica_id in replica_ids)
        return [NO_OFFSET if follower is None else follower.log_start_offset for follower in known]

    # changes to the ISR

    @property
    def proposal(self) -> IsrProposal | None:
        """The proposal to send to the controller, again if there was no answer."""
        return None if self._is_outdated else self._pending

    def maybe_expand_isr(self, replica_id: int, joining: JoiningLog, now_ms: int) -> bool:
        """Propose to expand the ISR by a follower that has just fetched (``maybeExpandIsr``).

        Returns whether there is a new proposal.
        """
        if self._state is None or replica_id in self._state.isr or not self._may_propose(now_ms):
            return False
        return self._may_join(replica_id, joining) and self._propose((), (replica_id,))

    def maybe_shrink_or_expand_isr(self, leader_end: int, joining: JoiningLog, now_ms: int) -> bool:
        """Propose to shrink the ISR by lagging followers (``maybeShrinkIsr``).

        The same proposal expands the ISR by caught-up followers.  Returns whether there is a new
        proposal.
        """
        if self._state is None:
            return False
        self._now_ms = now_ms
        for follower in self._remote_replicas.values():
            # Fetch sessions omit partitions without news: a silent follower may have the whole log.
            if follower.log_end_offset == leader_end:
                follower.last_caught_up_ms = max(follower.last_caught_up_ms, now_ms)
        if not self._may_propose(now_ms):
            return False
        isr, lag_ms = self._state.isr, self._lag_time_max_ms
        caught_up = {
            replica_id
            for replica_id, follower in self._remote_replicas.items()
            if follower.is_caught_up(leader_end, now_ms, lag_ms)
        }
        lagging = [i for i in self._remote_replicas if i in isr and i not in caught_up]
        # A follower may have been caught up for long, and may have stopped fetching.
        outside = [i for i in self._remote_replicas if i in caught_up and i not in isr]
        back = [i for i in outside if self._may_join(i, joining)]
        return bool(lagging or back) and self._propose(lagging, back)

    def refused(self, proposal: IsrProposal, error: ErrorCode, now_ms: int) -> None:
        """Take the controller's error for a proposal; most errors lead to another request."""
        if proposal != self._pending:
            return
        if error in _NOT_MADE:
            self._pending = None
            self._next_proposal_ms = now_ms + RETRY_MS
            self._derive()
        elif error in _BEHIND:
            self._is_outdated = True

    def check_invariants(self) -> None:
        if self._state is None:
            assert not self._remote_replicas
            assert self._pending is None
            return
        others = set(self._others(self._state))
        assert set(self._remote_replicas) == others
        assert set(self._state.isr) & others <= self._maximal_isr <= others

    def _others(self, state: PartitionImage) -> list[int]:
        return [i for i in dict.fromkeys((*state.replicas, *state.isr)) if i != self._node_id]

    def _may_propose(self, now_ms: int) -> bool:
        return self._pending is None and now_ms >= self._next_proposal_ms

    def _may_join(self, replica_id: int, joining: JoiningLog) -> bool:
        follower = self._remote_replicas.get(replica_id)
        return (
            follower is not None
            and follower.log_end_offset >= joining.least_end
            and follower.log_start_offset >= joining.log_start_offset
            and self._is_alive(replica_id, follower)
        )

    def _is_alive(self, replica_id: int, follower: RemoteReplica) -> bool:
        """Whether the process that fetched is the registered process of the broker (KIP-903)."""
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
        self._derive()
        return True

    def _epoch_of(self, replica_id: int) -> int:
        if replica_id != self._node_id:
            return self._remote_replicas[replica_id].broker_epoch
        epoch = self._live_epoch(replica_id)
        return NO_BROKER_EPOCH if epoch is None else epoch

    def _derive(self) -> None:
        state, pending = self._state, self._pending
        isr = state.isr if state else ()
        joining = (replica_id for replica_id, _ in pending.isr) if pending else ()
        self._maximal_isr = frozenset((*isr, *joining)) - {self._node_id}
        self.effective_min_isr = state.required_isr(self._min_insync_replicas) if state else 1
        self.under_min_isr = state is not None and len(isr) < self.effective_min_isr
