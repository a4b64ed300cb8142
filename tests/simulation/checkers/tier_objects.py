"""No object is deleted that a manifest names, nor too early after it was named last.

The age of garbage counts from the moment at which the process that removes a segment has locked the
manifest: no query is told of the segment from then on.  The commit may come much later, if the
process stands still or the bucket is slow.  The time that a call has waited before does not count.

At the end the objects of every segment are there, and as large as the manifest says.
"""

from collections.abc import Iterator

from sparklog.remote_log import names
from tests.simulation.checkers.tiers import TierState, tiers_of
from tests.simulation.events import LogId
from tests.simulation.final_state import FinalState
from tests.simulation.history import History
from tests.simulation.tier_events import TierObjectDeleted

#: How far the clocks of two brokers may be apart, in milliseconds.
CLOCKS_APART_MS = 500


def check(history: History, final: FinalState) -> list[str]:
    tiers = tiers_of(history)
    found: list[str] = []
    for at, deleted in history.each(TierObjectDeleted):
        state = tiers.state_at(deleted.log, at)
        if state is None:
            continue
        where = f"{deleted.log}: an object of segment {deleted.segment_id}"
        removed_ms = state.removed.get(deleted.segment_id)
        if deleted.segment_id in state.live:
            found.append(f"{where} was deleted, which the manifest names")
        elif removed_ms is not None:
            age_ms = history.times_ms[at] - removed_ms
            if age_ms < final.delete_delay_ms - CLOCKS_APART_MS:
                found.append(
                    f"{where} was deleted {age_ms} ms after it left the manifest, the delay is "
                    f"{final.delete_delay_ms} ms"
                )
    for log, states in tiers.states.items():
        found += _missing(log, states[-1], final)
    return found


def _missing(log: LogId, state: TierState, final: FinalState) -> Iterator[str]:
    folder = names.segments_folder(log.topic_id, log.partition)
    for each in state.segments:
        segment = each.copied or each.segment
        sizes = {
            names.log_object(folder, segment.segment_id): segment.log_size,
            names.indexes_object(folder, segment.segment_id): segment.size - segment.log_size,
        }
        for path, size in sizes.items():
            there = final.remote_objects.get(path)
            if there != size:
                yield f"{log}: {path} should have {size} bytes, it has {there}"
