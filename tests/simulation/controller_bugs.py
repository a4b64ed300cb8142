"""Deliberate bugs of the controller: of its elections, its recoveries and its moves.

Owns: the patches.  Must not know how they are caught.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import sparklog.driver.control_plane.controller.draining as draining_module
import sparklog.driver.control_plane.controller.elections as elections_module
import sparklog.driver.control_plane.controller.recoveries as recoveries_module
import sparklog.driver.control_plane.controller.sessions as sessions_module
from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.controller.brokers import Loss
from sparklog.driver.control_plane.controller.decision import Decision
from sparklog.driver.control_plane.controller.elections import Rules, Settled
from sparklog.driver.control_plane.controller.isr_changes import _Proposals
from sparklog.driver.control_plane.controller.partition_changes import PartitionChanges
from sparklog.driver.control_plane.controller.sessions import Sessions
from sparklog.metadata import BrokerImage, ClusterImage, PartitionImage
from sparklog.types import NO_BROKER_EPOCH, NO_NODE
from sparklog.wire.protocol.private import BrokerHeartbeatResponse
from tests.simulation.planting import Patch, bug


@bug
def elect_outside_the_isr() -> list[Patch]:
    """Any living replica leads when no better one is there."""
    real = elections_module._choose_leader

    def choose(
        state: PartitionImage, rules: Rules, lost_leaders: Collection[int]
    ) -> tuple[int, bool]:
        leader, unclean = real(state, rules, lost_leaders)
        living = [broker_id for broker_id in state.replicas if rules.is_alive(broker_id)]
        return (living[0], False) if leader == NO_NODE and living else (leader, unclean)

    return [(elections_module, "_choose_leader", choose)]


def _with_loss(change: Callable[[Loss], Loss]) -> list[Patch]:
    """Brokers leave with another loss than they had."""
    import sparklog.driver.control_plane.controller.partition_changes as changes_module

    real = changes_module.brokers_left

    def brokers_left(
        before: PartitionImage, gone: Collection[int], loss: Loss, rules: Rules
    ) -> Settled:
        return real(before, gone, change(loss), rules)

    return [(changes_module, "brokers_left", brokers_left)]


@bug
def keep_an_unclean_broker_in_the_isr() -> list[Patch]:
    """A broker that was killed comes back as if it had stopped cleanly."""
    return _with_loss(lambda loss: Loss.NONE if loss is Loss.TAIL else loss)


@bug
def elect_a_new_directory() -> list[Patch]:
    """A broker with an empty disk comes back as if it had stopped cleanly."""
    return _with_loss(lambda loss: Loss.NONE if loss is Loss.ALL else loss)


@bug
def know_nobody_eligible() -> list[Patch]:
    """Who leaves an ISR that is too small is forgotten."""
    real = elections_module.settle

    def settle(state: PartitionImage, rules: Rules, **more: Any) -> Settled:
        settled = real(replace(state, eligible=()), rules, **more)
        known = settled.state.isr or settled.state.last_known
        return replace(settled, state=replace(settled.state, last_known=known))

    return [(elections_module, "settle", settle)]


@bug
def keep_the_eligible_for_ever() -> list[Patch]:
    """Who was eligible stays so when the ISR is back at its size."""
    real = elections_module.settle

    def settle(state: PartitionImage, rules: Rules, **more: Any) -> Settled:
        settled = real(state, rules, **more)
        after = settled.state
        kept = tuple(b for b in state.eligible if b not in after.isr and b in after.replicas)
        known = tuple(sorted({*after.last_known, *kept}))
        return replace(settled, state=replace(after, eligible=kept, last_known=known))

    return [(elections_module, "settle", settle)]


@bug
def recover_from_the_worst_log() -> list[Patch]:
    """An unclean recovery takes the shortest log of those that were reported."""
    real = recoveries_module._best

    def best(reports: Any, candidates: Any) -> int | None:
        reported = [broker_id for broker_id in candidates if broker_id in reports]
        return min(reported, key=lambda b: reports[b].end, default=real(reports, candidates))

    return [(recoveries_module, "_best", best)]


@bug
def recover_without_waiting() -> list[Patch]:
    """An unclean recovery takes the first log that is reported."""
    real = recoveries_module._wanted

    def wanted(state: PartitionImage, rules: Rules, reported: Collection[int]) -> frozenset[int]:
        return real(state, rules, reported) & frozenset(reported)

    return [(recoveries_module, "_wanted", wanted)]


@bug
def move_before_it_has_arrived() -> list[Patch]:
    """A reassignment is complete as soon as its new replicas are there, in sync or not."""
    real = elections_module._without_completed_reassignment

    def complete(state: PartitionImage, rules: Rules) -> PartitionImage:
        arrived = [b for b in state.adding if rules.is_alive(b)]
        if state.adding and len(arrived) == len(state.adding):
            state = replace(state, isr=tuple(dict.fromkeys((*state.isr, *state.adding))))
        return real(state, rules)

    return [(elections_module, "_without_completed_reassignment", complete)]


@bug
def drain_before_it_has_arrived() -> list[Patch]:
    """A draining broker loses its replica when the one in its place is begun, not when it is in
    sync."""

    def begin(before: PartitionImage, targets: tuple[int, ...], rules: Rules) -> Settled:
        isr = tuple(b for b in before.isr if b in targets) or targets[:1]
        moved = replace(before, replicas=targets, isr=isr, last_known=isr, eligible=())
        return elections_module.settle(moved, rules, before=before)

    return [(draining_module, "begin_reassignment", begin)]


@bug
def restart_in_the_same_epoch() -> list[Patch]:
    """A leader that comes back as another process, and leads again, does so in its former epoch."""
    real = elections_module.settle

    def settle(state: PartitionImage, rules: Rules, **more: Any) -> Settled:
        return real(state, rules, **{**more, "lost_leaders": ()})

    return [(elections_module, "settle", settle)]


@bug
def elect_in_the_same_epoch() -> list[Patch]:
    """A partition that has lost its leader goes on in the epoch that it was in."""
    real = elections_module.settle

    def settle(state: PartitionImage, rules: Rules, **more: Any) -> Settled:
        settled = real(state, rules, **more)
        before = more.get("before") or state
        if NO_NODE in (before.leader, settled.state.leader):
            kept = replace(settled.state, leader_epoch=before.leader_epoch)
            return replace(settled, state=kept)
        return settled

    return [(elections_module, "settle", settle)]


@bug
def lose_rather_than_wait() -> list[Patch]:
    """Every topic has unclean elections."""
    real = PartitionChanges.rules

    def rules(self: PartitionChanges, topic: str) -> Rules:
        return replace(real(self, topic), unclean=True)

    return [(PartitionChanges, "rules", rules)]


@bug
def take_in_a_former_process() -> list[Patch]:
    """AlterPartition does not ask of which registration the leader speaks (KIP-903)."""
    real = _Proposals._check_members

    def check_members(self: _Proposals, state: PartitionImage, members: dict[int, int]) -> None:
        real(self, state, dict.fromkeys(members, NO_BROKER_EPOCH))

    return [(_Proposals, "_check_members", check_members)]


@bug
def let_stop_before_others_lead() -> list[Patch]:
    """Controlled shutdown is answered at once, and nobody else is elected."""

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
