"""The control plane's child process, which is restarted on the same port when it dies.

Owns: the process and the thread that watches it.  Must not know what the control plane does.
"""

import itertools
import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparklog.errors import StartError
from sparklog.process import Child, ChildError, describe_end, python_command, spawn_child
from sparklog.types import Endpoint

log = logging.getLogger(__name__)

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 10.0
RETRY_SECONDS_MAX = 5.0
#: A process that ends within this time counts as a failed start.
FAST_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlProcessOptions:
    """The options of the control plane's process.

    Args:
        journal_dir: folder or URL of the journal.
        port: the port to listen on; 0 takes any free port.
        settings: broker settings by Kafka's names.
        storage_options: options of the stores of journal and remote logs.  They are sent on stdin
            only, because they may hold a secret.
        expected_cluster_id: the cluster that the data directories belong to, if any.
        journal_may_be_old: whether the journal may lack commits that the cluster has had.
        log_path: the file that takes the process's stderr.
        command: the command to run instead of ``python -m sparklog.driver``.
    """

    journal_dir: str
    host: str
    port: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    expected_cluster_id: str | None = None
    journal_may_be_old: bool = False
    log_path: Path | None = None
    command: Sequence[str] = ()


class ControlPlaneProcess:
    """Starts the control plane and keeps it running until ``stop()``."""

    def __init__(self, options: ControlProcessOptions) -> None:
        self._options = options
        self._child: Child | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="control-plane", daemon=True)
        self.restarts = 0
        self.cluster_id = ""
        self.secret = b""
        self.endpoint = Endpoint(options.host, options.port)

    @property
    def pid(self) -> int | None:
        """The process id; None while no process runs."""
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    def start(self) -> None:
        """Start the process and wait until it serves.

        Raises:
            StartError: the process has ended, or was not ready in time.
        """
        try:
            child = self._spawn()
        except ChildError as error:
            raise StartError(f"the control plane does not start: {error}") from error
        self._child = child
        self.cluster_id = str(child.ready["cluster_id"])
        self.secret = bytes.fromhex(child.ready["secret"])
        self.endpoint = Endpoint(self._options.host, int(child.ready["port"]))
        self._thread.start()

    def stop(self) -> None:
        """End the process cleanly; kill it after ``STOP_SECONDS_MAX``."""
        self._stopping.set()
        child = self._child
        if child is not None:
            if child.poll() is None:
                child.terminate()
                child.wait(STOP_SECONDS_MAX)
            child.close()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS_MAX)

    def _spawn(self) -> Child:
        options = self._options
        line: dict[str, Any] = {
            "journal_dir": options.journal_dir,
            "listen_host": options.host,
            "port": self.endpoint.port,
            "advertised_host": options.host,
            "settings": dict(options.settings),
            "storage_options": dict(options.storage_options),
            "expected_cluster_id": self.cluster_id or options.expected_cluster_id,
            # A restart was checked before, and goes on while the bucket is away.
            "checks_remote_dir": not self.cluster_id,
            # The first process has skipped the numbers of the commits that are lost.
            "journal_may_be_old": options.journal_may_be_old and not self.cluster_id,
        }
        command = options.command or python_command("sparklog.driver")
        return spawn_child(
            command, json.dumps(line), options.log_path, ready_timeout=READY_SECONDS_MAX
        )

    def _watch(self) -> None:
        fast_deaths = 0
        while not self._stopping.is_set():
            child = self._child
            assert child is not None
            began = time.monotonic()
            code = child.wait()
            if self._stopping.is_set():
                return
            log.warning("the control plane %s", describe_end(child, code or 0))
            child.close()
            lived_long = time.monotonic() - began > FAST_SECONDS
            fast_deaths = 0 if lived_long else fast_deaths + 1
            self._stopping.wait(_pause(fast_deaths))
            self._restart()

    def _restart(self) -> None:
        """Start the process until it serves again, at the port that brokers and clients know."""
        for attempt in itertools.count(1):
            if self._stopping.is_set():
                return
            try:
                child = self._spawn()
            except ChildError as error:
                log.error("the control plane does not come back: %s", error)
                self._stopping.wait(_pause(attempt))
                continue
            self._child = child
            self.restarts += 1
            log.info("the control plane is back as process %s", child.pid)
            if self._stopping.is_set():  # stop() has not seen this process
                child.close()
            return


def _pause(failures: int) -> float:
    """Seconds until the next try; 0 after a single death."""
    return 0.0 if failures < 2 else min(RETRY_SECONDS_MAX, 0.1 * 2**failures)
