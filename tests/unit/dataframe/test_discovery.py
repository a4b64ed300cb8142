"""A data source finds the cluster that an ancestor process announced."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.dataframe import discovery


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return


def test_nothing_announced() -> None:
    assert discovery.find_bootstrap_servers() is None


def test_a_grandchild_finds_what_was_announced_until_it_is_withdrawn() -> None:
    code = "from sparklog.dataframe.discovery import *; print(find_bootstrap_servers())"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], check=True)"

    def found() -> str:
        return subprocess.run(
            [sys.executable, "-c", child], check=True, capture_output=True, text=True
        ).stdout.strip()

    discovery.announce(os.getpid(), "h:1,h:2")
    assert found() == "h:1,h:2"
    discovery.withdraw(os.getpid(), "h:1,h:2")
    assert found() == "None"


def test_the_nearest_ancestor_wins() -> None:
    discovery.announce(os.getppid(), "far:1")
    assert discovery.find_bootstrap_servers() == "far:1"
    discovery.announce(os.getpid(), "near:1")
    assert discovery.find_bootstrap_servers() == "near:1"


def test_only_the_cluster_that_was_announced_last_is_withdrawn() -> None:
    discovery.announce(os.getpid(), "first:1")
    discovery.announce(os.getpid(), "second:1")
    discovery.withdraw(os.getpid(), "first:1")
    assert discovery.find_bootstrap_servers() == "second:1"
    discovery.withdraw(os.getpid(), "second:1")
    discovery.withdraw(os.getpid(), "second:1")
    assert discovery.find_bootstrap_servers() is None


def test_a_process_that_has_the_id_of_a_killed_driver_does_not_find_its_cluster() -> None:
    discovery.announce(os.getppid(), "far:1")
    discovery.announce(os.getpid(), "near:1")
    (file,) = Path(tempfile.gettempdir()).glob(f"sparklog-*/{os.getpid()}")
    file.write_text("near:1\nlong ago")
    assert discovery.find_bootstrap_servers() == "far:1"


def test_a_process_that_is_gone_is_not_announced() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    with pytest.raises(ProcessLookupError, match=str(gone.pid)):
        discovery.announce(gone.pid, "h:1")
