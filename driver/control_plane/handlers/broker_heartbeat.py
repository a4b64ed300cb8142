"""BrokerHeartbeat (key 20003): keeps a broker's session alive, or ends it cleanly.

The end of the connection that carries the heartbeats is the first sign of a broker's death.
"""

from functools import partial
from typing import Any, Final

from sparklog.driver.control_plane.handlers.node import Decide, member_handler
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.service.suspected_brokers import SuspectedBrokers
from sparklog.wire.protocol.private import BrokerHeartbeatRequest

_LAST: Final = "last heartbeat"


def handler(decide: Decide, suspected_brokers: SuspectedBrokers) -> ApiHandler:
    def handle(context: RequestContext, request: BrokerHeartbeatRequest) -> Handled:
        suspected_brokers.mark_alive(request.broker_id)
        connection = context.connection
        if _LAST not in connection.state:
            connection.call_on_eof(partial(_lost, connection.state))
            connection.call_on_close(partial(_lost, connection.state))
        connection.state[_LAST] = request
        return decide(request)

    def _lost(state: dict[str, Any]) -> None:
        last = state.pop(_LAST, None)
        if last is not None:
            suspected_brokers.connection_lost(last.broker_id, last.broker_epoch)

    return member_handler(BrokerHeartbeatRequest, handle)
