"""The control plane's process as the launcher keeps it, with a fake child process."""

import json
import os
import sys
from pathlib import Path

import pytest

from sparklog.driver.launcher.control_plane_process import (
    ControlPlaneProcess,
    ControlProcessOptions,
)
from sparklog.errors import StartError
from sparklog.types import Endpoint
from tests.support.running import has_ended
from tests.support.waiting import wait_for

FAKE = str(Path(__file__).parents[2] / "process" / "fake_child.py")


def control_options(tmp_path: Path, mode: str = "serve") -> ControlProcessOptions:
    return ControlProcessOptions(
        journal_dir=str(tmp_path / "journal"),
        host="127.0.0.1",
        port=0,
        settings={"echo": str(tmp_path / "lives")},
        storage_options={"secret": "s"},
        journal_may_be_old=True,
        log_path=tmp_path / "control.log",
        command=[sys.executable, FAKE, mode],
    )


def lives_of(folder: Path) -> int:
    """Children that have written their line."""
    file = folder / "lives"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_a_killed_control_plane_is_restarted_on_its_port(tmp_path: Path) -> None:
    control = ControlPlaneProcess(control_options(tmp_path))
    control.start()
    try:
        first = control.pid
        assert first is not None
        wait_for(lambda: lives_of(tmp_path) == 1)
        os.kill(first, 9)
        wait_for(lambda: control.restarts == 1)
        wait_for(lambda: lives_of(tmp_path) == 2)
        assert control.pid not in (None, first)
        assert control.endpoint == Endpoint("127.0.0.1", 4321)
    finally:
        control.stop()
    lives = [json.loads(line) for line in (tmp_path / "lives").read_text().splitlines()]
    told = (
        *("port", "expected_cluster_id", "storage_options", "checks_remote_dir"),
        "journal_may_be_old",
    )
    assert [tuple(life[name] for name in told) for life in lives] == [
        (0, None, {"secret": "s"}, True, True),
        (4321, "fake-cluster", {"secret": "s"}, False, False),
    ]
    assert all(has_ended(life["pid"]) for life in lives)


def test_a_control_plane_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    control = ControlPlaneProcess(control_options(tmp_path, "crash"))
    with pytest.raises(StartError, match=r"the control plane does not start: .* exit code 7"):
        control.start()
    control.stop()
