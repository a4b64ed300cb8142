"""Who may lead a partition, and how its ISR shrinks when a broker goes (KIP-966).

Owns: the transition of one partition's state.  Must not know topics, brokers or requests.

* A member that leaves an ISR which is, or thereby becomes, smaller than min.insync.replicas stays
  *eligible* until the ISR is back at that size, or until its log may have become shorter.
* The leader is a living ISR member, else a living eligible replica.
* When both sets are empty, every replica that held all acknowledged records has stopped uncleanly.
  If only one such replica was left, it leads again with what its log holds: an unclean recovery.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from sparklog.metadata import PartitionImage
from sparklog.types import NO_NODE


class Loss(Enum):
    """What became of a broker's copy of a partition."""

    NONE = 0  #: The broker stopped, or nobody knows: the log is as it was.
    TAIL = 1  #: It stopped uncleanly: the log may lack what was acknowledged last.
    ALL = 2  #: It came back with another directory: there is no log.


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


def broker_left(
    before: PartitionImage,
    broker_id: int,
    loss: Loss,
    *,
    min_isr: int,
    is_alive: Callable[[int], bool],
) -> Settled:
    """A replica's broker was fenced, or its former process is gone (``is_alive`` then tells
    whether the new one may lead)."""
    if loss is Loss.NONE and is_alive(broker_id):
        # A new process with the whole log: it may lead on, at a new epoch.
        return settle(before, min_isr=min_isr, is_alive=is_alive, lost_leader=broker_id)
    isr = _without(before.isr, broker_id)
    eligible = _without(before.eligible, broker_id) if loss is not Loss.NONE else before.eligible
    if loss is Loss.NONE and broker_id in before.isr and len(isr) < min_isr:
        eligible = (*eligible, broker_id)
    known = _without(before.last_known, broker_id) if loss is Loss.ALL else before.last_known
    changed = replace(before, isr=isr, eligible=eligible, last_known=known)
    return settle(changed, min_isr=min_isr, is_alive=is_alive, lost_leader=broker_id, before=before)


def settle(
    state: PartitionImage,
    *,
    min_isr: int,
    is_alive: Callable[[int], bool],
    lost_leader: int = NO_NODE,
    before: PartitionImage | None = None,
) -> Settled:
    """Elect where needed and bring the epochs forward.

    ``lost_leader`` is a broker whose leadership ended even when it is elected again.  ``before`` is
    the state that the epochs are compared with (default: ``state`` itself).
    """
    before = before or state
    leader, unclean = _choose_leader(state, is_alive, lost_leader)
    isr = state.isr if leader == NO_NODE or leader in state.isr else (leader,)
    eligible = () if len(isr) >= min_isr else _without(state.eligible, leader)
    known = state.last_known if leader == NO_NODE else tuple(sorted({*isr, *eligible}))
    led_anew = leader != before.leader or (leader == lost_leader and leader != NO_NODE)
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


def _choose_leader(
    state: PartitionImage, is_alive: Callable[[int], bool], lost_leader: int
) -> tuple[int, bool]:
    """(leader, whether it is an unclean recovery)."""
    kept = state.leader in state.isr and is_alive(state.leader) and state.leader != lost_leader
    if kept:
        return state.leader, False
    for candidates in (state.isr, state.eligible):
        for broker_id in state.replicas:
            if broker_id in candidates and is_alive(broker_id):
                return broker_id, False
    nobody_is_safe = not state.isr and not state.eligible
    if nobody_is_safe and len(state.last_known) == 1 and is_alive(state.last_known[0]):
        return state.last_known[0], True
    return NO_NODE, False


def _without(brokers: tuple[int, ...], broker_id: int) -> tuple[int, ...]:
    return tuple(other for other in brokers if other != broker_id)
