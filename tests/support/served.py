"""``sparklog serve --engine process`` as tests see it: started, watched and stopped by process.

Owns: the process and what it leaves behind.  Must not know what is asked of the cluster.
"""

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
GONE_SECONDS_MAX = 60.0


class ServedCluster:
    """A running cluster.  ``bootstrap`` is empty when it did not become ready."""

    def __init__(
        self,
        data_dir: Path,
        *options: str,
        brokers: int = 3,
        before: Sequence[str] = (),
        errors: Path | None = None,
        command: str = "serve",
    ) -> None:
        """``before`` goes in front of the command; stderr goes to the file ``errors``.

        ``command`` may also be "restore"; ``lines`` are what it says before it is ready.
        """
        self.data_dir = data_dir
        self._errors = errors or data_dir.with_name(data_dir.name + ".err")
        arguments = [sys.executable, "-m", "sparklog.cli", command, "--engine", "process"]
        arguments += ["--data-dir", str(data_dir), "--brokers", str(brokers), "--port", "0"]
        with self._errors.open("ab") as log:
            self.process = subprocess.Popen(
                [*before, *arguments, *options], stdout=subprocess.PIPE, stderr=log, text=True
            )
        *self.lines, last = self._lines_until_ready()
        self.bootstrap = last.strip().removeprefix("ready bootstrap=")

    @property
    def errors(self) -> str:
        """What it said on stderr."""
        return self._errors.read_text(errors="replace")

    def wait(self) -> int:
        """The exit code of one that ends by itself."""
        code = self.process.wait(STOP_SECONDS_MAX)
        self._close()
        return code

    def stop(self) -> int:
        """SIGTERM; the exit code.  Afterwards none of its processes is left."""
        everything = self._descendants()
        self.process.send_signal(signal.SIGTERM)
        code = self.wait()
        _, alive = psutil.wait_procs(everything, timeout=GONE_SECONDS_MAX)
        assert alive == []
        return code

    def kill(self) -> None:
        """For the end of a test that failed; children die with their parent."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(STOP_SECONDS_MAX)
        self._close()

    def broker_pids(self) -> set[int]:
        found = set()
        for process in self._descendants():
            with suppress(psutil.NoSuchProcess):  # one that is just ending
                if "sparklog.executors" in process.cmdline():
                    found.add(process.pid)
        return found

    def _descendants(self) -> list[psutil.Process]:
        found: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        return found

    def _lines_until_ready(self) -> list[str]:
        """Its lines on stdout up to the ready line; the last one is empty when it ends, or takes
        too long, without that."""
        lines: queue.Queue[list[str]] = queue.Queue()
        stdout = self.process.stdout
        assert stdout is not None

        def read() -> None:
            found = [stdout.readline()]
            while found[-1] and not found[-1].startswith("ready "):
                found.append(stdout.readline())
            lines.put(found)

        threading.Thread(target=read, daemon=True).start()
        try:
            return lines.get(timeout=READY_SECONDS_MAX)
        except queue.Empty:
            self.process.kill()
            return lines.get(timeout=READY_SECONDS_MAX)

    def _close(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def serving(data_dir: Path, *options: str, brokers: int = 3) -> Iterator[ServedCluster]:
    """A cluster that must become ready and, if the body does not fail, stop cleanly."""
    served = ServedCluster(data_dir, *options, brokers=brokers)
    try:
        assert served.bootstrap, served.errors
        yield served
        assert served.stop() == 0
    finally:
        served.kill()
