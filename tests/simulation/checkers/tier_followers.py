"""Replicas of a tiered log know the same at the end, whether they copied it or began in the bucket.

They have the same leader epochs from the later log start on, and the same state of every producer
with records there.
"""

from collections.abc import Iterator

from tests.simulation.final_state import FinalState, TieredReplica
from tests.simulation.history import History


def check(history: History, final: FinalState) -> list[str]:
    leaders = {replica.log: replica for replica in final.tiered_replicas if replica.leads}
    found: list[str] = []
    for replica in final.tiered_replicas:
        leader = leaders.get(replica.log)
        if leader is None or replica.leads:
            continue
        found += _different_epochs(leader, replica)
        found += _different_producers(leader, replica)
    return found


def _different_epochs(leader: TieredReplica, replica: TieredReplica) -> Iterator[str]:
    start = max(leader.log_start, replica.log_start)
    end = min(leader.high_watermark, replica.high_watermark)
    theirs, own = _epochs(leader, start, end), _epochs(replica, start, end)
    if theirs != own:
        yield (
            f"{replica.log}: broker {replica.broker} knows the leader epochs {own} of "
            f"[{start}, {end}), the leader {leader.broker} knows {theirs}"
        )


def _epochs(replica: TieredReplica, start: int, end: int) -> list[tuple[int, int]]:
    """Those of the records in [start, end)."""
    found: list[tuple[int, int]] = []
    for epoch, begins in replica.epochs if start < end else ():
        if begins <= start:
            found = [(epoch, start)]
        elif begins < end:
            found.append((epoch, begins))
    return found


def _different_producers(leader: TieredReplica, replica: TieredReplica) -> Iterator[str]:
    """Of those with records in both logs: a log that began anew at its start knows no others."""
    start = max(leader.log_start, replica.log_start)
    own = {each.producer_id: each for each in replica.producers}
    for known in leader.producers:
        if known.last_offset >= start and own.get(known.producer_id) != known:
            yield (
                f"{replica.log}: broker {replica.broker} knows {own.get(known.producer_id)} of the "
                f"producer of which the leader {leader.broker} knows {known}"
            )
            return
