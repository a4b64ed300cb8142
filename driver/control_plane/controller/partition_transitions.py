"""The transitions of a partition: elections, and changes of its ISR and replicas (KIP-966).

Owns: every transition of one partition's state.  Must not know topics, requests, or why a broker
comes or leaves.

* A member that leaves an ISR which is, or thereby becomes, smaller than min.insync.replicas stays
  *eligible* until the ISR is back at that size, or until the member's log may have become shorter.
* The leader is an alive ISR member, else an alive eligible replica.  A broker that is about to stop
  is elected only if there is no other.
* An offline replica on an alive broker is elected only if all members of both sets are offline as
  well.  Such a leader exists to tell clients why it cannot serve.
* When both sets are empty, every replica that held all acknowledged records has stopped uncleanly.
  The replicas that were in either set since the ISR last had its size are the *last known* ones.
  If there is only one such replica, it becomes leader again with the log that it has: an unclean
  recovery.  Among several replicas the best log decides (``unclean_recoveries``).
* When the last replica that can lead has lost its log, it stays leader and tells clients why it
  cannot serve.  A tiered partition has no leader then: the records in the bucket are left, and the
  next leader goes on behind them, once it is known that no replica has a log
  (``unclean_recoveries``).
* A reassignment is complete when the ISR contains all replicas that it adds, and is large enough
  for min.insync.replicas without those that it removes.  While all members that would stay are
  offline, no replica is removed: its log may be the only one that is left.
"""

from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from sparklog.metadata import PartitionImage
from sparklog.types import NO_NODE


