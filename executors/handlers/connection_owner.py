"""The owner of the delayed operations of one connection, so that they end with the connection.

Owns: one ``Owner`` per connection.  Must not know the operations.
"""

from sparklog.executors.purgatory import Owner
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.transport import ServerConnection

_STATE_KEY = "delayed operations"


def owner_of(replica_manager: ReplicaManager, connection: ServerConnection) -> Owner:
    """The owner of the connection's delayed operations, made at the first call.

    The operations are cancelled when the connection closes.  Fetches expire when the client stops
    sending.  A client that only closed its half of the connection still gets all its responses.
    But a killed client looks the same, and a fetch that waits for records is not worth keeping for
    it.
    """
    owner: Owner | None = connection.state.get(_STATE_KEY)
    if owner is None:
        owner = connection.state[_STATE_KEY] = Owner()
        connection.call_on_close(owner.close)
        connection.call_on_eof(
            lambda: owner.expire(replica_manager.delayed_operations.consumer_fetches)
        )
        connection.call_on_eof(
            lambda: owner.expire(replica_manager.delayed_operations.follower_fetches)
        )
    return owner
