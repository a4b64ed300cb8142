"""Every offset from the log start on is in one tier at least, and the same in both.

Whenever a replica is looked at, the manifest has what its log has and its files do not.  A broker
that has not heard yet that its replica was removed is not blamed: the topic may have left the
bucket without asking it.
"""

from collections.abc import Iterator

from tests.simulation.checkers.promises import promises_of
from tests.simulation.checkers.tiers import TierState, tiers_of
from tests.simulation.events import ReplicaSeen
from tests.simulation.final_state import FinalState, TieredReplica
from tests.simulation.history import History


def check(history: History, final: FinalState) -> list[str]:
    tiers, promises = tiers_of(history), promises_of(history)
    found: list[str] = []
    for at, seen in history.each(ReplicaSeen):
        state = tiers.state_at(seen.log, at)
        if promises.may_be_lost(seen.log, 0, at) or promises.is_removed(seen.broker, seen.log, at):
            continue
        where = f"{seen.log}: broker {seen.broker}"
        found += _uncovered(where, state, seen.start, seen.local_start)
    for replica in final.tiered_replicas:
        state = tiers.last(replica.log)
        where = f"{replica.log}: broker {replica.broker} at the end"
        if replica.leads:
            found += _uncovered(where, state, replica.log_start, replica.local_start)
        if state is not None:
            found += _differences(where, state, replica)
    return found


def _uncovered(
    where: str, state: TierState | None, log_start: int, local_start: int
) -> Iterator[str]:
    """``log_start`` may be known late; the manifest's counts then."""
    if local_start <= log_start:
        return
    end = state.end if state is not None else 0
    first = state.segments[0].segment.base_offset if state is not None and state.segments else end
    begins = max(log_start, state.log_start if state is not None else 0)
    if begins < local_start and not (first <= begins and local_start <= end):
        yield (
            f"{where} has the log from {log_start} on and the files from {local_start} on, the "
            f"manifest has [{first}, {end})"
        )


def _differences(where: str, state: TierState, replica: TieredReplica) -> Iterator[str]:
    remote = {
        batch.base_offset: batch.checksum for each in state.segments for batch in each.batches
    }
    for batch in replica.batches:
        if remote.get(batch.base_offset, batch.checksum) != batch.checksum:
            yield f"{where} holds other bytes at offset {batch.base_offset} than the bucket"
            return