class LogSurvival(Enum):
    """How much of a replica's log survives the end of its broker's process, or its failure."""

    WHOLE = 0  #: The broker stopped cleanly, or that is unknown: the log counts as complete.
    HEAD = 1  #: The broker stopped uncleanly: the log may lack the last acknowledged records.
    NOTHING = 2  #: The broker returned with another directory, or the log's files are gone.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The inputs of transitions besides the partition's state.

    Args:
        min_isr: the topic's min.insync.replicas.
        is_alive: whether a broker is alive.
        in_controlled_shutdown: the brokers that are about to stop.
        unclean: the topic's unclean.leader.election.enable.
        failed: the alive brokers whose replica of the partition is offline.
        tiered: whether records of the partition are in the cluster's remote_dir as well.
    """

    min_isr: int
    is_alive: Callable[[int], bool]
    in_controlled_shutdown: Container[int] = frozenset()
    unclean: bool = False
    failed: Container[int] = frozenset()
    tiered: bool = False

    def may_lead(self, broker_id: int) -> bool:
        return self.is_alive(broker_id) and broker_id not in self.in_controlled_shutdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """The new state of a partition.  With ``unclean``, an unclean recovery elected its leader."""

    state: PartitionImage
    unclean: bool = False


def new_partition(replicas: Iterable[int], is_alive: Callable[[int], bool]) -> PartitionImage:
    """The state of a new partition: alive replicas are in the ISR, the first of them leads."""
    chosen = tuple(replicas)
    isr = tuple(broker_id for broker_id in chosen if is_alive(broker_id))
    assert isr, "placement gives every partition a living replica"
    return PartitionImage(replicas=chosen, isr=isr, last_known=isr, leader=isr[0])


# -- brokers come and go


def brokers_left(
    before: PartitionImage, gone: Collection[int], survival: LogSurvival, rules: Rules
) -> Transition:
    """Brokers were fenced together, or their former processes have ended.

    In the second case ``rules.is_alive`` tells whether the new processes may lead.
    """
    if survival is LogSurvival.WHOLE:
        # A new process with the complete log may stay leader, in a new leader epoch.
        dead = [broker_id for broker_id in gone if not rules.is_alive(broker_id)]
        changed = _shrink_isr(before, dead, rules)
    else:
        changed = replace(
            before, isr=_without(before.isr, gone), eligible=_without(before.eligible, gone)
        )
    if survival is LogSurvival.NOTHING:
        changed = replace(changed, last_known=_without(before.last_known, gone))
    return complete_transition(changed, rules, lost_leaders=gone, before=before)


def broker_stops(before: PartitionImage, broker_id: int, rules: Rules) -> Transition:
    """A broker is about to stop: it loses leadership and ISR membership if another can lead."""
    others = _without(before.isr, (broker_id,))
    if broker_id not in before.isr or not any(map(rules.may_lead, others)):
        return Transition(state=before)
    return complete_transition(_shrink_isr(before, (broker_id,), rules), rules, before=before)


def replica_failed(before: PartitionImage, broker_id: int, rules: Rules) -> Transition:
    """An alive broker's replica of this partition is offline.

    The replica leaves the ISR and the eligible replicas if another replica can lead, or if the
    topic allows unclean elections.  The replica stays in ``last_known``, because its log may work
    again.  Otherwise nothing changes: a leader stays, and tells clients why it cannot serve.
    """
    return _failed(before, broker_id, LogSurvival.HEAD, rules, keeps_leader=not rules.unclean)


def replica_lost(
    before: PartitionImage,
    broker_id: int,
    rules: Rules,
    *,
    is_newly_lost: bool = False,
    is_gone: bool = False,
) -> Transition:
    """An alive broker has lost its log of this partition; the broker will copy the leader's log.

    The transition is that of ``replica_failed``; in addition the replica leaves ``last_known``.
    For a loss that ``is_newly_lost`` the leader epoch rises even under the same leader: the
    leader's knowledge of this follower, and its pending ISR proposals, are about the lost log.

    ``is_gone``: nothing is left of the log, or its loss is accepted.
    """
    keeps_leader = not rules.unclean and not (rules.tiered and is_gone)
    transition = _failed(before, broker_id, LogSurvival.NOTHING, rules, keeps_leader=keeps_leader)
    state = transition.state
    if not is_newly_lost or state.leader in (NO_NODE, broker_id) or state.leader != before.leader:
        return transition
    if state.leader_epoch > before.leader_epoch:
        return transition
    renewed = replace(
        state,
        leader_epoch=before.leader_epoch + 1,
        partition_epoch=before.partition_epoch + 1,
    )
    return replace(transition, state=renewed)


def _failed(
    before: PartitionImage,
    broker_id: int,
    survival: LogSurvival,
    rules: Rules,
    *,
    keeps_leader: bool,
) -> Transition:
    """``keeps_leader``: nothing changes if no other replica can lead."""
    alive = replace(rules, is_alive=lambda other: other != broker_id and rules.is_alive(other))
    transition = brokers_left(before, (broker_id,), survival, alive)
    kept = transition.state.offline and keeps_leader
    return Transition(state=before) if kept else transition


def could_hand_over(state: PartitionImage, broker_id: int, rules: Rules) -> bool:
    """Whether a leader that is about to stop could hand over once another replica catches up."""
    others = _without(state.replicas, (broker_id,))
    return state.leader == broker_id and any(map(rules.may_lead, others))


# -- elections and changes on request


def isr_changed(before: PartitionImage, isr: Collection[int], rules: Rules) -> Transition:
    """The leader has shrunk or expanded the ISR to ``isr``, which includes the leader."""
    left = _without(before.isr, isr)
    joined = replace(
        before,
        isr=_ordered(before.replicas, {*before.isr, *isr}),
        eligible=_without(before.eligible, isr),
    )
    return complete_transition(_shrink_isr(joined, left, rules), rules, before=before)


def elect_preferred(before: PartitionImage, rules: Rules) -> Transition:
    """Elect the preferred leader, the first replica, if no records can be lost by it."""
    first = before.replicas[0]
    if first not in before.isr or not rules.may_lead(first):
        return Transition(state=before)
    return complete_transition(replace(before, leader=first), rules, before=before)


def elect_unclean(before: PartitionImage, leader: int, rules: Rules) -> Transition:
    """Elect a replica whose log may lack acknowledged records.

    Eligible replicas lose their eligibility, because their logs may have diverged.
    """
    changed = replace(before, isr=(leader,), eligible=(), last_known=(leader,), leader=leader)
    return replace(complete_transition(changed, rules, before=before), unclean=True)


def complete_transition(
    state: PartitionImage,
    rules: Rules,
    *,
    lost_leaders: Collection[int] = (),
    before: PartitionImage | None = None,
) -> Transition:
    """The last step of every transition: complete the reassignment, elect, raise the epochs.

    A reassignment is completed if it is done, a leader is elected if there is none
    (``PartitionChangeBuilder.build``).  The leader epoch also rises with every replica that is
    removed, so that a late fetch of such a replica does not count if it is added again.

    Args:
        lost_leaders: brokers whose leadership has ended, even if they are elected again.
        before: the state that the epochs are compared with; None for ``state`` itself.
    """
    before = before or state
    state = _complete_reassignment(state, rules)
    leader, unclean = _elect_leader(state, rules, lost_leaders)
    isr = state.isr if leader == NO_NODE or leader in state.isr else (leader,)
    small = len(isr) < state.required_isr(rules.min_isr)
    eligible = _without(state.eligible, (leader,)) if small else ()
    known = state.last_known
    if leader != NO_NODE:
        # While the ISR is too small, nothing is acknowledged.  So replicas that have stopped
        # uncleanly since then may still hold all acknowledged records.
        known = tuple(sorted({*isr, *eligible, *(known if small else ())}))
    led_anew = leader != before.leader or (
        leader != NO_NODE
        and (leader in lost_leaders or not set(before.replicas) <= set(state.replicas))
    )
    after = replace(
        state,
        isr=isr,
        eligible=eligible,
        last_known=known,
        leader=leader,
        leader_epoch=before.leader_epoch + led_anew,
    )
    if after != before:
        after = replace(after, partition_epoch=before.partition_epoch + 1)
    return Transition(state=after, unclean=unclean)


def _complete_reassignment(state: PartitionImage, rules: Rules) -> PartitionImage:
    if not state.adding and not state.removing:
        return state
    targets = _without(state.replicas, state.removing)
    isr = _without(state.isr, state.removing)
    if not set(state.adding) <= set(isr) or len(isr) < min(rules.min_isr, len(targets)):
        return state
    if state.removing and all(broker_id in rules.failed for broker_id in isr):
        return state
    return replace(
        state,
        replicas=targets,
        isr=isr,
        eligible=_without(state.eligible, state.removing),
        last_known=_without(state.last_known, state.removing),
        adding=(),
        removing=(),
    )


def _elect_leader(
    state: PartitionImage, rules: Rules, lost_leaders: Collection[int]
) -> tuple[int, bool]:
    """The leader, and whether its election is an unclean recovery."""
    kept = state.leader in state.isr and rules.is_alive(state.leader)
    if kept and state.leader not in lost_leaders:
        return state.leader, False
    working = [b for b in (*state.isr, *state.eligible) if b not in rules.failed]
    for complete in (state.isr, state.eligible):
        for may_lead in (rules.may_lead, rules.is_alive):
            for broker_id in state.replicas:
                # An offline replica is elected only if all are offline.  If it were elected beside
                # working ones, these would lose their eligibility.
                is_candidate = broker_id in complete and may_lead(broker_id)
                if is_candidate and broker_id in (working or complete):
                    return broker_id, False
    none_is_complete = not state.isr and not state.eligible
    if none_is_complete and len(state.last_known) == 1 and rules.is_alive(state.last_known[0]):
        return state.last_known[0], True
    return NO_NODE, False


def _shrink_isr(state: PartitionImage, gone: Collection[int], rules: Rules) -> PartitionImage:
    """Remove members with complete logs; they stay eligible if the ISR is too small then."""
    isr = _without(state.isr, gone)
    eligible = state.eligible
    if len(isr) < state.required_isr(rules.min_isr):
        left = [broker_id for broker_id in state.isr if broker_id in gone]
        eligible = _ordered(state.replicas, {*eligible, *left})
    return replace(state, isr=isr, eligible=eligible)


def _without(brokers: tuple[int, ...], gone: Collection[int]) -> tuple[int, ...]:
    return tuple(broker_id for broker_id in brokers if broker_id not in gone)


def _ordered(replicas: tuple[int, ...], brokers: Container[int]) -> tuple[int, ...]:
    return tuple(broker_id for broker_id in replicas if broker_id in brokers)
