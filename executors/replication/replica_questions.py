"""Questions to another broker about its replica, besides fetches.

Owns: the connection and time limit of one question, and which errors mean that there is no answer.
Must not know what is asked.
"""

from typing import Any, Final

from sparklog.errors import ConnectError, DecodeError, KafkaError, ProtocolError
from sparklog.executors.replication.replica_fetcher import FetcherTools
from sparklog.types import Endpoint
from sparklog.wire.protocol.schema import Request

#: Timeout of the request to one broker, in seconds.
ANSWER_TIMEOUT_S: Final = 5.0
#: What a question raises that is not answered.
NO_ANSWER: Final = (ConnectError, ProtocolError, DecodeError, KafkaError)


async def ask_once(tools: FetcherTools, endpoint: Endpoint, request: Request) -> Any:
    """The response, over a connection of its own.  Raises the errors of ``NO_ANSWER``."""
    connection = await tools.connect(endpoint)
    try:
        return await connection.request(request, timeout_s=ANSWER_TIMEOUT_S)
    finally:
        connection.close()
