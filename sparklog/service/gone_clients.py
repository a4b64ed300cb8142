"""Requests that wait for a result, and whose client has gone meanwhile.

Owns: the cancellation of a request's future when its client closes the connection, or only stops
sending, as Kafka takes it.  Must not know requests.
"""

import asyncio
from typing import Any, Final, TypeAlias

from sparklog.transport import ServerConnection

_STATE_KEY: Final = "waiting requests"
_AnyFuture: TypeAlias = "asyncio.Future[Any]"


def cancel_with_client(connection: ServerConnection, future: _AnyFuture) -> None:
    """Cancel a future when the client of a connection has gone."""
    if future.done():
        return
    waiting: dict[_AnyFuture, None] | None = connection.state.get(_STATE_KEY)
    if waiting is None:
        waiting = connection.state[_STATE_KEY] = {}
        for call in (connection.call_on_close, connection.call_on_eof):
            call(lambda: _cancel_all(waiting))
    waiting[future] = None
    future.add_done_callback(lambda done: waiting.pop(done, None))


def _cancel_all(waiting: dict[_AnyFuture, None]) -> None:
    for future in list(waiting):
        future.cancel()
