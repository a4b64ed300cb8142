"""DataFrame reads of a bucket, where the clocks of brokers, tasks and store differ by minutes."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import botocore.auth
import pytest

from sparklog.dataframe.read import direct_reads, segment_source
from sparklog.remote_log import names
from sparklog.remote_log.signed_segments import SignedPage, SignedSegment, sign_segments
from sparklog.storage_backends.base import StorageBackend
from sparklog.storage_backends.registry import open_backend
from tests.unit.executors.tiering.test_tiered_dataframes import bytes_sent, ending
from tests.unit.executors.tiering.tiered_dataframes import filled, rows
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS

pytestmark = pytest.mark.s3


@contextmanager
def clock_of_signer(ahead_ms: int) -> Iterator[None]:
    """botocore's clock in this process."""
    real = botocore.auth.get_current_datetime

    def now(**how: Any) -> datetime:
        found: datetime = real(**how)
        return found + timedelta(milliseconds=ahead_ms)

    botocore.auth.get_current_datetime = now
    try:
        yield
    finally:
        botocore.auth.get_current_datetime = real


class SkewedLeader:
    """The leader of ``t-0``, whose host has a clock that is ``ahead_ms`` ahead of the store's.

    ``asked`` counts how often it has signed URLs.  ``is_refused``: whether the store refuses URLs
    from the future, as S3 does beyond 15 minutes (versitygw takes them).
    """

    def __init__(self, store: StorageBackend, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms
        self.is_refused = False
        self.asked = 0
        self._store = store

    def take_over(self, tiered: TieredRig) -> None:
        leader = tiered.leader
        assert leader is not None
        replica_manager = leader.replica_manager
        reads, now_ms = replica_manager.remote_reads, replica_manager.now_ms
        signed_segments = reads.signed_segments

        async def signed(*args: Any, seconds: int, **how: Any) -> SignedPage:
            self.asked += 1
            found = await signed_segments(*args, seconds=seconds, **how)
            partition = tiered.partition
            assert partition.topic_id is not None
            folder = names.segments_folder(partition.topic_id, partition.topic_partition.partition)
            with clock_of_signer(self.ahead_ms):
                again = sign_segments(
                    self._store, folder, [each.segment for each in found.segments], seconds
                )
            return found._replace(segments=[self._seen_by_store(each) for each in again])

        reads.signed_segments = signed  # type: ignore[method-assign]
        replica_manager.now_ms = lambda: now_ms() + self.ahead_ms

    def _seen_by_store(self, signed: SignedSegment) -> SignedSegment:
        if not self.is_refused:
            return signed
        return SignedSegment.decode(signed.encode().replace(b"X-Amz-Date=2", b"X-Amz-Date=1"))


@pytest.fixture
def read_all(
    s3_server: Any, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[SkewedLeader, int]]:
    """Reads everything, and checks it; the leader, and the bytes that brokers have sent."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    # A read for each batch, so that there is more than one for each URL.
    monkeypatch.setattr(direct_reads, "FIRST_READ_BYTES", 200)
    monkeypatch.setattr(direct_reads, "READ_BYTES", 200)

    def read(
        ahead_ms: int,
        lifetime_ms: int = HOUR_MS,
        *,
        then: Callable[[SkewedLeader], None] = lambda leader: None,
        **settings: Any,
    ) -> tuple[SkewedLeader, int]:
        url = f"s3://{s3_bucket}/log"
        leader = SkewedLeader(open_backend(url), ahead_ms)
        then(leader)
        sent = 0

        async def test(tiered: TieredRig) -> None:
            nonlocal sent
            everything = await filled(tiered)
            leader.take_over(tiered)
            local_start = tiered.partition.log.local_log_start_offset
            found = await rows(tiered, **ending(tiered), **settings)
            assert found == everything[:local_start]
            sent = bytes_sent(tiered)

        run_tiered(test, remote_dir=url, remote_signed_url_lifetime_ms=str(lifetime_ms))
        return leader, sent

    return read


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.name.startswith("sparklog.dataframe") and each.levelno >= logging.WARNING
    ]


@pytest.mark.parametrize("minutes", [-10, 10])
def test_ten_minutes_do_no_harm_to_urls_of_an_hour(
    minutes: int, read_all: Any, caplog: pytest.LogCaptureFixture
) -> None:
    leader, sent = read_all(minutes * MINUTE_MS)
    assert (leader.asked, sent) == (1, 0)
    assert warnings(caplog) == []


@pytest.mark.parametrize("tasks", [1, 5])
def test_urls_that_have_expired_on_arrival_are_renewed_once_and_then_brokers_read(
    tasks: int, read_all: Any, caplog: pytest.LogCaptureFixture
) -> None:
    leader, sent = read_all(-10 * MINUTE_MS, MINUTE_MS, min_partitions=tasks)
    assert sent > 0
    assert tasks < leader.asked <= 1 + 2 * tasks
    told = warnings(caplog)
    assert len(told) == tasks
    for each in told:
        assert "t-0: the brokers read the offsets" in each
        assert "403 Forbidden (AccessDenied: Request has expired.)" in each
        assert "X-Amz" not in each


def test_expired_urls_of_a_plan_are_renewed_by_a_leader_whose_clock_was_set(
    read_all: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def then(leader: SkewedLeader) -> None:
        real = segment_source.SegmentSource.at

        def at(self: Any, offset: int) -> SignedSegment:
            leader.ahead_ms = 0
            return real(self, offset)

        monkeypatch.setattr(segment_source.SegmentSource, "at", at)

    leader, sent = read_all(-10 * MINUTE_MS, MINUTE_MS, then=then)
    assert (leader.asked, sent) == (2, 0)
    assert warnings(caplog) == []


def test_urls_from_a_future_that_the_store_refuses_leave_the_reads_to_brokers(
    read_all: Any, caplog: pytest.LogCaptureFixture
) -> None:
    leader, sent = read_all(20 * MINUTE_MS, then=lambda leader: setattr(leader, "is_refused", True))
    assert sent > 0
    assert leader.asked == 2
    [told] = warnings(caplog)
    assert "the store answers 40" in told


@pytest.mark.parametrize("minutes", [-90, 90])
def test_a_task_with_a_wrong_clock_asks_once_and_uses_what_it_was_told(
    minutes: int,
    read_all: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ahead_ns = minutes * MINUTE_MS * 1_000_000
    clock = SimpleNamespace(time_ns=lambda: time.time_ns() + ahead_ns)
    monkeypatch.setattr(segment_source, "time", clock)
    leader, sent = read_all(0)
    assert leader.asked <= 2
    assert sent == 0
    assert warnings(caplog) == []
