"""DataFrame reads of tiered topics: through the brokers, and from the bucket."""

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import Filter, LessThan

from sparklog.client import remote_segments_api
from sparklog.client.remote_segments_api import RemoteSegments
from sparklog.dataframe.options import Bound, RemoteReads
from sparklog.dataframe.read import read_planner
from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.handlers import read_remote_segments
from sparklog.executors.tiering.leadership import remote_partition
from sparklog.remote_log.signed_segments import SignedSegment
from sparklog.types import Isolation
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.tiering.tiered_dataframes import (
    TRANSACTIONS,
    after,
    at,
    filled,
    produce_transactions,
    rows,
)
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered


@dataclass(frozen=True)
class Store:
    """A remote_dir, and whether tasks can read it themselves."""

    settings: dict[str, str]
    is_direct: bool

    def run(self, test: Callable[[TieredRig], Any], **settings: str) -> None:
        run_tiered(test, **self.settings | settings)


@pytest.fixture(params=["memory", "folder", "unsigned", pytest.param("s3", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    if request.param == "memory":
        return Store({}, is_direct=False)
    if request.param == "unsigned":
        lifetime = {"remote_signed_url_lifetime_ms": "0"}
        return Store({"remote_dir": str(tmp_path)} | lifetime, is_direct=False)
    if request.param == "folder":
        return Store({"remote_dir": str(tmp_path)}, is_direct=True)
    for name, value in request.getfixturevalue("s3_server").environment.items():
        monkeypatch.setenv(name, value)
    bucket = request.getfixturevalue("s3_bucket")
    return Store({"remote_dir": f"s3://{bucket}/log"}, is_direct=True)


def bytes_sent(tiered: TieredRig) -> int:
    leader = tiered.leader
    assert leader is not None
    return leader.replica_manager.counters.bytes_out["t"]


def ending(tiered: TieredRig) -> dict[str, Bound]:
    """The option that ends a read where the leader's files begin."""
    partition = tiered.partition
    local_start = partition.log.local_log_start_offset
    return {"ending": Bound(offsets={partition.topic_partition: local_start})}


def test_a_read_begins_at_the_log_start(store: Store) -> None:
    async def test(tiered: TieredRig) -> None:
        everything = await filled(tiered)
        assert await rows(tiered) == everything
        assert await rows(tiered, min_partitions=7) == everything
        assert await rows(tiered, isolation=Isolation.READ_UNCOMMITTED) == everything

    store.run(test)


def test_no_broker_sends_what_tasks_read_from_the_bucket(store: Store) -> None:
    async def test(tiered: TieredRig) -> None:
        everything = await filled(tiered)
        local_start = tiered.partition.log.local_log_start_offset
        assert bytes_sent(tiered) == 0
        assert await rows(tiered, **ending(tiered)) == everything[:local_start]
        assert (bytes_sent(tiered) == 0) is store.is_direct
        before = bytes_sent(tiered)
        through = {"remote_reads": RemoteReads.BROKERS} | ending(tiered)
        assert await rows(tiered, **through) == everything[:local_start]
        assert bytes_sent(tiered) > before

    store.run(test)


def test_bounds_by_time_are_found_in_the_bucket(store: Store) -> None:
    async def test(tiered: TieredRig) -> None:
        everything = await filled(tiered)
        for first, end in ((3, 9), (3.5, 33), (0, 1), (35, 39)):
            found = await rows(
                tiered,
                starting=Bound(timestamp_ms=at(first)),
                ending=Bound(timestamp_ms=at(end)),
            )
            assert found == [row for row in everything if first <= row[0] < end]

    store.run(test)


def before(second: float) -> Filter:
    return LessThan(("timestamp",), datetime.fromtimestamp(at(second) / 1000, UTC))


def test_a_filter_on_the_timestamp_loses_nothing_in_the_bucket(store: Store) -> None:
    """Spark applies the filters again, so a read may give more rows than pass."""

    async def test(tiered: TieredRig) -> None:
        everything = await filled(tiered)
        for second in (4, 20, 38):
            assert await rows(tiered, after(second)) == everything[second:]
        found = await rows(tiered, after(4), before(9), **ending(tiered))
        assert set(everything[4:9]) <= set(found)
        if store.is_direct:
            assert len(found) < 12

    store.run(test)


@pytest.fixture
def short_plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Plans that ask for four segments, two in each answer.

    The result has the number of segments of each answer, also of those that tasks ask for.
    """
    counts: list[int] = []
    ask = remote_segments_api._page

    async def count(*args: Any) -> RemoteSegments:
        page = await ask(*args)
        counts.append(len(page.segments))
        return page

    monkeypatch.setattr(remote_segments_api, "_page", count)
    monkeypatch.setattr(read_remote_segments, "SEGMENTS_MAX", 2)
    monkeypatch.setattr(read_planner, "REMOTE_SEGMENTS_MAX", 4)
    return counts


def test_no_broker_sends_what_a_plan_has_no_segments_of(
    store: Store, short_plans: list[int]
) -> None:
    """Tasks ask for the URLs of what is behind the segments of the plan."""

    async def test(tiered: TieredRig) -> None:
        everything = await filled(tiered)
        local_start = tiered.partition.log.local_log_start_offset
        assert await rows(tiered, **ending(tiered)) == everything[:local_start]
        if store.is_direct:
            assert bytes_sent(tiered) == 0
            assert sum(short_plans) > read_planner.REMOTE_SEGMENTS_MAX

    store.run(test)


def test_leaders_leave_out_segments_that_bounds_of_time_rule_out(
    store: Store, short_plans: list[int]
) -> None:
    """However long the history behind is, which the bounds do not end."""

    async def test(tiered: TieredRig) -> None:
        everything = await filled(tiered)
        found = await rows(tiered, after(4), before(5), **ending(tiered))
        assert everything[4] in found
        if store.is_direct:
            assert bytes_sent(tiered) == 0
            assert 1 <= sum(short_plans) <= 2
            short_plans.clear()
            read_planner.REMOTE_SEGMENTS_MAX = 1
            found = await rows(tiered, before(9), **ending(tiered))
            assert set(everything[:9]) <= set(found)
            assert bytes_sent(tiered) == 0
            assert sum(short_plans) < 8, "tasks do not ask for what is ruled out either"

    store.run(test)


@pytest.mark.parametrize("isolation", list(Isolation))
def test_transactions_over_both_tiers(store: Store, isolation: Isolation) -> None:
    """Aborted data is left out wherever its marker is; its transaction spans several segments."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        kept, all_values = await produce_transactions(tiered)
        await tiered.fill(20)  # the last marker is flushed when its segment is sealed
        await tiered.tier()
        assert tiered.partition.log.local_log_start_offset > 70
        found = [value for _, value in await rows(tiered, isolation=isolation)]
        committed = isolation is Isolation.READ_COMMITTED
        assert found == (kept if committed else all_values) + tiered.values

    store.run(test, **TRANSACTIONS)


def test_another_leader_gives_urls_too(tmp_path: Path) -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(2)
        await tiered.fill(30)
        await until(lambda: len(tiered.partition.state.isr) == 2)  # type: ignore[union-attr]
        await tiered.tier()
        leader = tiered.leader
        assert leader is not None
        await tiered.rig.stop_broker(leader.options.broker_id)
        await until(lambda: tiered.leader is not None)
        client = await tiered.client()
        await client.produce("t", batch(b"one more"))
        values = [value for _, value in await rows(tiered)]
        assert values == [*tiered.values, b"one more"]

    run_tiered(test, remote_dir=str(tmp_path))


def test_tasks_that_cannot_see_the_folder_read_through_the_brokers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder that is not on their host.  Here it is moved while the broker has what it needs."""

    async def test(tiered: TieredRig) -> None:
        everything = await filled(tiered)
        local_start = tiered.partition.log.local_log_start_offset
        hidden = {"remote_reads": RemoteReads.DIRECT} | ending(tiered)
        leader = tiered.leader
        assert leader is not None
        reads = leader.replica_manager.remote_reads
        signed_segments = reads.signed_segments

        async def elsewhere(*args: Any, **kwargs: Any) -> Any:
            found = await signed_segments(*args, **kwargs)
            moved = [each.encode().replace(b"/log/", b"/away/") for each in found.segments]
            return found._replace(segments=[SignedSegment.decode(each) for each in moved])

        reads.signed_segments = elsewhere  # type: ignore[method-assign]
        assert await rows(tiered, **hidden) == everything[:local_start]
        assert bytes_sent(tiered) > 0

    run_tiered(test, remote_dir=str(tmp_path / "log"))
    (warning,) = {each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING}
    assert warning.startswith("t-0: the brokers read the offsets 0 to ")


def test_the_brokers_read_before_a_leader_has_taken_the_manifest_over(tmp_path: Path) -> None:
    """After an unclean election the segments may have other records than its log."""

    async def test(tiered: TieredRig) -> None:
        everything = await filled(tiered)
        assert tiered.leader is not None
        assert tiered.leader.tiering is not None
        tiered.leader.tiering.manager._remote.forget(remote_partition(tiered.partition))
        before = bytes_sent(tiered)
        assert await rows(tiered) == everything
        assert bytes_sent(tiered) - before > len(everything) * 50
        tiered.leader.tiering.manager._led.clear()
        await tiered.leader.tiering.manager.look_after_all()
        before = bytes_sent(tiered)
        assert await rows(tiered) == everything
        assert bytes_sent(tiered) - before < len(everything) * 50

    run_tiered(test, remote_dir=str(tmp_path))


def test_without_urls_in_time_the_brokers_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(tiered: TieredRig) -> None:
        everything = await filled(tiered)
        leader = tiered.leader
        assert leader is not None

        async def fail(*_: Any, **__: Any) -> Any:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the bucket is away")

        monkeypatch.setattr(leader.replica_manager.remote_reads, "signed_segments", fail)
        assert await rows(tiered) == everything

    monkeypatch.setattr(read_planner, "REMOTE_SEGMENTS_S", 0.1)
    run_tiered(test, remote_dir=str(tmp_path))
    told = {each.getMessage() for each in caplog.records if each.name == read_planner.__name__}
    assert told == {
        "the brokers read 1 partition of this read from the bucket, such as t-0: "
        "KAFKA_STORAGE_ERROR: the bucket is away"
    }


def test_what_is_on_the_disks_is_read_without_the_bucket(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(tiered: TieredRig) -> None:
        await filled(tiered)
        shutil.rmtree(tmp_path / "log")
        found = await rows(tiered, starting=Bound(offsets={tiered.partition.topic_partition: 36}))
        assert [offset for offset, _ in found] == [36, 37, 38, 39]

    run_tiered(test, remote_dir=str(tmp_path / "log"))
    assert [
        r for r in caplog.records if r.levelno >= logging.WARNING and r.name.startswith("sparklog")
    ] == []
