"""Nodes of which a connection has just ended: for a moment nobody knows whether they live.

Owns: whom to doubt, and for how long.  Must not know who notices, or who elects.

Clients ask for metadata as soon as a connection of theirs breaks, before anybody has elected other
leaders.  Told that the dead broker leads on, librdkafka does not ask again for up to a second; told
that there is no leader, it asks again and again.  So a doubted node is not named as a leader, and
who asks again after a while is answered when this node had time to hear of the same death.
"""

from collections.abc import Callable
from typing import Any, Final

from sparklog.metadata import BrokerImage

#: A death is reported sooner; who lives on is heard of again sooner.
SUSPICION_MS_MAX = 1_000
#: Who has not asked for so long asks because something happened.
QUIET_MS = 500
#: What is between the ends of a dead broker's connections, on a busy machine.
ANSWER_DELAY_MS = 20
_ASKED: Final = "metadata asked, answered"


class SuspectedBrokers:
    """``now_ms`` is a clock that never goes back."""

    __slots__ = ("_lost", "_now_ms")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        #: Broker epoch and time, by broker id.
        self._lost: dict[int, tuple[int, int]] = {}

    def connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """A connection to or of this broker, with this registration, has ended by itself."""
        self._lost[broker_id] = (broker_epoch, self._now_ms())

    def mark_alive(self, broker_id: int) -> None:
        """It lives."""
        self._lost.pop(broker_id, None)

    def answer_delay_ms(self, asker: dict[str, Any]) -> int:
        """How long the answer to a question waits; ``asker`` is what a connection remembers."""
        now_ms = self._now_ms()
        known: tuple[int, int] = asker.get(_ASKED, (now_ms, now_ms))
        asked_ms, answer_ms = known
        if now_ms - asked_ms >= QUIET_MS:
            answer_ms = now_ms + ANSWER_DELAY_MS
        asker[_ASKED] = (now_ms, answer_ms)
        return max(0, answer_ms - now_ms)

    def __bool__(self) -> bool:
        """Whether there may be any."""
        return bool(self._lost)

    def is_suspected(self, broker: BrokerImage | None) -> bool:
        """Whether to doubt that it lives; a new registration dispels what was before."""
        if broker is None or broker.broker_id not in self._lost:
            return False
        epoch, since_ms = self._lost[broker.broker_id]
        if epoch == broker.broker_epoch and self._now_ms() - since_ms <= SUSPICION_MS_MAX:
            return True
        del self._lost[broker.broker_id]
        return False
