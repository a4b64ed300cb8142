"""Members of consumer groups of Go's clients, franz-go and sarama: one process each.

Owns: building the program in ``go_members`` once, and its pipes.  Must not know what a test wants.
"""

import fcntl
import hashlib
import json
import queue
import shutil
import subprocess
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.clients.group_members import Member
from tests.support.kafka_jars import CACHE

SOURCE = Path(__file__).with_name("go_members")
BUILD_SECONDS_MAX = 600.0
ANSWER_SECONDS_MAX = 60.0
_POLL_S = 0.05


class GoMember(Member):
    """A member in a process of its own, which always polls by itself."""

    def __init__(
        self, client: str, bootstrap: str, group: str, topic: str, instance: str, strategy: str
    ) -> None:
        super().__init__()
        self._owned: set[int] = set()
        self._answers: dict[str, Any] = {}
        arguments = {
            "client": client,
            "bootstrap": bootstrap,
            "group": group,
            "topic": topic,
            "instance": instance,
            "strategy": strategy,
        }
        command = [str(go_program()), *(f"-{name}={value}" for name, value in arguments.items())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def poll(self) -> None:
        try:
            self._take(self._events.get(timeout=_POLL_S))
            while True:
                self._take(self._events.get_nowait())
        except queue.Empty:
            assert self._process.poll() is None, "the member has ended"

    @property
    def assigned(self) -> set[int]:
        return self._owned

    def commit(self) -> None:
        self._say("commit")
        assert self._await("committed") == ""

    def close(self) -> None:
        try:
            self._say("close")
            self._await("closed")
            self._process.wait(ANSWER_SECONDS_MAX)
        finally:
            self._process.kill()
            self._process.wait(ANSWER_SECONDS_MAX)
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()

    def _say(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def _await(self, name: str) -> Any:
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while name not in self._answers:
            self._take(self._events.get(timeout=max(deadline - time.monotonic(), 0.001)))
        return self._answers.pop(name)

    def _take(self, event: dict[str, Any]) -> None:
        for name, value in event.items():
            if name == "assigned":
                self._owned = set(value)
            elif name == "revoked":
                self.revocations += 1
            elif name == "record":
                self.seen.append((value[0], value[1]))
            else:
                self._answers[name] = value

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._events.put(json.loads(line))


@cache
def go_program() -> Path:
    """The program, built once for each version of its source.  Skips the test without Go."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed, so franz-go and sarama are not tried")
    sources = sorted(path for path in SOURCE.iterdir() if path.suffix in (".go", ".mod", ".sum"))
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    program = CACHE / f"go-members-{version}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "go.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            made = program.with_suffix(".new")
            done = subprocess.run(
                [go, "build", "-o", str(made), "."],
                cwd=SOURCE,
                capture_output=True,
                text=True,
                timeout=BUILD_SECONDS_MAX,
            )
            if done.returncode:
                pytest.skip(f"Go's clients could not be built here: {done.stderr[-500:]}")
            made.rename(program)
    return program
