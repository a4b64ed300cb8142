"""Spark's Python processes exclude imported objects from garbage collection."""

import subprocess
import sys

COLLECTED = """
import gc, sys
from types import SimpleNamespace
from sparklog.dataframe import worker_process
sys.modules["__main__"].__spec__ = SimpleNamespace(name={name!r})
worker_process.freeze_imported_objects()
frozen = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
worker_process.freeze_imported_objects()
print(frozen > 1000, gc.get_freeze_count() == frozen)
import pyarrow
worker_process.freeze_imported_objects()
print(gc.get_freeze_count() > frozen + 1000)
"""


def after_collection(name: str) -> list[str]:
    command = [sys.executable, "-c", COLLECTED.format(name=name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_what_a_worker_imported_is_set_aside_once_and_again_when_there_is_more() -> None:
    assert after_collection("pyspark.daemon") == ["True True", "True"]


def test_a_users_own_process_is_left_alone() -> None:
    assert after_collection("pytest") == ["False True", "False"]
