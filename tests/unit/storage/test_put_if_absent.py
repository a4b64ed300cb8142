"""``put_if_absent`` on files, with racing processes and interrupted writes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from sparklog.storage_backends.base import TEMPORARY_PREFIX
from sparklog.storage_backends.local import LocalBackend

WRITERS = 4
ROUNDS = 40

#: Writes its number to one path after another; prints the rounds it won.
RACER = """
import sys
from sparklog.storage_backends.local import LocalBackend
root, number, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
backend = LocalBackend(root)
print("ready", flush=True)
sys.stdin.readline()
for round_ in range(rounds):
    if backend.put_if_absent(f"journal/{round_:020d}", number.encode() * 5000):
        print(round_)
"""

#: Writes commits until it is killed; prints each number once it is acknowledged.
COMMITTER = """
import sys
from sparklog.storage_backends.local import LocalBackend
backend = LocalBackend(sys.argv[1])
number = 0
while True:
    assert backend.put_if_absent(f"journal/{number:020d}", b"%d" % number * 20000)
    print(number, flush=True)
    number += 1
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_one_of_many_racing_processes_wins_each_round(tmp_path: Path) -> None:
    racers = [start(RACER, tmp_path, number, ROUNDS) for number in range(WRITERS)]
    try:
        ready = [racer.stdout.readline() for racer in racers if racer.stdout]
        outputs = [racer.communicate(timeout=60)[0] for racer in _released(racers)]
    finally:
        _end(racers)
    assert ready == ["ready\n"] * WRITERS
    won = {int(line): number for number, text in enumerate(outputs) for line in text.split()}
    backend = LocalBackend(tmp_path)
    names = [f"{round_:020d}" for round_ in range(ROUNDS)]
    assert sum(len(text.split()) for text in outputs) == ROUNDS
    assert backend.list("journal") == names == sorted(os.listdir(tmp_path / "journal"))
    assert [backend.read(f"journal/{name}") for name in names] == [
        str(won[round_]).encode() * 5000 for round_ in range(ROUNDS)
    ]


def test_a_killed_writer_leaves_whole_files_only(tmp_path: Path) -> None:
    committer = start(COMMITTER, tmp_path)
    try:
        assert committer.stdout is not None
        for _ in range(50):
            acknowledged = int(committer.stdout.readline())
        committer.send_signal(signal.SIGKILL)
        # communicate() would leave out the bytes that readline() has read ahead.
        rest = committer.stdout.read().split()
    finally:
        _end([committer])
    acknowledged = int(rest[-1]) if rest else acknowledged
    backend = LocalBackend(tmp_path)
    names = backend.list("journal")
    assert len(names) in (acknowledged + 1, acknowledged + 2)
    assert [backend.read(f"journal/{name}") for name in names] == [
        b"%d" % number * 20000 for number in range(len(names))
    ]


def test_leftovers_of_a_crash_are_never_listed_and_hinder_nobody(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path)
    backend.put("journal/1", b"one")
    (tmp_path / "journal" / f"{TEMPORARY_PREFIX}abc").write_bytes(b"half a comm")
    assert backend.put_if_absent("journal/2", b"two") is True
    assert backend.list("journal") == ["1", "2"]
    assert backend.remove_leftovers("") == 0
    assert backend.remove_leftovers("journal") == 1
    assert sorted(os.listdir(tmp_path / "journal")) == ["1", "2"]
    backend.remove_folder("journal")
    assert os.listdir(tmp_path) == []


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path / "data")
    backend.put("journal/state", b"x")
    backend.put_if_absent("journal/secret", b"x")
    backend.append("journal/log", b"x")
    backend.open("journal/segment", create=True).close()
    backend.lock("journal/lock").release()
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {
        "data": 0o700,
        "journal": 0o700,
        **dict.fromkeys(("state", "secret", "log", "segment", "lock"), 0o600),
    }


def _released(racers: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    """Start all processes before waiting for the output of the first one."""
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    return racers


def _end(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()
        process.communicate()
