"""What waits for the client of one connection, so that it ends with the connection.

Owns: one ``Owner`` per connection.  Must not know what waits.
"""

from sparklog.executors.purgatory import Owner
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.transport import ServerConnection

_STATE_KEY = "waits"


def owner_of(replica_manager: ReplicaManager, connection: ServerConnection) -> Owner:
    """Dropped when the connection closes; fetches are answered when the client stops sending.

    A client that only closed its half still gets all its answers, but one that was killed looks
    the same: a fetch that waits for records is not worth holding on to it.
    """
    owner: Owner | None = connection.state.get(_STATE_KEY)
    if owner is None:
        owner = connection.state[_STATE_KEY] = Owner()
        connection.call_on_close(owner.leave)
        connection.call_on_eof(lambda: owner.hurry(replica_manager.delayed_operations.readers))
        connection.call_on_eof(lambda: owner.hurry(replica_manager.delayed_operations.followers))
    return owner
