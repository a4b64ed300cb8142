"""What ``sparklog consume`` says of partitions that cannot be read now.

Owns: when it is said, and the words.  Must not know how records are fetched, or why they cannot be.
"""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

from sparklog.errors import KafkaError
from sparklog.plurals import counted
from sparklog.types import TopicPartition

#: Changes of leaders are over by then, in seconds.
PATIENCE_S: Final = 2.0
#: Seconds between two lines.
EVERY_S: Final = 5.0


class UnreadablePartitions:
    """Names on stderr the partitions that have not been readable for a while.

    ``poll`` raises their errors much later, and until then the command would look as if there were
    no records.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._since_s: dict[TopicPartition, float] = {}
        self._told_s: float | None = None

    def tell(self, unreadable: Mapping[TopicPartition, KafkaError]) -> None:
        """Note which partitions cannot be read now; say it if it is time to."""
        now_s = self._clock_s()
        self._since_s = {tp: self._since_s.get(tp, now_s) for tp in unreadable}
        lasting = sorted(tp for tp, at in self._since_s.items() if now_s - at >= PATIENCE_S)
        is_early = self._told_s is not None and now_s - self._told_s < EVERY_S
        if not lasting or is_early:
            return
        self._told_s = now_s
        first, *others = lasting
        more = f" ({counted(len(others), 'other partition')} likewise)" if others else ""
        sys.stderr.write(
            f"sparklog: {first} cannot be read and is tried again: {unreadable[first]}{more}\n"
        )
        sys.stderr.flush()
