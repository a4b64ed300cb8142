"""In each generation of a group, each partition has at most one owner.

A static member that comes back has another member id and the partitions of its instance.
"""

from tests.simulation.checkers.coordinators import coordinators_of
from tests.simulation.events import LogId, PartitionsAssigned
from tests.simulation.final_state import FinalState
from tests.simulation.history import History


def check(history: History, final: FinalState) -> list[str]:
    coordinators = coordinators_of(history)
    owners: dict[tuple[str, int, LogId], tuple[int, str]] = {}
    found: list[str] = []
    for at, assigned in history.each(PartitionsAssigned):
        taker = assigned.member_id if assigned.instance_id is None else assigned.instance_id
        for log in assigned.logs:
            key = (assigned.group, assigned.generation, log)
            since, owner = owners.setdefault(key, (at, taker))
            if owner == taker:
                continue
            if coordinators.may_be_lost(assigned.group, since, at):
                owners[key] = (at, taker)  # the generation was given once more
            else:
                found.append(
                    f"{log} belongs to {owner} and {taker} in generation "
                    f"{assigned.generation} of group {assigned.group}"
                )
    return found
