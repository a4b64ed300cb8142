"""Who may lead a partition, and how its ISR and its replicas change (KIP-966).

Owns: every transition of one partition's state.  Must not know topics, requests, or why a broker
comes or goes.

* A member that leaves an ISR which is, or thereby becomes, smaller than min.insync.replicas stays
  *eligible* until the ISR is back at that size, or until its log may have become shorter.
* The leader is a living ISR member, else a living eligible replica; one that is about to stop only
  when there is no other.
* A replica whose log has failed on a living broker is elected only where every other one of these
  sets has failed as well: then it leads to say so.
* When both sets are empty, every replica that held all acknowledged records has stopped uncleanly.
  Those that were in either since the ISR last had its size are the *last known* ones.  If only one
  such replica was left, it leads again with what its log holds: an unclean recovery.
  Between several their logs decide (``recoveries``).
* A reassignment is complete when the ISR holds the replicas that it adds, and without those that it
  removes is as large as min.insync.replicas wants it.
"""

from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from sparklog.metadata import PartitionImage
from sparklog.types import NO_NODE


class Loss(Enum):
    """What became of a broker's copy of a partition."""

    NONE = 0  #: The broker stopped, or nobody knows: the log is as it was.
    TAIL = 1  #: It stopped uncleanly: the log may lack what was acknowledged last.
    ALL = 2  #: It came back with another directory, or the files of its log are gone.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the transitions depend on beside the partition: the topic's ``min_isr``, who is alive,
    which brokers are about to stop, whether the topic would rather lose records than wait
    (``unclean``), and on which living brokers the replica has ``failed``."""

    min_isr: int
    is_alive: Callable[[int], bool]
    stopping: Container[int] = frozenset()
    unclean: bool = False
    failed: Container[int] = frozenset()

    def may_lead(self, broker_id: int) -> bool:
        return self.is_alive(broker_id) and broker_id not in self.stopping


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A partition's new state; ``unclean`` when its leader was elected by an unclean recovery."""

    state: PartitionImage
    unclean: bool = False


def new_partition(replicas: Iterable[int], is_alive: Callable[[int], bool]) -> PartitionImage:
    """A partition's first state: the living replicas are its ISR, the first of them leads."""
    chosen = tuple(replicas)
    isr = tuple(broker_id for broker_id in chosen if is_alive(broker_id))
    assert isr, "placement gives every partition a living replica"
    return PartitionImage(replicas=chosen, isr=isr, last_known=isr, leader=isr[0])


# -- brokers come and go


def brokers_left(
    before: PartitionImage, gone: Collection[int], loss: Loss, rules: Rules
) -> Settled:
    """Brokers were fenced, all at once, or their former processes are gone (``rules.is_alive`` then
    tells whether the new ones may lead)."""
    if loss is Loss.NONE:
        # A new process with the whole log: it may lead on, at a new epoch.
        dead = [broker_id for broker_id in gone if not rules.is_alive(broker_id)]
        changed = _shrunk(before, dead, rules)
    else:
        changed = replace(
            before, isr=_without(before.isr, gone), eligible=_without(before.eligible, gone)
        )
    if loss is Loss.ALL:
        changed = replace(changed, last_known=_without(before.last_known, gone))
    return settle(changed, rules, lost_leaders=gone, before=before)


def broker_stops(before: PartitionImage, broker_id: int, rules: Rules) -> Settled:
    """A broker is about to stop: where another can lead, it leads nothing and is in no ISR."""
    others = _without(before.isr, (broker_id,))
    if broker_id not in before.isr or not any(map(rules.may_lead, others)):
        return Settled(state=before)
    return settle(_shrunk(before, (broker_id,), rules), rules, before=before)


def replica_failed(before: PartitionImage, broker_id: int, rules: Rules) -> Settled:
    """A living broker's log of this partition does not work.

    It is as good as lost where another replica can lead, or the topic would rather lose records
    than wait.  Else the broker keeps the lead, and tells clients why it cannot serve.
    """
    return _failed(before, broker_id, Loss.TAIL, rules)


def replica_lost(
    before: PartitionImage, broker_id: int, rules: Rules, *, is_newly_lost: bool = False
) -> Settled:
    """A living broker has lost its log of this partition; the broker will copy the leader's log.

    The transition is that of ``replica_failed``; in addition the replica leaves ``last_known``.
    For a loss that ``is_newly_lost`` the leader epoch rises even under the same leader: the
    leader's knowledge of this follower, and its pending ISR proposals, are about the lost log.
    """
    settled = _failed(before, broker_id, Loss.ALL, rules)
    state = settled.state
    if not is_newly_lost or state.leader in (NO_NODE, broker_id) or state.leader != before.leader:
        return settled
    if state.leader_epoch > before.leader_epoch:
        return settled
    renewed = replace(
        state,
        leader_epoch=before.leader_epoch + 1,
        partition_epoch=before.partition_epoch + 1,
    )
    return replace(settled, state=renewed)


