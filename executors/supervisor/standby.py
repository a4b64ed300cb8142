"""The standby of a spare supervisor, which holds a slot and waits for a broker to run.

Owns: repeated requests for work to the control plane.  Must not know the kind of work.
"""

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any, Final

from sparklog.errors import ConnectError, KafkaError
from sparklog.executors.controller_link import ControllerConnection, retry_pauses
from sparklog.types import Endpoint
from sparklog.wire.protocol.private import AwaitWorkRequest, AwaitWorkResponse

log = logging.getLogger(__name__)

WAIT_MS: Final = 10_000
ANSWER_SECONDS_MAX: Final = 5.0


class Standby:
    """One wait of one spare.  ``stop`` may be called from any thread and from signal handlers.

    Args:
        controller: the control plane's address.
        secret: the cluster secret.
        spare: the name of the spare.
    """

    def __init__(self, controller: Endpoint, secret: bytes, spare: str) -> None:
        self._controller = controller
        self._secret = secret
        self._spare = spare
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[dict[str, Any]] | None = None
        self._stopped = False

    def wait(self) -> dict[str, Any] | None:
        """Wait for work and return it; None after ``stop``."""
        return asyncio.run(self._wait())

    def stop(self) -> None:
        """End the wait."""
        self._stopped = True
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._task.cancel)

    async def _wait(self) -> dict[str, Any] | None:
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._ask())
        if self._stopped:
            self._task.cancel()
        try:
            return await self._task
        except asyncio.CancelledError:
            return None

    async def _ask(self) -> dict[str, Any]:
        link = ControllerConnection(self._controller, self._secret, client_id=self._spare)
        request = AwaitWorkRequest(spare=self._spare, max_wait_ms=WAIT_MS)
        pauses = retry_pauses()
        try:
            while True:
                try:
                    limit_s = WAIT_MS / 1000 + ANSWER_SECONDS_MAX
                    answer = await link.call(request, AwaitWorkResponse, limit_s)
                    pauses.reset()
                except (ConnectError, KafkaError) as error:  # the control plane may be restarting
                    log.info("%s asks again: %s", self._spare, error)
                    await pauses.wait()
                    continue
                if answer.work:
                    work: dict[str, Any] = json.loads(answer.work)
                    return work
        finally:
            link.close()
