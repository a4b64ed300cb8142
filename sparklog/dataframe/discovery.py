"""Discovery of the application's own cluster by ``format("sparklog")``.

Owns: one small file per Spark driver, named after the process id of its JVM, with the bootstrap
servers and the start time of that process.  Must not know how a cluster is started, or which
folders are private (``private_folder.py``).

Spark plans Python sources in processes of its own, which see neither the session's settings nor the
environment of the user's driver.  They descend from the JVM, and so find its file.  A killed driver
leaves its file behind, and its process id may be reused; the start time tells the processes apart.
The JVM's own part of a write finds the servers in a system property.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from sparklog.dataframe.private_folder import PrivateFolder, make_private_folder, private_folders

#: System property of the driver's JVM with the bootstrap servers that were announced last.
ANNOUNCED_PROPERTY: Final = "sparklog.bootstrap.servers"

#: Indexes of fields in /proc/PID/stat, behind the process's name (proc(5)): the parent, and the
#: start in ticks since the machine started.
_PARENT_FIELD = 1
_START_FIELD = 19


class _Process(NamedTuple):
    """The facts of a process that stay while it runs (unless its parent ends)."""

    parent: int
    start: str


def announce(jvm_pid: int, bootstrap_servers: str) -> None:
    """Let the data sources of a Spark driver find the cluster.

    Raises:
        OSError: the file cannot be written, or the driver's process is not visible here.
    """
    process = _process(jvm_pid)
    if process is None:
        raise ProcessLookupError(f"process {jvm_pid} cannot be seen")
    with make_private_folder() as folder:
        folder.write(str(jvm_pid), f"{bootstrap_servers}\n{process.start}")


def withdraw(jvm_pid: int, bootstrap_servers: str) -> None:
    """Remove an announcement, unless another cluster has replaced it."""
    for folder in private_folders():
        with folder, suppress(OSError):
            if folder.read(str(jvm_pid)).partition("\n")[0] == bootstrap_servers:
                folder.remove(str(jvm_pid))


def find_bootstrap_servers() -> str | None:
    """The bootstrap servers that the nearest ancestor process announced, or None."""
    folders = list(private_folders())
    try:
        for pid, process in _ancestors() if folders else ():
            for folder in folders:
                servers = _announced(folder, pid, process)
                if servers is not None:
                    return servers
    finally:
        for folder in folders:
            folder.close()
    return None


def _announced(folder: PrivateFolder, pid: int, process: _Process) -> str | None:
    try:
        servers, _, start = folder.read(str(pid)).partition("\n")
    except OSError:
        return None
    return servers if start == process.start else None


def _ancestors() -> Iterator[tuple[int, _Process]]:
    """This process, its parent, and so on, as far as they are visible."""
    pid = os.getpid()
    while pid > 1 and (process := _process(pid)) is not None:
        yield pid, process
        pid = process.parent


def _process(pid: int) -> _Process | None:
    """The facts of a process; None if it is not visible."""
    try:
        if os.path.exists("/proc/self/stat"):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return _Process(int(fields[_PARENT_FIELD]), fields[_START_FIELD])
        found = subprocess.run(
            ["ps", "-o", "ppid=,lstart=", "-p", str(pid)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
        )
        parent, *start = found.stdout.split()
        return _Process(int(parent), " ".join(start))
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None