def _failed(before: PartitionImage, broker_id: int, loss: Loss, rules: Rules) -> Settled:
    alive = replace(rules, is_alive=lambda other: other != broker_id and rules.is_alive(other))
    settled = brokers_left(before, (broker_id,), loss, alive)
    kept = settled.state.offline and not rules.unclean
    return Settled(state=before) if kept else settled


def could_hand_over(state: PartitionImage, broker_id: int, rules: Rules) -> bool:
    """Whether a leader that is about to stop may wait for another replica to catch up."""
    others = _without(state.replicas, (broker_id,))
    return state.leader == broker_id and any(map(rules.may_lead, others))


# -- elections and changes that are asked for


def isr_changed(before: PartitionImage, isr: Collection[int], rules: Rules) -> Settled:
    """The leader's choice of in-sync replicas, its own among them."""
    left = _without(before.isr, isr)
    joined = replace(
        before,
        isr=_ordered(before.replicas, {*before.isr, *isr}),
        eligible=_without(before.eligible, isr),
    )
    return settle(_shrunk(joined, left, rules), rules, before=before)


def elect_preferred(before: PartitionImage, rules: Rules) -> Settled:
    """The preferred leader, the first replica, leads if it may without a loss."""
    first = before.replicas[0]
    if first not in before.isr or not rules.may_lead(first):
        return Settled(state=before)
    return settle(replace(before, leader=first), rules, before=before)


def elect_unclean(before: PartitionImage, leader: int, rules: Rules) -> Settled:
    """A replica leads with what its log holds, which may lack acknowledged records.

    Who was eligible is not any more: its log may have gone another way.
    """
    changed = replace(before, isr=(leader,), eligible=(), last_known=(leader,), leader=leader)
    return replace(settle(changed, rules, before=before), unclean=True)


def settle(
    state: PartitionImage,
    rules: Rules,
    *,
    lost_leaders: Collection[int] = (),
    before: PartitionImage | None = None,
) -> Settled:
    """Complete a reassignment, elect where needed, and bring the epochs forward.

    ``lost_leaders`` are brokers whose leadership ended even when they are elected again.
    ``before`` is the state that the epochs are compared with (default: ``state`` itself).  The
    leader epoch rises with every replica that goes, so that no late fetch of it counts should it
    return.
    """
    before = before or state
    state = _without_completed_reassignment(state, rules)
    leader, unclean = _choose_leader(state, rules, lost_leaders)
    isr = state.isr if leader == NO_NODE or leader in state.isr else (leader,)
    small = len(isr) < state.required_isr(rules.min_isr)
    eligible = _without(state.eligible, (leader,)) if small else ()
    known = state.last_known
    if leader != NO_NODE:
        # While the ISR is too small nothing is acknowledged, so who stopped uncleanly since it was
        # not may still hold everything.
        known = tuple(sorted({*isr, *eligible, *(known if small else ())}))
    led_anew = leader != before.leader or (
        leader != NO_NODE
        and (leader in lost_leaders or not set(before.replicas) <= set(state.replicas))
    )
    settled = replace(
        state,
        isr=isr,
        eligible=eligible,
        last_known=known,
        leader=leader,
        leader_epoch=before.leader_epoch + led_anew,
    )
    if settled != before:
        settled = replace(settled, partition_epoch=before.partition_epoch + 1)
    return Settled(state=settled, unclean=unclean)


def _without_completed_reassignment(state: PartitionImage, rules: Rules) -> PartitionImage:
    if not state.adding and not state.removing:
        return state
    targets = _without(state.replicas, state.removing)
    isr = _without(state.isr, state.removing)
    if not set(state.adding) <= set(isr) or len(isr) < min(rules.min_isr, len(targets)):
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


def _choose_leader(
    state: PartitionImage, rules: Rules, lost_leaders: Collection[int]
) -> tuple[int, bool]:
    """(leader, whether it is an unclean recovery)."""
    kept = state.leader in state.isr and rules.is_alive(state.leader)
    if kept and state.leader not in lost_leaders:
        return state.leader, False
    working = [b for b in (*state.isr, *state.eligible) if b not in rules.failed]
    for safe in (state.isr, state.eligible):
        for may_lead in (rules.may_lead, rules.is_alive):
            for broker_id in state.replicas:
                # One whose log has failed leads, and says so, where no other one can be hoped for:
                # elected beside others, it would make them lose what they are eligible by.
                if broker_id in safe and may_lead(broker_id) and broker_id in (working or safe):
                    return broker_id, False
    nobody_is_safe = not state.isr and not state.eligible
    if nobody_is_safe and len(state.last_known) == 1 and rules.is_alive(state.last_known[0]):
        return state.last_known[0], True
    return NO_NODE, False


def _shrunk(state: PartitionImage, gone: Collection[int], rules: Rules) -> PartitionImage:
    """Without members whose logs are whole: they stay eligible if the ISR is too small then."""
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
