"""One checker per file: ``check(history, final) -> violations``, pure functions that read all.

Owns: the list of them.  Must not know how histories come about.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tests.simulation.checkers import (
    acknowledged,
    atomicity,
    committed,
    committed_offsets,
    committed_reads,
    compaction,
    consistent_cuts,
    decisions,
    deletions,
    duplicates,
    elections,
    exactly_once,
    fenced_producers,
    gapless,
    ghosts,
    group_owners,
    handover,
    journal,
    leaders,
    metadata,
    monotone,
    nothing_skipped,
    order,
    progress,
    read_bounds,
    replicas,
    same_record,
    stable_offsets,
    tier_coverage,
    tier_followers,
    tier_leaders,
    tier_log_start,
    tier_objects,
    tier_segments,
    tier_takeovers,
    times,
)
from tests.simulation.final_state import FinalState
from tests.simulation.history import History

Check: TypeAlias = Callable[[History, FinalState], list[str]]

CHECKERS: Mapping[str, Check] = {
    "acknowledged": acknowledged.check,
    "atomicity": atomicity.check,
    "committed": committed.check,
    "committed_offsets": committed_offsets.check,
    "committed_reads": committed_reads.check,
    "compaction": compaction.check,
    "consistent_cuts": consistent_cuts.check,
    "decisions": decisions.check,
    "deletions": deletions.check,
    "duplicates": duplicates.check,
    "elections": elections.check,
    "exactly_once": exactly_once.check,
    "fenced_producers": fenced_producers.check,
    "gapless": gapless.check,
    "ghosts": ghosts.check,
    "group_owners": group_owners.check,
    "handover": handover.check,
    "journal": journal.check,
    "leaders": leaders.check,
    "metadata": metadata.check,
    "monotone": monotone.check,
    "nothing_skipped": nothing_skipped.check,
    "order": order.check,
    "progress": progress.check,
    "read_bounds": read_bounds.check,
    "replicas": replicas.check,
    "same_record": same_record.check,
    "stable_offsets": stable_offsets.check,
    "tier_coverage": tier_coverage.check,
    "tier_followers": tier_followers.check,
    "tier_leaders": tier_leaders.check,
    "tier_log_start": tier_log_start.check,
    "tier_objects": tier_objects.check,
    "tier_segments": tier_segments.check,
    "tier_takeovers": tier_takeovers.check,
    "times": times.check,
}


def violations(history: History, final: FinalState) -> list[str]:
    """What every checker found, each line with the checker's name in front."""
    return [
        f"{name}: {violation}"
        for name, check in CHECKERS.items()
        for violation in check(history, final)
    ]
