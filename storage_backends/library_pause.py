"""When a library does what plain HTTP could not.

Owns: how long that lasts.  Must not know what is done.
"""

import threading
from collections.abc import Callable
from typing import Final

#: Seconds for which the library is used after plain HTTP has failed: the first time, and at most.
LIBRARY_S: Final = (30.0, 600.0)


class LibraryPause:
    """A pause of plain HTTP, for any thread.

    ``clock_s``: seconds, on a clock that never goes back.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._guard = threading.Lock()
        self._until_s = float("-inf")
        self._length_s = LIBRARY_S[0]

    def lasts(self) -> bool:
        with self._guard:
            return self._clock_s() < self._until_s

    def begin(self) -> None:
        """Plain HTTP has failed."""
        with self._guard:
            self._until_s = self._clock_s() + self._length_s
            self._length_s = min(2 * self._length_s, LIBRARY_S[1])

    def forget(self) -> None:
        """Plain HTTP has worked: the next pause is a short one."""
        self._length_s = LIBRARY_S[0]
