"""The batcher of broker deaths: deaths at about the same time become one report.

Owns: gathering the brokers that one executor took with it into one report, and retries while the
control plane does not answer.  Must not know why brokers die.

The controller turns one report into one commit.  So it never elects a broker that has died together
with the former leader.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from sparklog.errors import ConnectError

#: The keepers of one executor's brokers all notice its end within this time.
GATHER_SECONDS = 0.02
RETRY_SECONDS = 0.1
#: After this time the brokers' sessions expire anyway.
REPORT_SECONDS_MAX = 10.0


class DeathReportBatcher:
    """Reports dead brokers in batches.  Every method may be called from any thread.

    Args:
        send: reports broker ids to the control plane; raises SparklogError.
    """

    def __init__(self, send: Callable[[tuple[int, ...]], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._pending: dict[int, Future[None]] = {}
        self._sending = False

    def report(self, broker_id: int) -> None:
        """Report a dead broker and wait until the control plane has taken the report.

        Raises:
            SparklogError: the report was refused, or could not be sent in time.
        """
        with self._lock:
            future = self._pending.setdefault(broker_id, Future())
            sends = not self._sending
            self._sending = True
        if sends:
            self._send_pending()
        future.result()

    def _send_pending(self) -> None:
        """Send the gathered deaths, then those that came in the meantime."""
        while True:
            time.sleep(GATHER_SECONDS)
            with self._lock:
                batch, self._pending = self._pending, {}
            try:
                self._deliver(tuple(sorted(batch)))
            except BaseException as error:
                for future in batch.values():
                    future.set_exception(error)
            else:
                for future in batch.values():
                    future.set_result(None)
            with self._lock:
                self._sending = bool(self._pending)
                if not self._sending:
                    return

    def _deliver(self, broker_ids: tuple[int, ...]) -> None:
        end = time.monotonic() + REPORT_SECONDS_MAX
        while True:
            try:
                return self._send(broker_ids)
            except ConnectError:  # the control plane may be restarting
                if time.monotonic() > end:
                    raise
                time.sleep(RETRY_SECONDS)
