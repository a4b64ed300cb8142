"""The log start of a tiered log never goes back, unless a log begins anew that was lost.

A leader moves it in its log first and in the manifest then, unless records between the bucket and
its files are lost.  A leader that has copied a segment tells clients no earlier start than the
manifest had before, and at the end no log starts below its manifest.
"""

from collections.abc import Iterator
from itertools import pairwise

from sparklog.remote_log.manifest_records import LogStartMoved, SegmentAdded
from sparklog.types import NO_NODE
from tests.simulation.checkers.promises import Promises, promises_of
from tests.simulation.checkers.tiers import TierState, tiers_of
from tests.simulation.events import Fetched, LogId
from tests.simulation.final_state import FinalState
from tests.simulation.history import History
from tests.simulation.tier_events import ReadRefused


def check(history: History, final: FinalState) -> list[str]:
    tiers = tiers_of(history)
    found: list[str] = []
    promises = promises_of(history)
    for log, states in tiers.states.items():
        found += _backwards(promises, log, states)
        found += _ahead_of_the_log(log, states)
    found += _told(history)
    for replica in final.tiered_replicas:
        state = tiers.last(replica.log)
        if replica.leads and state is not None and replica.log_start < state.log_start:
            found.append(
                f"{replica.log}: the log starts at {replica.log_start} at the end, the manifest at "
                f"{state.log_start}"
            )
    found += _refused(history, final)
    return found


def _backwards(promises: Promises, log: LogId, states: list[TierState]) -> Iterator[str]:
    for before, after in pairwise(states):
        begins_anew = promises.may_be_lost(log, 0, after.at) and not after.segments
        if after.log_start < before.log_start and not begins_anew:
            yield f"{log}: the manifest starts at {after.log_start}, after {before.log_start}"


def _ahead_of_the_log(log: LogId, states: list[TierState]) -> Iterator[str]:
    for before, after in pairwise(states):
        known = after.commit.log_start
        is_gap = after.log_start > before.end or not before.segments
        moves = any(isinstance(each, LogStartMoved) for each in after.commit.records)
        if moves and known >= 0 and not is_gap and after.log_start > known:
            yield (
                f"{log}: broker {after.commit.broker} has moved the start of the manifest to "
                f"{after.log_start}, its log starts at {known}"
            )


def _told(history: History) -> Iterator[str]:
    """By leaders that have taken over the manifest's log start for sure: they have copied since."""
    floors: dict[LogId, list[tuple[int, int, int]]] = {}
    for log, states in tiers_of(history).states.items():
        for state in states:
            if any(isinstance(each, SegmentAdded) for each in state.commit.records):
                floors.setdefault(log, []).append((state.at, state.leader_epoch, state.log_start))
    for _, read in history.each(Fetched):
        if read.follower != NO_NODE:
            continue
        floor = max(
            (
                start
                for at, epoch, start in floors.get(read.log, ())
                if at < read.asked and epoch == read.leader_epoch
            ),
            default=0,
        )
        if read.log_start < floor:
            yield (
                f"{read.log}: {read.reader} was told the log start {read.log_start} in epoch "
                f"{read.leader_epoch}, the manifest had {floor} before"
            )


def _refused(history: History, final: FinalState) -> Iterator[str]:
    """Reads of offsets that were in the log all the time."""
    tiers, promises = tiers_of(history), promises_of(history)
    starts = {log: state.start for log, state in final.logs.items()}
    for _, refused in history.each(ReadRefused):
        start = starts.get(refused.log)
        if start is None or promises.may_be_lost(refused.log, 0):
            continue
        state = tiers.state_at(refused.log, refused.asked - 1)
        if state is not None and start <= refused.offset < state.end:
            yield (
                f"{refused.log}: {refused.reader} was refused offset {refused.offset} as out of "
                f"range; the log starts at {start} at the end, and the bucket had it up to "
                f"{state.end}"
            )
