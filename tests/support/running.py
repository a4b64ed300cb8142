"""A running cluster as the tests that started it see it: its processes and its spares.

Owns: finding them.  Must not know who starts clusters or why.
"""

import json
import time
from contextlib import suppress
from typing import Any

import psutil

from sparklog.cluster import Cluster
from sparklog.driver.launcher.member_calls import ClusterMemberCalls
from sparklog.errors import SparklogError
from sparklog.types import Endpoint
from tests.support.waiting import LOOK_SECONDS


def ours(word: str) -> list[psutil.Process]:
    """Running descendants of this process with a word on their command line.

    A cluster that ``sparklog serve`` keeps for another folder's tests is none of ours.
    """
    found = []
    strangers = _served()
    for process in psutil.Process().children(recursive=True):
        try:
            words = process.cmdline()
            running = process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        if word in words and running and process.pid not in strangers:
            found.append(process)
    return found


def has_ended(pid: int) -> bool:
    """Whether a process runs no more, though perhaps nobody has waited for it yet."""
    try:
        ended: bool = psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    return ended


def _served() -> set[int]:
    pids: set[int] = set()
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if "sparklog.cli" in child.cmdline():
                pids |= {child.pid, *(each.pid for each in child.children(recursive=True))}
    return pids


def waiting_spares(cluster: Cluster) -> int:
    """Spare supervisors that ask for work."""
    launcher = cluster._launcher
    assert launcher is not None
    control = launcher.control_plane
    calls = ClusterMemberCalls(control.endpoint, control.secret)
    try:
        found: int = status_of(calls, control.endpoint)["spares"]
        return found
    finally:
        calls.close()


def status_of(calls: ClusterMemberCalls, node: Endpoint, seconds: float = 60.0) -> dict[str, Any]:
    """A node's counters; it is asked again when it does not answer in the time of one call."""
    end = time.monotonic() + seconds
    while True:
        try:
            found: dict[str, Any] = json.loads(calls.node_status(node))
            return found
        except SparklogError:
            if time.monotonic() > end:
                raise
            time.sleep(LOOK_SECONDS)
