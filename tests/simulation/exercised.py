"""What a campaign must have exercised, and what of it the journal tells.

Owns: the names, and counting in the commits of a history.  Must not know how anything is provoked.
"""

from collections import Counter

from sparklog.metadata import BrokerFenced, PartitionImage
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from sparklog.types import NO_NODE
from tests.simulation.checkers.promises import promises_of
from tests.simulation.events import Committed, PartitionsAssigned
from tests.simulation.history import History

#: A campaign that lacks one of these proves less than it seems to.
EXERCISED = (
    "acked_commits",
    "acked_writes",
    "brokers_added",
    "brokers_removed",
    "bytes_compacted",
    "chain_member_kills",
    "chained_records",
    "chains_drained",
    "cleanings",
    "committed_reads",
    "config_changes",
    "coordinator_crashes",
    "coordinator_failovers",
    "coordinator_loads",
    "crashes",
    "cut_files",
    "cuts_taken",
    "drains_cancelled",
    "drains_finished",
    "duplicates_refused",
    "elections",
    "fenced_brokers",
    "fenced_controllers",
    "follower_reads",
    "group_rebalances",
    "groups_drained",
    "isr_expands",
    "isr_shrinks",
    "late_messages",
    "late_moments",
    "late_requests",
    "lost_disks",
    "lost_partition_dirs",
    "markers_committed",
    "member_kills",
    "member_pauses",
    "network_resets",
    "producer_pauses",
    "producers_fenced",
    "reads",
    "reassignments",
    "records_deleted",
    "recoveries_with_truncation",
    "rejoins_overtaken",
    "second_instances",
    "static_member_kills",
    "static_members_fenced",
    "static_members_replaced",
    "tables_read",
    "times_looked_up",
    "topics_created",
    "topics_deleted",
    "transaction_loads",
    "transaction_timeouts",
    "transactional_offset_commits",
    "transactions_aborted",
    "transactions_committed",
    "transactions_ended",
    "truncations",
    "unclean_elections",
    "unclean_losses",
    "unclean_recoveries",
    "unknown_outcomes",
    "zombie_transactions",
)

#: The same of a campaign that has seeds with tiered topics.
TIERS_EXERCISED = (
    "bucket_failures",
    "held_helpers",
    "helper_kills",
    "late_remote_calls",
    "lost_bucket_answers",
    "lost_buckets",
    "remote_reads",
    "slow_buckets",
    "tier_commits",
    "tier_leavings",
    "tier_objects_deleted",
    "tier_segments",
    "tier_starts",
    "tier_switches",
)

#: The same of a campaign that has seeds in which all replicas of tiered partitions are lost.
WIPES_EXERCISED = ("bucket_recoveries", "tiered_times_looked_up", "wiped_partitions")

#: The same of a campaign that has seeds in which new leaders lack what the bucket has.
TAKEOVERS_EXERCISED = ("tier_truncations",)

#: The same of one that has at least so many of these seeds: one of eight shows it.
MANY_TAKEOVERS = 50
MANY_TAKEOVERS_EXERCISED = ("tier_shortenings",)


def count_journal(history: History) -> Counter[str]:
    """``elections`` are those of another broker than led before."""
    found: Counter[str] = Counter()
    for _, committed in history.each(Committed):
        found["fenced_brokers"] += sum(isinstance(r, BrokerFenced) for r in committed.records)
    rebalances = {(e.group, e.generation) for _, e in history.each(PartitionsAssigned)}
    found["group_rebalances"] += len(rebalances)
    for log, copies in promises_of(history).copies.items():
        found["unclean_recoveries"] += len(copies.recoveries)
        if copies.unclean_topic:
            found["unclean_elections"] += sum(not recovery.held for recovery in copies.recoveries)
        found["unclean_losses"] += sum(recovery.excused for recovery in copies.recoveries)
        leader = NO_NODE
        before = copies.changes[0][1]
        for _, state in copies.changes:
            moved = NO_NODE not in (leader, state.leader) and state.leader != leader
            found["elections"] += moved
            found["coordinator_failovers"] += moved and log.topic == CONSUMER_OFFSETS
            leader = leader if state.leader == NO_NODE else state.leader
            found["isr_shrinks"] += not set(before.isr) <= set(state.isr)
            found["isr_expands"] += not set(state.isr) <= set(before.isr)
            found["reassignments"] += _is_moving(before) and not _is_moving(state)
            before = state
    return found


def _is_moving(state: PartitionImage) -> bool:
    return bool(state.adding or state.removing)
