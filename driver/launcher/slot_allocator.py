"""Which executor a broker goes to, and how many of ours sit on each.

Owns: the choice (``choose_executor`` is pure) and the count.  Must not know jobs,
nor what racks are good for.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from sparklog.driver.launcher.racks import NO_RACKS, Racks
from sparklog.driver.launcher.spark_internals import ExecutorSlots


def choose_executor(
    executors: Iterable[ExecutorSlots],
    used: Mapping[str, int],
    host: str | None,
    excluded: frozenset[str] = frozenset(),
    racks: Racks = NO_RACKS,
) -> ExecutorSlots | None:
    """The executor for a broker that was last on ``host``: that host first, then its rack, where
    replicas of its partitions were meant to be; then the rack with the fewest of our brokers, which
    fail together, and there the host and the executor with the fewest.

    ``used`` counts our brokers by executor id.  None when no executor has a free slot.
    """
    present = list(executors)
    in_rack: Counter[str] = Counter()
    on_host: Counter[str] = Counter()
    for executor in present:
        own = used.get(executor.executor_id, 0)
        in_rack[racks.place_of(executor.host)] += own
        on_host[executor.host] += own
    last_place = None if host is None else racks.place_of(host)

    def rank(executor: ExecutorSlots) -> tuple[bool, bool, int, int, int, int, str]:
        own, place = used.get(executor.executor_id, 0), racks.place_of(executor.host)
        return (
            executor.host != host,
            place != last_place,
            in_rack[place],
            on_host[executor.host],
            own,
            own - executor.slots,
            executor.executor_id,
        )

    free = [
        executor
        for executor in present
        if executor.executor_id not in excluded
        and used.get(executor.executor_id, 0) < executor.slots
    ]
    return min(free, key=rank, default=None)


class SlotAllocator:
    """Which of our brokers sit on which executor."""

    def __init__(self, racks: Racks = NO_RACKS) -> None:
        self._racks = racks
        self._lock = threading.Lock()
        self._used: dict[str, int] = {}

    def take(
        self, executors: Iterable[ExecutorSlots], host: str | None, excluded: frozenset[str]
    ) -> ExecutorSlots | None:
        with self._lock:
            chosen = choose_executor(executors, self._used, host, excluded, self._racks)
            if chosen is not None:
                self._used[chosen.executor_id] = self._used.get(chosen.executor_id, 0) + 1
            return chosen

    def used(self, executor_id: str) -> int:
        """How many of our brokers sit there."""
        with self._lock:
            return self._used.get(executor_id, 0)

    def release(self, executor: ExecutorSlots) -> None:
        with self._lock:
            self._used[executor.executor_id] -= 1
