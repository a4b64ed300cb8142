"""A leader that takes a manifest over cuts from it what its own log does not have, and no more.

Two logs have a record in common if they have its offset in the same leader epoch (KIP-101).  From
the first record on that the leader's log lacks, nothing stays in the manifest.  What is in front of
it stays in one tier at least: in the manifest, or in the leader's files.  A beginning that would
end below these files is of no use to a log without holes, and may go.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from sparklog.remote_log.manifest_records import LeaderBegan, TruncatedAfter
from sparklog.remote_log.takeover import LeaderLog
from tests.simulation.checkers.tiers import TierState, tiers_of
from tests.simulation.final_state import FinalState
from tests.simulation.history import History
from tests.simulation.tier_events import TierSegment


def check(history: History, final: FinalState) -> list[str]:
    found: list[str] = []
    for log, states in tiers_of(history).states.items():
        for before, after in pairwise(states):
            leader_log = after.commit.leader_log
            if leader_log is not None and before.segments and _agrees(after):
                where = f"{log}: the takeover by broker {after.commit.broker}"
                where += f" in epoch {after.leader_epoch}"
                found += [f"{where} {text}" for text in _wrong(before, after, leader_log)]
    return found


def _agrees(state: TierState) -> bool:
    """Whether its commit is one that makes the manifest agree with the leader's log."""
    return any(isinstance(each, LeaderBegan | TruncatedAfter) for each in state.commit.records)


def _wrong(before: TierState, after: TierState, log: LeaderLog) -> Iterator[str]:
    log_start = max(before.log_start, log.log_start_offset)
    if before.end <= log_start or before.end < log.local_log_start_offset:
        return  # all segments leave, with the log start
    common = _common_end(before.segments, log)
    end = after.end if after.segments else before.segments[0].segment.base_offset
    if end > common:
        yield f"leaves segments up to {end}, the leader's log has them up to {common}"
    if max(end, log_start) < log.local_log_start_offset <= common:
        yield (
            f"cuts the segments at {end}, the leader's log has them up to {common}, and its files "
            f"begin at {log.local_log_start_offset}"
        )


def _common_end(segments: Sequence[TierSegment], log: LeaderLog) -> int:
    """The first offset of the segments that the leader's log lacks, or has in another leader epoch.

    What lies below the leader epochs that it knows, inside of a batch perhaps, is not known to
    differ.
    """
    epochs = [each for each in log.leader_epochs if each.start_offset < log.log_end_offset]
    bounds = [each.start_offset for each in epochs] + [log.log_end_offset]
    spans = {each.epoch: span for each, span in zip(epochs, pairwise(bounds), strict=True)}
    for batch in (batch for each in segments for batch in each.batches):
        start, end = spans.get(batch.leader_epoch, (0, 0))
        is_common = start <= max(batch.base_offset, bounds[0]) and batch.next_offset <= end
        if batch.next_offset > bounds[0] and not is_common:
            return batch.base_offset
    return segments[-1].segment.next_offset
