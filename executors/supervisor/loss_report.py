"""Telling the control plane that a broker's process has died.

Owns: a short-lived member's connection per death, and how long it is tried.  Must not know why the
broker died nor what becomes of it: the report runs beside whatever its caller does next, such as
the restart.

The incarnation that died goes with it, so a report that comes after the next process has registered
does nothing.
"""

import asyncio
import logging
import threading
from typing import Final
from uuid import UUID

from sparklog.errors import ConnectError, SparklogError
from sparklog.executors.controller_link import ControllerConnection, retry_pauses
from sparklog.types import Endpoint
from sparklog.wire.protocol.private import LostBroker, ReportLossRequest, ReportLossResponse

log = logging.getLogger(__name__)

#: After so long the broker's session has run out, or its next process has registered.
REPORT_SECONDS_MAX: Final = 10.0


class LossReporter:
    """Reports the deaths of one broker.  ``finish`` before the process ends."""

    def __init__(self, controller: Endpoint, secret: bytes, broker_id: int) -> None:
        self._controller = controller
        self._secret = secret
        self._broker_id = broker_id
        self._thread: threading.Thread | None = None

    def report(self, incarnation: UUID) -> None:
        """Begin to report; returns at once."""
        lost = LostBroker(broker_id=self._broker_id, incarnation=incarnation)
        name = f"loss-of-{self._broker_id}"
        self._thread = threading.Thread(target=self._run, args=(lost,), name=name, daemon=True)
        self._thread.start()

    def finish(self, timeout: float) -> None:
        """Wait for the last report."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self, lost: LostBroker) -> None:
        try:
            asyncio.run(asyncio.wait_for(self._deliver(lost), REPORT_SECONDS_MAX))
        except (SparklogError, OSError) as error:  # heartbeats that stay away tell it too
            log.warning("the loss of broker %s was not reported: %s", lost.broker_id, error)
        else:
            log.info("reported the loss of broker %s", lost.broker_id)

    async def _deliver(self, lost: LostBroker) -> None:
        link = ControllerConnection(self._controller, self._secret, client_id="sparklog-supervisor")
        pauses = retry_pauses()
        try:
            while True:
                try:
                    request = ReportLossRequest(brokers=(lost,))
                    await link.call(request, ReportLossResponse, REPORT_SECONDS_MAX)
                    return
                except ConnectError as error:  # it may be restarting
                    log.info("trying again: %s", error)
                await pauses.wait()
        finally:
            link.close()
