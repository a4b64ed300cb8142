"""The latest connection of each transactional producer that does not bump its epoch.

Owns: which requests are late, and the bound of the producers that are remembered.  Must not know
requests or transactions.

Epochs do not tell the transactions of a client before version 2 apart, and offsets have no
sequences.  So a commit that was delayed on a connection that the client gave up, and that the
client has sent again since, would undo a later one.  Such a client sends its commits for a group on
one connection, and opens the next one when it breaks.
"""

from typing import Final

from sparklog.executors.coordinator import TransactionalProducer

#: Producers that are remembered; the one that was not heard of for the longest time is forgotten.
PRODUCERS_MAX: Final = 10_000


class LatestConnections:
    """The number of the latest connection of each producer."""

    def __init__(self) -> None:
        self._latest: dict[TransactionalProducer, int] = {}

    def take(self, producer: TransactionalProducer, number: int) -> bool:
        """Take a request on a connection; return whether it is late."""
        latest = max(self._latest.pop(producer, number), number)
        self._latest[producer] = latest
        if len(self._latest) > PRODUCERS_MAX:
            del self._latest[next(iter(self._latest))]
        return number < latest
