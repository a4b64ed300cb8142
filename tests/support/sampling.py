"""Which tests ``make test`` takes of those that take long, so that it ends in time.

Owns: the switch ``SPARKLOG_WHOLE`` (``make test-whole``), and the files and tests of which the rest
is left out without it.  Must not know pytest.

All that is left out has relatives that run: other cases of the same test, or the same steps in
another example.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Final

#: Whether everything is to run.
WHOLE: Final = bool(os.environ.get("SPARKLOG_WHOLE"))
#: Folders and files of whose tests every second or third case runs.
STEPS: Final = {
    "tests/applications/": 2,
    "tests/attacks/": 3,
    "tests/clients/": 2,
    "tests/compat/": 3,
    "tests/peers/": 2,
    "tests/process/": 2,
    "tests/spark/": 3,
    "tests/unit/dataframe/": 2,
    "tests/unit/driver/": 3,
    "tests/unit/executors/": 3,
    "tests/unit/remote_log/": 2,
    "tests/unit/storage/": 3,
    "tests/unit/wire/test_columns.py": 3,
    "tests/unit/wire/test_columns_encode.py": 3,
    "tests/unit/wire/test_record_slices.py": 3,
    "tests/unit/wire/test_wire_codec.py": 3,
}
#: Tests that are left out, by file, and which ones go through the same steps.
LEFT_OUT: Final = {
    "tests/applications/test_streams.py": {
        "test_the_word_count_survives_an_instance_and_is_reset": (
            "test_exactly_once_survives_an_instance_that_is_killed_at_work"
        ),
    },
    "tests/drill/test_tiered_drill.py": {
        "test_a_small_tiered_topic_survives_kills_and_the_loss_of_every_disk": (
            "tests/process/test_restore.py, the bucket of tests/chaos, test_tiered_under_load"
        ),
    },
    "tests/fuzz/test_command_line_fuzz.py": {
        "test_no_arguments_and_no_files_are_a_traceback": "tests/unit/cli, and `make fuzz`",
    },
    "tests/peers/test_compacted_transactions.py": {
        "test_the_same_batches_are_left": (
            "tests/peers/test_compaction.py, and the compaction of the simulation"
        ),
    },
    "tests/peers/test_dataframes.py": {
        "test_kafka_has_each_row_once_and_the_rows_of_a_task_in_order": (
            "tests/compat, where Kafka has what a DataFrame has written, and tests/spark"
        ),
    },
    "tests/peers/test_moved_partition_dirs.py": {
        "test_there_and_back": "tests/peers/test_files.py, which reads single files both ways",
    },
    "tests/process/test_bad_disks.py": {
        "test_a_full_disk_takes_records_again_once_the_bucket_is_back": (
            "tests/unit/executors/tiering/test_full_disks.py"
        ),
        "test_what_was_acknowledged_survives_a_stop_on_a_full_disk": (
            "test_a_full_disk_refuses_writes_serves_reads_and_recovers"
        ),
    },
    "tests/process/test_cluster_changes.py": {
        "test_a_removal_that_a_driver_has_left_is_taken_back_or_done": (
            "tests/unit/driver/launcher/test_fleet_changes.py"
        ),
        "test_a_directory_that_is_gone_is_replaced_once_others_lead_what_it_had": (
            "tests/unit/driver/launcher/test_broker_keeper.py"
        ),
        "test_a_directory_with_the_only_replica_is_not_replaced": (
            "tests/unit/driver/launcher/test_broker_keeper.py"
        ),
        "test_a_broker_that_hangs_is_removed_and_its_replicas_are_made_anew": (
            "tests/unit/driver/launcher/test_fleet_changes.py, and the hung brokers of tests/chaos"
        ),
        "test_brokers_are_added_to_a_running_cluster": (
            "tests/chaos/test_added_broker.py, test_replicas_follow_the_brokers_that_come_and_go"
        ),
    },
    "tests/process/test_damaged_journal.py": {
        "test_every_acknowledged_record_is_there_after_a_kill_and_a_repair": (
            "tests/unit/executors/broker/test_journal_commands.py"
        ),
    },
    "tests/process/test_internal_topics.py": {
        "test_its_replication_factor_follows_the_brokers": (
            "tests/unit/executors/broker/test_brokers_internal_topics.py"
        ),
        "test_the_offsets_topic_spreads_over_all_brokers": "the same",
    },
    "tests/process/test_restore.py": {
        "test_an_older_copy_of_the_journal_restores_what_the_bucket_has": (
            "test_a_cluster_comes_back_from_journal_and_bucket, and tests/unit/test_restoring.py"
        ),
    },
    "tests/process/test_serve.py": {
        "test_a_second_server_on_the_same_folder_is_refused": (
            "test_a_second_broker_is_locked_out_until_the_first_is_dead"
        ),
        "test_refusals_are_exit_code_1_and_one_line": "tests/unit/cli",
        "test_until_end_stops_at_the_end": "test_a_topic_from_the_command_line",
        "test_further_data_dirs_share_the_logs_and_one_may_be_missing": (
            "tests/process/test_bad_disks.py"
        ),
    },
    "tests/unit/driver/control_plane/test_control_planes_race.py": {
        "test_a_paused_one_wakes_up_fenced_and_there_is_one_history": (
            "the pauses of control planes in the simulation"
        ),
    },
    "tests/spark/test_compacted_topics.py": {
        "test_everything": (
            "tests/unit/dataframe, tests/peers/test_compaction.py, and the simulation's compaction"
        ),
    },
    "tests/spark/test_dataframe_write.py": {
        "test_another_cluster_by_its_address_and_a_topic_that_it_does_not_create": (
            "test_another_session_names_the_cluster_by_an_option, for reads"
        ),
    },
    "tests/spark/test_direct_writes.py": {
        "test_names_that_are_none_are_told_by_python": (
            "test_unusual_writes_are_sent_by_python, and tests/unit/dataframe"
        ),
        "test_a_leader_that_stands_still": "test_a_leader_that_dies, and the pauses of tests/chaos",
    },
    "tests/spark/test_dataframe_failover.py": {
        "test_a_leader_dies_during_a_read": (
            "test_a_leader_dies_during_a_write, and the readers of tests/chaos"
        ),
    },
    "tests/spark/test_dataframe_notebook.py": {
        "test_the_examples_of_rows_and_of_a_job": (
            "test_rows_come_back_as_they_were, and the README's own script"
        ),
    },
    "tests/spark/test_dataframe_pushdown.py": {
        "test_one_day_of_a_year_fetches_a_tenth_of_the_topic_at_most": (
            "test_the_newest_hour_is_read_alone_however_it_is_said"
        ),
    },
    "tests/spark/test_examples.py": {
        "test_quickstart": "test_the_demo, and the README's own script",
        "test_the_notebook_gives_what_it_shows": "the same",
        "test_kafka_client": "tests/clients",
        "test_failover": "test_a_leader_dies_during_a_write",
    },
    "tests/spark/test_launcher_cluster.py": {
        "test_executors_pack_what_is_written": (
            "tests/spark/test_packed_writes.py, in a local session"
        ),
    },
    "tests/spark/test_launcher_local.py": {
        "test_a_journal_in_a_bucket_brings_everything_back": (
            "tests/faults/test_journal_in_a_bucket.py"
        ),
    },
    "tests/spark/test_launcher_standalone.py": {
        "test_records_survive_a_stop_and_a_start": (
            "test_after_a_clean_stop_the_next_start_recovers_nothing, on local-cluster"
        ),
    },
    "tests/spark/test_packaging.py": {
        "test_a_python_without_sparklog_that_was_asked_for_is_named": (
            "test_the_readme_works_from_the_wheel_alone, whose workers get sparklog"
        ),
        "test_a_served_cluster_is_used_from_other_applications": (
            "test_another_session_names_the_cluster_by_an_option"
        ),
        "test_the_editable_install_is_found_from_an_empty_folder": (
            "test_the_readme_works_from_the_wheel_alone"
        ),
        "test_the_wheel_is_found_from_an_empty_folder": (
            "test_the_readme_works_from_the_wheel_alone"
        ),
    },
    "tests/spark/test_packed_writes.py": {
        "test_code_that_fills_several_classes": "test_plans_of_many_kinds_are_packed",
    },
    "tests/spark/test_unpacked_rows.py": {
        "test_operators_that_bring_their_plan_along": (
            "test_a_query_gets_the_same_rows_either_way"
        ),
    },
}


def left_out(node_ids: Iterable[str]) -> Iterator[str]:
    """Of the tests that were chosen, those that do not run; no test loses its only case.

    Of neighbouring tests other cases run, so that no client, for instance, is left out altogether.
    """
    cases: dict[str, list[str]] = {}
    places = tuple(STEPS)
    for node_id in node_ids:
        test, _, case = node_id.partition("[")
        file, _, name = test.partition("::")
        if name in LEFT_OUT.get(file, ()):
            yield node_id
        elif case and test.startswith(places):
            cases.setdefault(test, []).append(node_id)
    for number, (test, of_test) in enumerate(cases.items()):
        step = min(len(of_test), next(STEPS[place] for place in places if test.startswith(place)))
        kept = set(of_test[number % step :: step])
        yield from (each for each in of_test if each not in kept)
