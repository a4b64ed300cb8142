import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from sparklog.process import (
    Child,
    ChildError,
    child_environment,
    describe_end,
    local_folder,
    python_command,
    spawn_child,
    start_child,
)
from tests.support.running import has_ended
from tests.support.waiting import wait_for

FAKE = str(Path(__file__).with_name("fake_child.py"))


def fake(mode: str) -> list[str]:
    return [sys.executable, FAKE, mode]


def test_a_child_gets_its_line_and_says_that_it_is_ready() -> None:
    child = spawn_child(fake("serve"), '{"port": 17}')
    try:
        assert (child.ready["ready"], child.ready["port"], child.poll()) == (True, 17, None)
        assert child.ready["pid"] == child.pid
        assert os.getsid(child.pid) == child.pid
        child.terminate()
        assert child.wait(60.0) == 0
    finally:
        child.close()


def test_a_child_that_refuses_says_why() -> None:
    with pytest.raises(ChildError, match="because") as caught:
        spawn_child(fake("refuse"), '{"kind": "locked"}')
    assert caught.value.kind == "locked"


def test_a_child_that_dies_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(ChildError, match="exit code 7") as caught:
        spawn_child(fake("crash"), "{}", tmp_path / "logs" / "child.log")
    assert caught.value.kind == "died"
    assert str(caught.value).endswith("child.log ends with:\none line of a log")


def test_a_child_that_talks_nonsense_is_refused() -> None:
    with pytest.raises(ChildError, match="said 'hello'"):
        spawn_child(fake("garble"), "{}")


def test_a_silent_child_is_ended_at_the_deadline() -> None:
    before = set(psutil.Process().children())
    with pytest.raises(ChildError, match=r"did not become ready in 0.2 s") as caught:
        spawn_child(fake("silent"), "{}", ready_timeout=0.2)
    assert caught.value.kind == "timeout"
    assert set(psutil.Process().children()) <= before


def test_a_missing_program_is_an_error() -> None:
    with pytest.raises(ChildError, match="cannot start"):
        spawn_child(["/no/such/program"], "{}")


def test_a_child_outlives_the_thread_that_asked_for_it() -> None:
    spawned: list[Child] = []
    thread = threading.Thread(target=lambda: spawned.append(spawn_child(fake("serve"), "{}")))
    thread.start()
    thread.join()
    try:
        assert spawned[0].wait(0.3) is None
    finally:
        spawned[0].close()


def test_a_killed_child_tells_the_signal() -> None:
    child = spawn_child(fake("serve"), "{}")
    os.kill(child.pid, 9)
    assert describe_end(child, child.wait(60.0) or 0) == "was ended by SIGKILL"
    child.close()


def test_children_die_with_their_parent_down_the_chain() -> None:
    script = (
        "import sys, time\n"
        "from sparklog.process import spawn_child\n"
        f"child = spawn_child({fake('serve')!r}, '{{}}')\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env=child_environment()
    )
    assert parent.stdout is not None
    grandchild = int(parent.stdout.readline())
    assert not has_ended(grandchild)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: has_ended(grandchild))


def test_a_child_whose_parent_is_gone_already_does_not_start() -> None:
    environment = {**child_environment(), "SPARKLOG_PARENT_PID": "1"}
    done = subprocess.run(
        fake("serve"), input=b"{}\n", capture_output=True, env=environment, timeout=30
    )
    assert (done.returncode, done.stdout) == (1, b"")


def test_threads_of_a_child_share_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    assert child_environment()["MALLOC_ARENA_MAX"] == "1"
    monkeypatch.setenv("MALLOC_ARENA_MAX", "4")
    assert child_environment()["MALLOC_ARENA_MAX"] == "4"


def test_a_long_log_is_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.process.LOG_BYTES_MAX", 10)
    log = tmp_path / "child.log"
    log.write_text("x" * 11)
    child = start_child(fake("crash"), "{}", log)
    assert child.wait(30.0) == 7
    child.close()
    assert (log.read_text(), (tmp_path / "child.log.1").read_text()) == (
        "one line of a log\n",
        "x" * 11,
    )


def test_the_line_is_read_across_pieces_and_deadlines(tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    script = (
        "import pathlib, sys, time\n"
        "print('a', end='', flush=True)\n"
        "while not pathlib.Path(sys.argv[1]).exists():\n"
        "    time.sleep(0.01)\n"
        "print('b\\nc')\n"
    )
    child = start_child([sys.executable, "-c", script, str(go_on)], "{}")
    lines = [child.read_line(0.01)]
    go_on.touch()
    lines += [child.read_line(30.0), child.read_line(30.0)]
    assert lines == [None, "ab", "c"]
    child.close()


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("/data/x", Path("/data/x")),
        ("file:///data/a%20b", Path("/data/a b")),
        ("memory://x", None),
        ("rel", Path("rel").absolute()),
        ("~/data", Path.home() / "data"),
    ],
)
def test_only_files_have_a_local_folder(location: str, folder: Path | None) -> None:
    assert local_folder(location) == folder


def test_modules_run_without_the_working_folder_on_their_path() -> None:
    assert python_command("a.b") == [sys.executable, "-P", "-m", "a.b"]


def test_a_log_is_for_this_user_alone_and_not_written_through_a_link(tmp_path: Path) -> None:
    log = tmp_path / "data" / "logs" / "child.log"
    child = start_child(fake("crash"), "{}", log)
    assert child.wait(30.0) == 7
    child.close()
    modes = {path.name: path.stat().st_mode & 0o777 for path in (log, *log.parents[:2])}
    assert modes == {"child.log": 0o600, "logs": 0o700, "data": 0o700}
    target = tmp_path / "target"
    target.write_text("untouched")
    log.unlink()
    log.symlink_to(target)
    with pytest.raises(ChildError, match=r"child\.log"):
        start_child(fake("crash"), "{}", log)
    assert target.read_text() == "untouched"
