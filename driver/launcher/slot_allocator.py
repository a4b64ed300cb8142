"""The allocation of executor slots to brokers: the choice of an executor, and the slots in use.

Owns: the choice (``choose_executor`` is pure) and the count of brokers on each executor.  Must not
know jobs, nor the purpose of racks.
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
    """Choose the executor for a broker.

    The order of preference: the broker's last host; the rack of that host, where replicas of its
    partitions were meant to be; the rack with the fewest brokers, because brokers of one rack fail
    together; in that rack the host, and on it the executor, with the fewest brokers.

    Args:
        used: the number of our brokers by executor id.
        host: the host on which the broker ran last; None for a new broker.
        excluded: ids of executors that must not be chosen.

    Returns:
        None when no executor has a free slot.
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
    """Hands out executor slots, and counts the slots in use by executor."""

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
        """The number of our brokers on this executor."""
        with self._lock:
            return self._used.get(executor_id, 0)

    def release(self, executor: ExecutorSlots) -> None:
        with self._lock:
            self._used[executor.executor_id] -= 1
