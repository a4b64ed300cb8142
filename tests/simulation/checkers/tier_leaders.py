"""Only the newest leader extends a manifest.

Commit numbers follow each other and leader epochs ascend; a commit is of the leader that has begun
last, and of a broker that the journal had as the leader of that epoch.  What a broker commits after
it was replaced is of its own epoch still, until another leader has begun.
"""

from itertools import pairwise

from sparklog.remote_log.manifest_records import LeaderBegan
from tests.simulation.checkers.promises import Promises, promises_of
from tests.simulation.checkers.tiers import TierState, tiers_of
from tests.simulation.final_state import FinalState
from tests.simulation.history import History


def check(history: History, final: FinalState) -> list[str]:
    promises = promises_of(history)
    found: list[str] = []
    for log, states in tiers_of(history).states.items():
        where = f"{log}: the manifest"
        if states[0].commit.number != 1:
            found.append(f"{where} begins with commit {states[0].commit.number}")
        for before, after in pairwise(states):
            if after.commit.number != before.commit.number + 1:
                found.append(
                    f"{where} has commit {after.commit.number} after {before.commit.number}"
                )
            if after.commit.leader_epoch < before.leader_epoch:
                found.append(
                    f"{where} has commit {after.commit.number} of epoch "
                    f"{after.commit.leader_epoch}, after epoch {before.leader_epoch} had begun"
                )
        for state in states:
            commit = state.commit
            if commit.leader_epoch != state.leader_epoch:
                found.append(
                    f"{where} has commit {commit.number} of epoch {commit.leader_epoch}, in the "
                    f"leadership of epoch {state.leader_epoch}"
                )
            if _begins(state) and not _led(promises, state):
                found.append(
                    f"{where} was taken over by broker {commit.broker} in epoch "
                    f"{commit.leader_epoch}, in which it did not lead"
                )
    return found


def _begins(state: TierState) -> bool:
    return any(isinstance(record, LeaderBegan) for record in state.commit.records)


def _led(promises: Promises, state: TierState) -> bool:
    """Whether the broker led in this epoch; a history without a journal tells nothing."""
    copies = promises.copies.get(state.commit.log)
    if copies is None:
        return True
    led = {(each.leader, each.leader_epoch) for at, each in copies.changes if at <= state.at}
    return (state.commit.broker, state.commit.leader_epoch) in led
