"""The choice of the next log to clean, and the logs that are set aside because cleanings failed.

Owns: the order among the logs that are due (``LogCleanerManager.grabFilthiestCompactedLog``), and
the growing pause after failures.  Must not know segments, files or processes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from sparklog.executors.cleaner.plan import CleanableRange

T = TypeVar("T")

#: Consecutive failures after which a log is set aside; Kafka sets it aside at once and for ever.
FAILURES_MAX: Final = 3
#: The pause after the first failure of a cleaning, which doubles with every further one.
RETRY_MS: Final = 30_000
#: The longest pause.
RETRY_MS_MAX: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToClean(Generic[T]):
    """A log that is due, and its offsets that can be cleaned."""

    log: T
    dirty: CleanableRange


def filthiest(due: Iterable[LogToClean[T]]) -> LogToClean[T] | None:
    """The log with the greatest dirty ratio; among equals, the log that is overdue the longest."""
    return max(due, key=lambda each: (each.dirty.dirty_ratio, each.dirty.overdue_ms), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The consecutive failures of one log; ``retry_at_ms`` is a time of the caller's clock."""

    times: int
    retry_at_ms: int
    reason: str

    @property
    def is_set_aside(self) -> bool:
        return self.times >= FAILURES_MAX


class FailedCleanings(Generic[T]):
    """The logs whose last cleaning failed.

    Each log is tried again after a pause, because the cause of the failure may have passed.  The
    keys are the open logs, not their names: a new topic of the same name has no failures.
    """

    def __init__(self) -> None:
        self._failures: dict[T, Failure] = {}

    def failed(self, log: T, reason: str, now_ms: int) -> Failure:
        before = self._failures.get(log)
        times = before.times + 1 if before else 1
        pause_ms = min(RETRY_MS << min(times - 1, 30), RETRY_MS_MAX)
        failure = Failure(times=times, retry_at_ms=now_ms + pause_ms, reason=reason)
        self._failures[log] = failure
        return failure

    def succeeded(self, log: T) -> None:
        self._failures.pop(log, None)

    def allow(self, log: T, now_ms: int) -> bool:
        """Whether the log may be cleaned now."""
        failure = self._failures.get(log)
        return failure is None or now_ms >= failure.retry_at_ms

    def keep_only(self, existing: Iterable[T]) -> None:
        """Forget logs that are gone."""
        here = set(existing)
        self._failures = {log: each for log, each in self._failures.items() if log in here}

    @property
    def set_aside(self) -> dict[T, Failure]:
        return {log: each for log, each in self._failures.items() if each.is_set_aside}
