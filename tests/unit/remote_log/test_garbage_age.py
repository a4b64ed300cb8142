"""From when the age of garbage counts: as long as a query may be told of a segment, it is young."""

from collections.abc import Callable

import pytest

from sparklog.errors import StorageError
from sparklog.remote_log.manifest import MisfitError
from sparklog.remote_log.service import COPY_MS_MAX, RemoteLogService
from sparklog.storage_backends.base import StorageBackend
from sparklog.storage_backends.memory import MemoryBackend
from tests.unit.remote_log.manifest_stores import Failure, ScriptedStore
from tests.unit.remote_log.segments import ids
from tests.unit.remote_log.service_fixtures import (
    HOUR_MS,
    PARTITION,
    copied,
    leader_log,
    service_of,
    stored,
)

A, B = copied(0, 10), copied(10, 20)
#: When the call is made, and when it is done.
CALLED_MS, DONE_MS = HOUR_MS, 9 * HOUR_MS


class SigningStore(ScriptedStore):
    """Signs as a bucket does."""

    def presign(self, path: str, seconds: int) -> str:
        return f"https://bucket/{path}?seconds={seconds}"


class Clock:
    """The time of day of the process that talks to the store."""

    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def leading(store: StorageBackend, clock: Clock) -> RemoteLogService:
    """The service of a leader that has added two segments."""
    service = service_of(store, clock_ms=clock)
    service.begin_leadership(PARTITION, 1, "leader-1", leader_log(20), 0)
    for each in (A, B):
        service.add_segment(PARTITION, each, 0)
    return service


def move_log_start(service: RemoteLogService) -> None:
    service.move_log_start(PARTITION, 1, 10, CALLED_MS)


def remove_segments(service: RemoteLogService) -> None:
    service.remove_segments(PARTITION, 1, B.segment_id, CALLED_MS)


def truncate(service: RemoteLogService) -> None:
    """A new leader ends below the second segment."""
    service.begin_leadership(PARTITION, 2, "leader-2", leader_log(10), CALLED_MS)


def begin_above_a_gap(service: RemoteLogService) -> None:
    """The files of a new leader begin above all segments."""
    log = leader_log(40, (1, 0), (2, 30), start=30)
    service.begin_leadership(PARTITION, 2, "leader-2", log, CALLED_MS)


@pytest.mark.parametrize("remove", [move_log_start, remove_segments, truncate, begin_above_a_gap])
def test_the_time_that_a_call_has_waited_does_not_count(
    remove: Callable[[RemoteLogService], None],
) -> None:
    """Queries were told of the segments until the call was done: the process stood still, or other
    calls came first."""
    store, clock = MemoryBackend(), Clock()
    service = leading(store, clock)
    clock.now_ms = DONE_MS
    remove(service)
    garbage = stored(store).garbage_ids
    assert garbage
    for age_ms, deleted in ((HOUR_MS - 1, 0), (HOUR_MS, len(garbage))):
        assert service.collect_garbage(PARTITION, HOUR_MS, DONE_MS + age_ms).segments == deleted


def test_a_clock_that_is_behind_the_caller_s_makes_no_garbage_old() -> None:
    store, clock = MemoryBackend(), Clock()
    service = leading(store, clock)
    move_log_start(service)
    assert stored(store).garbage_due(CALLED_MS + HOUR_MS - 1, HOUR_MS) == []
    assert stored(store).garbage_due(CALLED_MS + HOUR_MS, HOUR_MS) == ids([A])


def test_a_copy_that_has_become_too_old_while_the_call_waited_is_not_added() -> None:
    store, clock = MemoryBackend(), Clock()
    service = leading(store, clock)
    clock.now_ms = COPY_MS_MAX + 1
    with pytest.raises(MisfitError, match="it is copied again"):
        service.add_segment(PARTITION, copied(20, 30), 1)


@pytest.mark.parametrize(
    ("failures", "segments"),
    [
        (("before", "before"), [A, B]),  # nothing was written
        (("after", "before"), [B]),  # it was written, and the answer was lost
    ],
)
def test_a_plan_after_a_call_that_has_failed_names_no_garbage(
    failures: tuple[Failure, ...], segments: list[object]
) -> None:
    """The age of the garbage counts from that call."""
    store = SigningStore()
    service = leading(store, Clock())
    store.fail(*failures)
    with pytest.raises(StorageError):
        move_log_start(service)
    found = service.signed_segments(PARTITION, 0, 20, seconds=60, count_max=9)
    assert [each.segment for each in found.segments] == segments
