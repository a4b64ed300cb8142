"""Reports to the control plane that a broker's process has died.

Owns: a short-lived member connection per report, and the time limit of its retries.  Must not know
why the broker died, nor whether it is restarted.  The report runs in the background.

A report names the incarnation that died.  So a report that arrives after the next process has
registered has no effect.
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

#: After this time the broker's session has expired, or its next process has registered.
REPORT_SECONDS_MAX: Final = 10.0


class DeathReporter:
    """Reports the deaths of one broker.  Call ``finish`` before the process ends.

    Args:
        controller: the control plane's address.
        secret: the cluster secret.
    """

    def __init__(self, controller: Endpoint, secret: bytes, broker_id: int) -> None:
        self._controller = controller
        self._secret = secret
        self._broker_id = broker_id
        self._thread: threading.Thread | None = None

    def report(self, incarnation: UUID) -> None:
        """Report the death of this incarnation, in the background."""
        dead = LostBroker(broker_id=self._broker_id, incarnation=incarnation)
        name = f"loss-of-{self._broker_id}"
        self._thread = threading.Thread(target=self._run, args=(dead,), name=name, daemon=True)
        self._thread.start()

    def finish(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds for the last report."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self, dead: LostBroker) -> None:
        try:
            asyncio.run(asyncio.wait_for(self._deliver(dead), REPORT_SECONDS_MAX))
        except (SparklogError, OSError) as error:  # the session timeout fences the broker anyway
            log.warning("the loss of broker %s was not reported: %s", dead.broker_id, error)
        else:
            log.info("reported the loss of broker %s", dead.broker_id)

    async def _deliver(self, dead: LostBroker) -> None:
        link = ControllerConnection(self._controller, self._secret, client_id="sparklog-supervisor")
        pauses = retry_pauses()
        try:
            while True:
                try:
                    request = ReportLossRequest(brokers=(dead,))
                    await link.call(request, ReportLossResponse, REPORT_SECONDS_MAX)
                    return
                except ConnectError as error:  # the control plane may be restarting
                    log.info("trying again: %s", error)
                await pauses.wait()
        finally:
            link.close()
