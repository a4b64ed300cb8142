"""What brokers counted in their lives, of which each may end at any moment.

Owns: the sums over all processes.  Must not know what a counter means.
"""

import json
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from sparklog.driver.launcher.member_calls import ClusterMemberCalls
from sparklog.errors import SparklogError
from sparklog.types import Endpoint

LOOK_S = 0.5


class StatusWatch:
    """Asks every living broker now and then; what it counted after the last time is not known."""

    def __init__(self, controller: Endpoint, secret: bytes) -> None:
        self._calls = ClusterMemberCalls(controller, secret)
        self._last: dict[str, Mapping[str, int]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status-watch")

    def __enter__(self) -> "StatusWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._calls.close()

    def look(self) -> None:
        """Ask all of them once."""
        with suppress(SparklogError):
            for endpoint in self._calls.alive_brokers().values():
                with suppress(SparklogError):
                    self.note(json.loads(self._calls.node_status(endpoint)))

    def note(self, status: Mapping[str, object]) -> None:
        """A broker's answer."""
        numbers = {name: value for name, value in status.items() if type(value) is int}
        self._last[str(status["incarnation"])] = numbers

    def total(self, name: str) -> int:
        """Of one counter, over all lives."""
        return sum(numbers.get(name, 0) for numbers in self._last.values())

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()


def totals(watch: StatusWatch, names: Mapping[str, str]) -> Counter[str]:
    """Counters of brokers by the names that a run gives them."""
    return Counter({ours: watch.total(theirs) for ours, theirs in names.items()})
