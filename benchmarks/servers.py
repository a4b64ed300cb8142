"""Servers for a benchmark, started and stopped by process id.

Owns: ``sparklog serve --engine process`` and the bare loops as children.  Must not know the loads.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from sparklog.types import Endpoint

READY = "ready bootstrap="


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running cluster: where it is, the process that serves it, and how long it took to start."""

    bootstrap: Endpoint
    pid: int
    seconds_to_ready: float

    def broker_pids(self) -> list[int]:
        children = psutil.Process(self.pid).children(recursive=True)
        return [child.pid for child in children if child.cmdline()[-1] == "sparklog.executors"]


@contextmanager
def serve(folder: Path, brokers: int) -> Iterator[Served]:
    command = [sys.executable, "-m", "sparklog.cli", "serve", "--engine", "process"]
    command += ["--brokers", str(brokers), "--data-dir", str(folder), "--host", "127.0.0.1"]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        seconds = time.perf_counter() - began
        if not line.startswith(READY):
            raise RuntimeError(f"sparklog serve said {line!r}")
        endpoint = Endpoint.parse(line.removeprefix(READY))
        yield Served(bootstrap=endpoint, pid=process.pid, seconds_to_ready=seconds)
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def bare(kind: str, path: Path, size: int = 0) -> Iterator[Endpoint]:
    command = [sys.executable, "-m", "benchmarks.bare", kind, str(path), str(size)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Endpoint("127.0.0.1", int(process.stdout.readline()))
    finally:
        process.terminate()
        process.wait(30)


def resident_megabytes(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss) / 1e6
