"""One leader per epoch: epochs of a partition ascend, each has one leader, and no broker leads
another one than the journal gave it.
"""

from collections.abc import Iterator

from sparklog.types import NO_NODE
from tests.simulation.checkers.copies import Copies
from tests.simulation.checkers.promises import promises_of
from tests.simulation.events import ReplicaSeen
from tests.simulation.final_state import FinalState
from tests.simulation.history import History


def check(history: History, final: FinalState) -> list[str]:
    copies = promises_of(history).copies
    found: list[str] = []
    for story in copies.values():
        found += _in_journal(story)
    for _, seen in history.each(ReplicaSeen):
        if not seen.leads or seen.log not in copies:
            continue
        led_by = {
            state.leader
            for _, state in copies[seen.log].changes
            if state.leader_epoch == seen.leader_epoch
        }
        if seen.broker not in led_by:
            found.append(
                f"{seen.log}: broker {seen.broker} leads epoch {seen.leader_epoch}, which the "
                f"journal gave to {sorted(led_by - {NO_NODE})}"
            )
    return found


def _in_journal(story: Copies) -> Iterator[str]:
    leaders: dict[int, int] = {}
    _, before = story.changes[0]
    for _, state in story.changes:
        if state.leader_epoch < before.leader_epoch:
            yield f"{story.log}: leader epoch {state.leader_epoch} after {before.leader_epoch}"
        if state is not before and state.partition_epoch <= before.partition_epoch:
            yield (
                f"{story.log}: partition epoch {state.partition_epoch} after "
                f"{before.partition_epoch}"
            )
        if state.leader != NO_NODE:
            leader = leaders.setdefault(state.leader_epoch, state.leader)
            if leader != state.leader:
                yield (
                    f"{story.log}: leader epoch {state.leader_epoch} is of brokers {leader} and "
                    f"{state.leader}"
                )
        before = state
