"""A broker's connection to the control plane.

Owns: opening the connection on demand and again after a loss, a deadline for every call, and the
pauses between retries.  Must not know the requests.  A connection answers in request order, so
a long poll and heartbeats need a connection each.
"""

import asyncio
from typing import TypeVar

from sparklog.client.backoff import ExponentialBackoff
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


def retry_pauses() -> ExponentialBackoff:
    """The pauses between retries of requests to the control plane, which may be restarting."""
    return ExponentialBackoff(RETRY_S_MIN, RETRY_S_MAX)


class ControllerConnection:
    """A connection to the control plane as a member of the cluster.  The owner must ``close`` it.

    Args:
        endpoint: the control plane's address.
        secret: the cluster secret, by which this side proves its membership.
        client_id: the client id of all requests.
    """

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
        """Send a request to the control plane and wait for the response.

        Args:
            answer: the type of the response.
            timeout_s: time limit in seconds, connecting included.

        Raises:
            ConnectError: the control plane cannot be reached or does not answer in time.
            KafkaError: the control plane refuses the request.
        """
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._open()
                # The timeout of the block counts; it also covers connecting.
                response = await connection.request(request, timeout_s=2 * timeout_s)
        except TimeoutError:
            # Responses come in order, so later ones would be late as well.
            self.close()
            raise ConnectError(f"{self.endpoint} did not answer within {timeout_s:g} s") from None
        except (ProtocolError, DecodeError) as error:
            self.close()
            raise ConnectError(f"{self.endpoint} sent an unreadable answer: {error}") from error
        # Every response here has an error code; private ones also have an error message.
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
