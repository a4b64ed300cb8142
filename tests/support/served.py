"""``sparklog serve --engine process`` as tests see it: started, watched and stopped by process.

Owns: the process and what it leaves behind.  Must not know what is asked of the cluster.
"""

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
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
    ) -> None:
        """``before`` goes in front of the command; stderr goes to the file ``errors``."""
        self.data_dir = data_dir
        self._errors = errors or data_dir.with_name(data_dir.name + ".err")
        command = [sys.executable, "-m", "sparklog.cli", "serve", "--engine", "process"]
        command += ["--data-dir", str(data_dir), "--brokers", str(brokers), "--port", "0"]
        with self._errors.open("ab") as log:
            self.process = subprocess.Popen(
                [*before, *command, *options], stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.bootstrap = self._ready_line().strip().removeprefix("ready bootstrap=")

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

    def _ready_line(self) -> str:
        """Its first line on stdout; empty when it ends, or takes too long, without one."""
        lines: queue.Queue[str] = queue.Queue()
        stdout = self.process.stdout
        assert stdout is not None
        threading.Thread(target=lambda: lines.put(stdout.readline()), daemon=True).start()
        try:
            return lines.get(timeout=READY_SECONDS_MAX)
        except queue.Empty:
            self.process.kill()
            return lines.get(timeout=READY_SECONDS_MAX)

    def _close(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()
