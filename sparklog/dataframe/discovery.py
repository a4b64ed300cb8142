"""How ``format("sparklog")`` finds the cluster of its own application.

Owns: one small file per Spark driver, named after the process id of its JVM, that holds the
bootstrap servers.  Spark plans Python sources in processes of its own that see neither the
session's settings nor the environment of the user's driver; they descend from that JVM, and so
find it.
Must not know what starts a cluster.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def announce(jvm_pid: int, bootstrap_servers: str) -> None:
    """Let the data sources of that Spark driver find the cluster."""
    folder = _folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    temporary = folder / f".{jvm_pid}.{os.getpid()}"
    temporary.write_text(bootstrap_servers)
    temporary.replace(folder / str(jvm_pid))


def withdraw(jvm_pid: int, bootstrap_servers: str) -> None:
    """Take an announcement back, unless another cluster's has replaced it."""
    file = _folder() / str(jvm_pid)
    with suppress(FileNotFoundError):
        if file.read_text() == bootstrap_servers:
            file.unlink()


def find_bootstrap_servers() -> str | None:
    """What the nearest ancestor process announced, or None."""
    folder = _folder()
    if not _is_ours(folder):
        return None
    for pid in _ancestors():
        try:
            return (folder / str(pid)).read_text()
        except OSError:
            continue
    return None


def _folder() -> Path:
    return Path(tempfile.gettempdir()) / f"sparklog-{os.getuid()}"


def _is_ours(folder: Path) -> bool:
    """Nobody else may tell us where our cluster is."""
    try:
        return folder.stat().st_uid == os.getuid()
    except OSError:
        return False


def _ancestors() -> Iterator[int]:
    pid = os.getpid()
    while pid > 1:
        yield pid
        pid = _parent(pid)


def _parent(pid: int) -> int:
    """The parent's process id, 0 when it cannot be learnt."""
    try:
        if os.path.exists("/proc/self/stat"):
            text = Path(f"/proc/{pid}/stat").read_text()
            return int(text.rpartition(")")[2].split()[1])
        found = subprocess.run(
            ["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True
        )
        return int(found.stdout)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return 0
