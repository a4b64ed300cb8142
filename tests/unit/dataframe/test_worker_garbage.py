"""Spark's Python processes look at what they imported no more than once."""

import subprocess
import sys

COLLECTED = """
import gc, sys
from types import SimpleNamespace
from sparklog.dataframe import worker_process
sys.modules["__main__"].__spec__ = SimpleNamespace(name={name!r})
worker_process.settle_process()
frozen = gc.get_freeze_count()
worker_process.settle_process()
print(frozen > 1000, gc.get_freeze_count() == frozen)
"""


def settled(name: str) -> str:
    command = [sys.executable, "-c", COLLECTED.format(name=name)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_what_a_worker_imported_is_set_aside_once() -> None:
    assert settled("pyspark.daemon") == "True True"


def test_a_users_own_process_is_left_alone() -> None:
    assert settled("pytest") == "False True"
