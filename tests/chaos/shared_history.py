"""A history that many threads write.

Owns: the order of its events.  Must not know what they mean.
"""

import threading
import time
from pathlib import Path

from tests.simulation.events import Event
from tests.simulation.history import History


class SharedHistory(History):
    """Times are milliseconds since its beginning."""

    def __init__(self) -> None:
        began = time.monotonic()
        super().__init__(lambda: int((time.monotonic() - began) * 1000))
        self._lock = threading.Lock()

    @property
    def now_ms(self) -> int:
        return self._now_ms()

    def record(self, event: Event) -> None:
        with self._lock:
            super().record(event)

    def write(self, path: Path) -> None:
        """Write a line for each event: its position, its milliseconds and what it was."""
        lines = zip(self.times_ms, self.events, strict=True)
        with path.open("w") as file:
            file.writelines(f"{at} {ms} {event}\n" for at, (ms, event) in enumerate(lines))
