"""Servers for a benchmark, started and stopped by process id.

Owns: ``sparklog serve --engine process`` and the bare loops as children.  Must not know the loads.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from sparklog.types import Endpoint

_READY = "ready bootstrap="
_ROOT = Path(__file__).resolve().parent.parent
_BROKER_MODULE = "sparklog.executors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running cluster: its address, the process that serves it, and its start in seconds."""

    bootstrap: Endpoint
    pid: int
    seconds_to_ready: float

    def broker_pids(self) -> list[int]:
        children = psutil.Process(self.pid).children(recursive=True)
        return [child.pid for child in children if child.cmdline()[-1] == _BROKER_MODULE]


@dataclass(frozen=True, slots=True, kw_only=True)
class BareServer:
    """A running bare loop."""

    endpoint: Endpoint
    pid: int


@contextmanager
def serve(folder: Path, brokers: int, *options: str, engine: str = "process") -> Iterator[Served]:
    """Run a cluster with its data in ``folder``; ``options`` are those of ``sparklog serve``."""
    command = [sys.executable, "-m", "sparklog.cli", "serve", "--engine", engine]
    command += ["--brokers", str(brokers), "--data-dir", str(folder), "--port", "0", *options]
    began = time.perf_counter()
    with _child(command) as (process, stdout):
        line = stdout.readline().strip()
        seconds = time.perf_counter() - began
        if not line.startswith(_READY):
            raise RuntimeError(f"sparklog serve said {line!r}")
        endpoint = Endpoint.parse(line.removeprefix(_READY))
        yield Served(bootstrap=endpoint, pid=process.pid, seconds_to_ready=seconds)


@contextmanager
def bare(kind: str, path: Path, size: int = 0) -> Iterator[BareServer]:
    """Run a bare loop; see ``benchmarks.bare``."""
    command = [sys.executable, "-m", "benchmarks.bare", kind, str(path), str(size)]
    with _child(command) as (process, stdout):
        yield BareServer(endpoint=Endpoint("127.0.0.1", int(stdout.readline())), pid=process.pid)


def resident_megabytes(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss) / 1e6


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process so far, in its own code and in the kernel."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@dataclass(slots=True)
class CpuMeter:
    """CPU per request of all servers together, run by run."""

    pids: Sequence[int]
    runs_us: list[float] = field(default_factory=list)

    def measure(self, requests: int, run: Callable[[], float]) -> float:
        """Measure a run, which returns its seconds; return its requests per second."""
        before = sum(map(cpu_seconds, self.pids))
        taken = run()
        self.runs_us.append((sum(map(cpu_seconds, self.pids)) - before) / requests * 1e6)
        return requests / taken

    @property
    def median_us(self) -> float:
        """The median in microseconds, without the warm-up."""
        return statistics.median(self.runs_us[1:])


@contextmanager
def _child(command: list[str]) -> Iterator[tuple["subprocess.Popen[str]", IO[str]]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT)
    try:
        assert process.stdout is not None
        yield process, process.stdout
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)
        if process.stdout is not None:
            process.stdout.close()
