"""A fake child process of the launcher or a supervisor: one line in, one line out.

It runs as ``fake_child.py MODE``.  After its answer it appends its line and process id to the file
that the setting "echo" names, if any.  Its incarnation is its process id.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

from sparklog.process import die_with_parent


def say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def main(mode: str) -> int:
    die_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    line = json.loads(sys.stdin.readline())
    code = answer(mode, line)
    echo = line.get("settings", {}).get("echo")
    if echo:
        with Path(echo).open("a") as file:
            file.write(json.dumps({"pid": os.getpid(), **line}) + "\n")
    while code is None:
        signal.pause()
    return code


def answer(mode: str, line: dict[str, Any]) -> int | None:
    """Answer as the mode says.  Returns the exit code, or None to keep running."""
    if mode == "refuse":
        say(ready=False, kind=line["kind"], error="because")
        return 3
    if mode == "crash":
        sys.stderr.write("one line of a log\n")
        return 7
    if mode == "garble":
        print("hello", flush=True)
        return 0
    if mode == "serve":
        port = line.get("port") or 4321
        say(
            ready=True,
            port=port,
            pid=os.getpid(),
            cluster_id="fake-cluster",
            secret="ab" * 32,
            incarnation=str(UUID(int=os.getpid())),
        )
    return None  # "silent" says nothing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
