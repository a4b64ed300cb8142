import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sparklog.executors.supervisor.supervisor import (
    Supervisor,
    SupervisorError,
    SupervisorPayload,
    SupervisorReport,
    own_executor_id,
    run_task,
)
from sparklog.process import child_environment, python_command
from tests.support.running import has_ended
from tests.support.waiting import wait_for

FAKE = str(Path(__file__).with_name("fake_child.py"))


def payload(folder: Path, mode: str = "serve", **changes: Any) -> SupervisorPayload:
    broker = {
        "data_dir": str(folder),
        "broker_id": 1,
        "new": True,
        "controller": "127.0.0.1:9",
        "secret": "ab" * 32,
        "port": 0,
        "settings": {"echo": str(folder / "lives")},
    }
    broker |= changes.pop("broker", {})
    return SupervisorPayload(
        broker=broker,
        command=[sys.executable, FAKE, mode],
        **{"backoff": 0.001, "fast_failures_max": 3, **changes},
    )


def lives(folder: Path) -> list[dict[str, Any]]:
    path = folder / "lives"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def in_background(supervisor: Supervisor) -> tuple[threading.Thread, list[SupervisorReport]]:
    reports: list[SupervisorReport] = []
    thread = threading.Thread(target=lambda: reports.append(supervisor.run()))
    thread.start()
    return thread, reports


def test_a_killed_broker_is_restarted_with_its_port_and_never_new_again(tmp_path: Path) -> None:
    supervisor = Supervisor(payload(tmp_path), executor_id="7")
    thread, reports = in_background(supervisor)
    wait_for(lambda: len(lives(tmp_path)) == 1)
    wait_for(lambda: supervisor._child is not None)
    os.kill(lives(tmp_path)[0]["pid"], signal.SIGKILL)
    wait_for(lambda: len(lives(tmp_path)) == 2)
    wait_for(lambda: supervisor._child is not None)
    supervisor.stop()
    thread.join(60)
    assert reports == [SupervisorReport(outcome="stopped", executor_id="7", restarts=1)]
    assert [(life["new"], life["port"], life["executor_id"]) for life in lives(tmp_path)] == [
        (True, 0, "7"),
        (False, 4321, "7"),
    ]


def test_a_broker_that_was_asked_to_stop_ends_the_supervision(tmp_path: Path) -> None:
    thread, reports = in_background(Supervisor(payload(tmp_path), executor_id=None))
    wait_for(lambda: len(lives(tmp_path)) == 1)
    os.kill(lives(tmp_path)[0]["pid"], signal.SIGTERM)
    thread.join(60)
    assert reports == [SupervisorReport(outcome="stopped")]


def test_a_broker_that_was_asked_to_stop_while_it_started_is_not_started_again(
    tmp_path: Path,
) -> None:
    asked = payload(tmp_path, "refuse", broker={"kind": "stopped"})
    assert Supervisor(asked, executor_id="7").run() == SupervisorReport(
        outcome="stopped", executor_id="7"
    )
    assert len(lives(tmp_path)) == 1


def test_a_broker_that_never_stays_up_fails_with_its_error(tmp_path: Path) -> None:
    report = Supervisor(payload(tmp_path, "crash"), executor_id="7").run()
    assert (report.outcome, report.restarts, len(lives(tmp_path))) == ("failed", 2, 3)
    assert report.error.startswith("broker 1 failed 3 times in a row; the last time: ")
    assert report.error.endswith("broker-1.log ends with:\n" + "\n".join(["one line of a log"] * 3))


@pytest.mark.parametrize("kind", ["not_here", "locked", "foreign_cluster", "storage", "config"])
def test_what_another_try_cannot_mend_is_reported_at_once(tmp_path: Path, kind: str) -> None:
    asked = payload(tmp_path, "refuse", broker={"kind": kind})
    assert Supervisor(asked, executor_id="7").run() == SupervisorReport(
        outcome="refused", executor_id="7", kind=kind, error="because"
    )
    assert len(lives(tmp_path)) == 1


def test_a_task_on_another_executor_does_nothing(tmp_path: Path) -> None:
    report = Supervisor(payload(tmp_path, executor_id="3"), executor_id="7").run()
    assert report == SupervisorReport(
        outcome="elsewhere", executor_id="7", error="this is executor 7"
    )
    assert list(tmp_path.iterdir()) == []


def test_without_its_directory_an_old_broker_is_not_here(tmp_path: Path) -> None:
    report = Supervisor(payload(tmp_path, broker={"new": False}), executor_id=None).run()
    assert report == SupervisorReport(
        outcome="refused", kind="not_here", error=f"there is no {tmp_path / 'broker-1'}"
    )
    assert list(tmp_path.iterdir()) == []


def test_with_its_directory_it_runs(tmp_path: Path) -> None:
    (tmp_path / "broker-1").mkdir()
    supervisor = Supervisor(payload(tmp_path, broker={"new": False}), executor_id=None)
    thread, reports = in_background(supervisor)
    wait_for(lambda: supervisor._child is not None)
    supervisor.stop()
    thread.join(60)
    assert [report.outcome for report in reports] == ["stopped"]


def test_a_task_answers_with_a_report_and_fails_with_an_error(tmp_path: Path) -> None:
    asked = payload(tmp_path, "refuse", broker={"kind": "locked"}).to_json().encode()
    [answer] = run_task(iter([asked]))
    assert json.loads(answer)["kind"] == "locked"
    with pytest.raises(SupervisorError, match="failed 3 times in a row"):
        list(run_task(iter([payload(tmp_path, "crash").to_json().encode()])))


def test_as_a_process_it_passes_a_stop_on_and_reports(tmp_path: Path) -> None:
    process = subprocess.Popen(
        python_command("sparklog.executors.supervisor"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=child_environment(),
    )
    assert process.stdin is not None
    process.stdin.write(payload(tmp_path).to_json().encode() + b"\n")
    process.stdin.flush()
    wait_for(lambda: len(lives(tmp_path)) == 1)
    broker = lives(tmp_path)[0]["pid"]
    process.terminate()
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, json.loads(output)["outcome"]) == (0, "stopped")
    assert has_ended(broker)


def test_a_broker_dies_with_its_supervisor(tmp_path: Path) -> None:
    process = subprocess.Popen(
        python_command("sparklog.executors.supervisor"),
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=child_environment(),
    )
    assert process.stdin is not None
    process.stdin.write(payload(tmp_path).to_json().encode() + b"\n")
    process.stdin.flush()
    wait_for(lambda: len(lives(tmp_path)) == 1)
    broker = lives(tmp_path)[0]["pid"]
    process.kill()
    process.wait()
    process.stdin.close()
    wait_for(lambda: has_ended(broker))


def test_outside_of_an_executor_there_is_no_executor_id() -> None:
    assert own_executor_id() is None
