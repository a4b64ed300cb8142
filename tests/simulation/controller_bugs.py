"""Deliberate bugs of the controller: of its elections, its recoveries and its moves.

Owns: the patches.  Must not know how they are caught.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import sparklog.driver.control_plane.controller.draining as draining_module
import sparklog.driver.control_plane.controller.partition_transitions as transitions_module
import sparklog.driver.control_plane.controller.sessions as sessions_module
import sparklog.driver.control_plane.controller.unclean_recoveries as recoveries_module
from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.controller.brokers import LogSurvival
from sparklog.driver.control_plane.controller.decision import Decision
from sparklog.driver.control_plane.controller.isr_changes import _Proposals
from sparklog.driver.control_plane.controller.partition_changes import PartitionChanges
from sparklog.driver.control_plane.controller.partition_transitions import Rules, Transition
from sparklog.driver.control_plane.controller.sessions import Sessions
from sparklog.metadata import BrokerImage, ClusterImage, PartitionImage
from sparklog.types import NO_BROKER_EPOCH, NO_NODE
from sparklog.wire.protocol.private import BrokerHeartbeatResponse
from tests.simulation.planting import Patch, bug


@bug
def elect_outside_the_isr() -> list[Patch]:
    """Any alive replica is elected when no replica of the ISR is alive."""
    real = transitions_module._elect_leader

    def choose(
        state: PartitionImage, rules: Rules, lost_leaders: Collection[int]
    ) -> tuple[int, bool]:
        leader, unclean = real(state, rules, lost_leaders)
        living = [broker_id for broker_id in state.replicas if rules.is_alive(broker_id)]
        return (living[0], False) if leader == NO_NODE and living else (leader, unclean)

    return [(transitions_module, "_elect_leader", choose)]


def _whole_instead_of(survival: LogSurvival) -> list[Patch]:
    """The controller takes logs that survived only so far for complete logs."""
    import sparklog.driver.control_plane.controller.partition_changes as changes_module

    real = changes_module.brokers_left

    def brokers_left(
        before: PartitionImage, gone: Collection[int], found: LogSurvival, rules: Rules
    ) -> Transition:
        believed = LogSurvival.WHOLE if found is survival else found
        return real(before, gone, believed, rules)

    return [(changes_module, "brokers_left", brokers_left)]


@bug
def keep_an_unclean_broker_in_the_isr() -> list[Patch]:
    """A broker that was killed comes back as if it had stopped cleanly."""
    return _whole_instead_of(LogSurvival.HEAD)


@bug
def elect_a_new_directory() -> list[Patch]:
    """A broker with an empty disk comes back as if it had stopped cleanly."""
    return _whole_instead_of(LogSurvival.NOTHING)


@bug
def keep_no_replica_eligible() -> list[Patch]:
    """A replica that leaves an ISR that is too small is not eligible (KIP-966)."""
    real = transitions_module.complete_transition

    def complete_transition(state: PartitionImage, rules: Rules, **more: Any) -> Transition:
        transition = real(replace(state, eligible=()), rules, **more)
        known = transition.state.isr or transition.state.last_known
        return replace(transition, state=replace(transition.state, last_known=known))

    return [(transitions_module, "complete_transition", complete_transition)]


@bug
def keep_replicas_eligible_for_ever() -> list[Patch]:
    """Eligible replicas stay eligible when the ISR is back at min.insync.replicas."""
    real = transitions_module.complete_transition

    def complete_transition(state: PartitionImage, rules: Rules, **more: Any) -> Transition:
        transition = real(state, rules, **more)
        after = transition.state
        kept = tuple(b for b in state.eligible if b not in after.isr and b in after.replicas)
        known = tuple(sorted({*after.last_known, *kept}))
        return replace(transition, state=replace(after, eligible=kept, last_known=known))

    return [(transitions_module, "complete_transition", complete_transition)]


@bug
def recover_from_the_worst_log() -> list[Patch]:
    """An unclean recovery elects the replica with the shortest reported log."""
    real = recoveries_module._best

    def best(reports: Any, candidates: Any) -> int | None:
        reported = [broker_id for broker_id in candidates if broker_id in reports]
        return min(reported, key=lambda b: reports[b].end, default=real(reports, candidates))

    return [(recoveries_module, "_best", best)]


@bug
def recover_without_waiting() -> list[Patch]:
    """An unclean recovery elects the replica that reports first."""
    real = recoveries_module._wanted

    def wanted(state: PartitionImage, rules: Rules, reported: Collection[int]) -> frozenset[int]:
        return real(state, rules, reported) & frozenset(reported)

    return [(recoveries_module, "_wanted", wanted)]


@bug
def move_before_it_has_arrived() -> list[Patch]:
    """A reassignment is complete once its new replicas are alive, in the ISR or not."""
    real = transitions_module._complete_reassignment

    def complete(state: PartitionImage, rules: Rules) -> PartitionImage:
        arrived = [b for b in state.adding if rules.is_alive(b)]
        if state.adding and len(arrived) == len(state.adding):
            state = replace(state, isr=tuple(dict.fromkeys((*state.isr, *state.adding))))
        return real(state, rules)

    return [(transitions_module, "_complete_reassignment", complete)]


@bug
def drain_before_it_has_arrived() -> list[Patch]:
    """A draining broker loses its replica when the move begins, not when the new one is in sync."""

    def begin(before: PartitionImage, targets: tuple[int, ...], rules: Rules) -> Transition:
        isr = tuple(b for b in before.isr if b in targets) or targets[:1]
        moved = replace(before, replicas=targets, isr=isr, last_known=isr, eligible=())
        return transitions_module.complete_transition(moved, rules, before=before)

    return [(draining_module, "begin_reassignment", begin)]


@bug
def restart_in_the_same_epoch() -> list[Patch]:
    """A leader that restarts and is elected again keeps its leader epoch."""
    real = transitions_module.complete_transition

    def complete_transition(state: PartitionImage, rules: Rules, **more: Any) -> Transition:
        return real(state, rules, **{**more, "lost_leaders": ()})

    return [(transitions_module, "complete_transition", complete_transition)]


@bug
def elect_in_the_same_epoch() -> list[Patch]:
    """A partition that loses or gets a leader keeps its leader epoch."""
    real = transitions_module.complete_transition

    def complete_transition(state: PartitionImage, rules: Rules, **more: Any) -> Transition:
        transition = real(state, rules, **more)
        before = more.get("before") or state
        if NO_NODE in (before.leader, transition.state.leader):
            kept = replace(transition.state, leader_epoch=before.leader_epoch)
            return replace(transition, state=kept)
        return transition

    return [(transitions_module, "complete_transition", complete_transition)]


@bug
def elect_unclean_everywhere() -> list[Patch]:
    """Every topic has unclean elections."""
    real = PartitionChanges.rules

    def rules(self: PartitionChanges, topic: str) -> Rules:
        return replace(real(self, topic), unclean=True)

    return [(PartitionChanges, "rules", rules)]


@bug
def admit_a_former_process() -> list[Patch]:
    """AlterPartition does not check the broker epochs of the proposed members (KIP-903)."""
    real = _Proposals._check_members

    def check_members(self: _Proposals, state: PartitionImage, members: dict[int, int]) -> None:
        real(self, state, dict.fromkeys(members, NO_BROKER_EPOCH))

    return [(_Proposals, "_check_members", check_members)]


@bug
def stop_before_another_leads() -> list[Patch]:
    """Controlled shutdown is answered at once, and no other leader is elected."""

    def prepare_stop(
        image: ClusterImage,
        sessions: Sessions,
        config: BrokerConfig,
        broker: BrokerImage,
        now_ms: int,
    ) -> Decision:
        sessions.record_contact(broker.broker_id, now_ms)
        return Decision(response=BrokerHeartbeatResponse(may_stop=True))

    return [(sessions_module, "_prepare_stop", prepare_stop)]
