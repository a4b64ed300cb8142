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
#: Files of whose tests every second case runs.
HALVED: Final = (
    "tests/clients/test_transactional_producers.py",
    "tests/compat/test_kafka_source_and_sink.py",
    "tests/peers/test_transactional_producer.py",
    "tests/spark/test_dataframe_pushdown.py",
    "tests/spark/test_dataframe_read.py",
    "tests/spark/test_dataframe_write.py",
    "tests/spark/test_direct_writes.py",
    "tests/spark/test_keyed_pieces.py",
    "tests/spark/test_packed_writes.py",
    "tests/spark/test_sent_pieces.py",
    "tests/spark/test_unpacked_rows.py",
    "tests/unit/executors/log/test_log_life.py",
)
#: Tests that are left out, and which ones go through the same steps.
LEFT_OUT: Final = {
    "tests/spark/test_examples.py::test_quickstart": "test_the_demo, and the README's own script",
    "tests/spark/test_examples.py::test_the_notebook_gives_what_it_shows": "the same",
    "tests/spark/test_packaging.py::test_a_served_cluster_is_used_from_other_applications": (
        "test_another_session_names_the_cluster_by_an_option"
    ),
    "tests/spark/test_packaging.py::test_the_editable_install_is_found_from_an_empty_folder": (
        "test_the_wheel_is_found_from_an_empty_folder"
    ),
    "tests/spark/test_packed_writes.py::test_code_that_fills_several_classes": (
        "test_plans_of_many_kinds_are_packed"
    ),
    "tests/spark/test_launcher_standalone.py::test_records_survive_a_stop_and_a_start": (
        "test_after_a_clean_stop_the_next_start_recovers_nothing, on local-cluster"
    ),
    "tests/peers/test_moved_partition_dirs.py::test_there_and_back": (
        "tests/peers/test_files.py, which reads single files both ways"
    ),
}


def left_out(node_ids: Iterable[str]) -> Iterator[str]:
    """Of the tests that were chosen, those that do not run; no test loses its only case.

    Of neighbouring tests other cases run, so that no client, for instance, is left out altogether.
    """
    cases: dict[str, list[str]] = {}
    for node_id in node_ids:
        test, _, case = node_id.partition("[")
        if node_id in LEFT_OUT:
            yield node_id
        elif case and test.partition("::")[0] in HALVED:
            cases.setdefault(test, []).append(node_id)
    for number, of_test in enumerate(cases.values()):
        if len(of_test) > 1:
            yield from of_test[(number + 1) % 2 :: 2]
