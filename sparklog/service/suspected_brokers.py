"""Suspected brokers: brokers that may have died, because a connection of theirs has just ended.

Owns: which brokers are suspected, and for how long.  Must not know how the end of a connection is
noticed, nor how leaders are elected.

Clients ask for metadata as soon as a connection of theirs breaks, before a new leader is elected.
If the response still names the dead broker as leader, librdkafka does not ask again for up to a
second; if it names no leader, librdkafka asks again and again.  Therefore a suspected broker is not
reported as leader.  And a client that asks after a quiet period is answered with a short delay, in
which this node can notice the same death.
"""

from collections.abc import Callable
from typing import Any, Final

from sparklog.metadata import BrokerImage

#: How long a broker is suspected.  A death is reported sooner, and so is the next heartbeat.
SUSPICION_MS_MAX = 1_000
#: A client that has not asked for this long probably asks because something has happened.
QUIET_MS = 500
#: The time between the ends of a dead broker's connections, on a busy machine.
ANSWER_DELAY_MS = 20
_ASKED: Final = "metadata asked, answered"


class SuspectedBrokers:
    """The suspected brokers, as one node sees them.

    Args:
        now_ms: a clock that never goes back, in milliseconds.
    """

    __slots__ = ("_lost", "_now_ms")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        #: The broker epoch, and the time of the connection's end, by broker id.
        self._lost: dict[int, tuple[int, int]] = {}

    def connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """Suspect a broker: the other side has ended a connection with it.

        Args:
            broker_epoch: the epoch of the registration that the connection belonged to.
        """
        self._lost[broker_id] = (broker_epoch, self._now_ms())

    def mark_alive(self, broker_id: int) -> None:
        """Stop suspecting a broker, because it has sent something."""
        self._lost.pop(broker_id, None)

    def answer_delay_ms(self, asker: dict[str, Any]) -> int:
        """How long to delay the answer to a metadata request, in milliseconds.

        Args:
            asker: the state of the client's connection, in which the last request is noted.
        """
        now_ms = self._now_ms()
        known: tuple[int, int] = asker.get(_ASKED, (now_ms, now_ms))
        asked_ms, answer_ms = known
        if now_ms - asked_ms >= QUIET_MS:
            answer_ms = now_ms + ANSWER_DELAY_MS
        asker[_ASKED] = (now_ms, answer_ms)
        return max(0, answer_ms - now_ms)

    def __bool__(self) -> bool:
        """Whether there may be suspected brokers."""
        return bool(self._lost)

    def is_suspected(self, broker: BrokerImage | None) -> bool:
        """Whether a broker may have died; a new registration ends the suspicion."""
        if broker is None or broker.broker_id not in self._lost:
            return False
        epoch, since_ms = self._lost[broker.broker_id]
        if epoch == broker.broker_epoch and self._now_ms() - since_ms <= SUSPICION_MS_MAX:
            return True
        del self._lost[broker.broker_id]
        return False
