"""The seeds that caught the deliberate bugs when they were last hunted.

CI tries these first, because hunting each bug from the first seed on takes minutes.  A bug that its
seed does not show any more is hunted again.  ``python -m tests.simulation.campaign --bug all``
hunts without them and prints how many seeds each bug took.
"""

from collections.abc import Mapping
from typing import Final

#: Those that the first seed shows are left out.
CAUGHT_AT: Final[Mapping[str, int]] = {
    "acknowledge_before_the_write": 2,
    "believe_a_failed_flush": 13,
    "forget_the_producer_snapshot": 10,
    "forget_the_log_start": 2,
    "journal_without_a_nonce": 6,
    "stale_controller_keeps_deciding": 6,
    "commit_below_min_insync_replicas": 4,
    "answer_latest_too_early": 74,
    "shrink_before_the_answer": 15,
    "commit_the_whole_log_of_a_new_leader": 15,
    "reopen_a_lost_log_in_the_isr": 14,
    "elect_outside_the_isr": 4,
    "elect_a_new_directory": 7,
    "answer_a_commit_before_it_is_replicated": 39,
    "stop_the_load_one_record_short": 7,
    "take_commits_of_any_generation": 22,
    "rebalance_in_the_same_generation": 5,
    "begin_behind_the_next_record": 7,
    "clean_past_the_stable_offset": 18,
    "clean_past_the_recovery_point": 1_046,
    "drop_tombstones_early": 116,
    "fetch_before_the_flush": 3,
    "believe_in_a_clean_stop": 6,
    "recover_from_the_worst_log": 65,
    "keep_no_replica_eligible": 6,
    "recover_without_waiting": 85,
    "drain_before_it_has_arrived": 5,
    "admit_a_former_process": 5,
    "stop_before_another_leads": 4,
    "acknowledge_when_replaced": 4,
    "serve_above_the_high_watermark_of_a_follower": 3,
    "truncate_one_batch_too_many": 9,
    "write_markers_before_the_decision_is_replicated": 10,
    "load_without_a_fence": 10,
    "initialize_in_the_same_epoch": 109,
    "forget_decided_transactions_at_a_load": 10,
    "read_past_the_stable_offset": 10,
    "lose_pending_offsets_at_a_load": 39,
    "commit_the_offsets_of_an_abort": 10,
    "drop_markers_early": 152,
    "elect_unclean_everywhere": 4,
    "restart_in_the_same_epoch": 1,
    "take_an_end_from_an_earlier_connection": 327,
    "take_a_cut_without_a_hold": 119,
    "take_batches_of_old_clients_without_verification": 222,
    "ignore_a_follower_about_to_join": 12,
    "delete_the_replaced_segments_first": 117,
    "copy_a_lost_log_under_the_same_leader_epoch": 459,
    "truncate_by_the_high_watermark": 1,
    "delete_local_segments_before_they_are_copied": 1_000_000,
    "copy_above_the_stable_offset": 1_000_001,
    "cut_the_aborted_transactions_at_the_segment": 1_000_014,
    "commit_after_a_newer_leader_has_begun": 1_000_030,
    "delete_garbage_without_a_delay": 1_000_002,
    "delete_a_live_segment_with_the_garbage": 1_000_006,
    "take_the_age_of_garbage_from_the_call": 1_002_640,
    "look_up_times_on_the_disk_only": 1_010_005,
    "commit_all_transactions_whose_markers_are_lost": 1_010_037,
    "move_the_log_start_in_the_manifest_first": 1_000_007,
    "move_the_log_start_as_a_follower": 1_000_000,
    "leave_the_bucket_without_asking_the_other_replicas": 1_010_027,
    "start_a_follower_without_leader_epochs": 1_000_006,
    "start_a_follower_without_producers": 1_000_000,
    "forget_an_epoch": 6,
    "keep_replicas_eligible_for_ever": 24,
    "skip_the_crc_in_recovery": 5,
}

#: Bugs that show others, too, what a checker is there for.  Only that checker counts.
CAUGHT_BY: Final[Mapping[str, str]] = {
    "commit_after_a_newer_leader_has_begun": "tier_leaders",
}
