"""A broker's connection to the control plane.

Owns: opening it when it is needed and again when it was lost, a deadline for every call, and the
pauses between those that fail.  A connection answers in request order, so a long poll and
heartbeats need a link each.  Must not know what is asked.
"""

import asyncio
from typing import TypeVar

from sparklog.client.backoff import GrowingBackoff
from sparklog.client.connection import Connection
from sparklog.client.deadline import check
from sparklog.errors import ConnectError, DecodeError, ProtocolError
from sparklog.runtime_environment import SYSTEM, RuntimeEnvironment
from sparklog.types import Endpoint
from sparklog.wire.protocol.schema import Request, Response

ResponseT = TypeVar("ResponseT", bound=Response)

CONNECT_TIMEOUT_S = 5.0
RETRY_S_MIN = 0.05
RETRY_S_MAX = 1.0


def retry_pauses() -> GrowingBackoff:
    """Between tries to ask the control plane, which may be restarting."""
    return GrowingBackoff(RETRY_S_MIN, RETRY_S_MAX)


class ControllerConnection:
    """A member's connection; ``close`` it."""

    def __init__(
        self,
        endpoint: Endpoint,
        secret: bytes,
        *,
        client_id: str,
        runtime: RuntimeEnvironment = SYSTEM,
    ) -> None:
        self.endpoint = endpoint
        self._secret = secret
        self._client_id = client_id
        self._runtime = runtime
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()

    async def call(self, request: Request, answer: type[ResponseT], timeout_s: float) -> ResponseT:
        """Ask the control plane.

        Raises ConnectError when it cannot be reached or does not answer in time, KafkaError when it
        refuses.
        """
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._open()
                # The deadline around it, which covers connecting, is the one that counts.
                response = await connection.request(request, timeout_s=2 * timeout_s)
        except TimeoutError:
            # Answers come in order: behind one that is late, nothing else would be on time.
            self.close()
            raise ConnectError(f"{self.endpoint} did not answer within {timeout_s:g} s") from None
        except (ProtocolError, DecodeError) as error:
            self.close()
            raise ConnectError(f"{self.endpoint} sent an unreadable answer: {error}") from error
        # What members ask begins with an error code; private responses have a message with it.
        check(response.error_code, getattr(response, "error_message", None))
        assert isinstance(response, answer)
        return response

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _open(self) -> Connection:
        async with self._connecting:
            if self._connection is None or self._connection.closed:
                self._connection = await Connection.open(
                    self.endpoint,
                    client_id=self._client_id,
                    secret=self._secret,
                    timeout_s=CONNECT_TIMEOUT_S,
                    runtime=self._runtime,
                )
            return self._connection
