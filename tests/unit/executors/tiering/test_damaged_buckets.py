"""Objects of the bucket that are damaged, too short or gone: what clients and operators see."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparklog.client import damaged_ranges
from sparklog.dataframe.options import RemoteReads
from sparklog.dataframe.read import read_planner
from sparklog.errors import CorruptBatchError, ErrorCode
from sparklog.remote_log import names
from sparklog.storage_backends.base import StorageBackend
from sparklog.storage_backends.registry import open_backend
from sparklog.wire.protocol.messages.fetch import FetchPartition
from tests.unit.executors.tiering.tiered_dataframes import after, filled, rows
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered

#: The offsets of the second segment.
SEGMENT = range(5, 10)


def delete(store: StorageBackend, path: str) -> None:
    store.delete(path)


def cut(store: StorageBackend, path: str) -> None:
    """Leave the first two batches and some bytes."""
    data = store.read(path)
    store.put(path, data[: len(data) // 2 - 10])


def flip(store: StorageBackend, path: str) -> None:
    data = bytearray(store.read(path))
    data[len(data) // 2] ^= 1
    store.put(path, bytes(data))


@dataclass(frozen=True)
class Case:
    """``left_out`` are the offsets that cannot be read."""

    damage: Callable[[StorageBackend, str], None]
    left_out: range
    remote_dir: str = ""

    def break_object(self, tiered: TieredRig) -> str:
        """The name of the object that is damaged now."""
        store = open_backend(self.remote_dir) if self.remote_dir else tiered.bucket
        folder = names.segments_folder(tiered.partition.topic_id, 0)
        logs = sorted(name for name in store.list(folder) if name.endswith(".log"))
        self.damage(store, f"{folder}/{logs[1]}")
        return f"{folder}/{logs[1]}"

    @property
    def reads(self) -> list[RemoteReads]:
        """How a DataFrame can be read; a bucket over HTTP takes its time."""
        if self.remote_dir.startswith("s3"):
            return [RemoteReads.DIRECT]
        return list(RemoteReads) if self.remote_dir else [RemoteReads.BROKERS]

    def run(self, test: Callable[[TieredRig], object]) -> None:
        settings = {"remote_dir": self.remote_dir} if self.remote_dir else {}
        run_tiered(test, **settings)  # type: ignore[arg-type]


DAMAGES = {
    "gone": (delete, SEGMENT),
    "short": (cut, range(7, 10)),
    # What follows the damaged batch is found at the next entry of the index only.
    "flipped": (flip, range(7, 10)),
}


@pytest.fixture(params=DAMAGES)
def damaged(request: pytest.FixtureRequest) -> tuple[Callable[..., None], range]:
    return DAMAGES[request.param]


@pytest.fixture(params=["memory", "folder", pytest.param("s3", marks=pytest.mark.s3)])
def case(
    request: pytest.FixtureRequest,
    damaged: tuple[Callable[..., None], range],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Case:
    if request.param == "memory":
        return Case(*damaged)
    if request.param == "folder":
        return Case(*damaged, remote_dir=str(tmp_path))
    for name, value in request.getfixturevalue("s3_server").environment.items():
        monkeypatch.setenv(name, value)
    return Case(*damaged, remote_dir=f"s3://{request.getfixturevalue('s3_bucket')}/log")


def test_a_consumer_is_told_of_damage_and_the_log_of_the_broker_names_it(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    """Java's consumer and librdkafka would retry after KAFKA_STORAGE_ERROR for ever."""

    async def test(tiered: TieredRig) -> None:
        await filled(tiered)
        path = case.break_object(tiered)
        client = await tiered.client()
        for offset in (case.left_out.start, case.left_out.stop):
            part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
            response = await client.fetch_all("t", (part,), max_wait_ms=10_000)
            ((data,),) = [topic.partitions for topic in response.responses]
            is_damaged = offset in case.left_out
            assert data.error_code == (ErrorCode.CORRUPT_MESSAGE if is_damaged else 0)
        (error,) = [
            each for each in caplog.messages if "cannot be read from the remote_dir" in each
        ]
        assert path in error
        assert "ffsets" in error

    case.run(test)


def test_a_dataframe_names_the_damage_or_leaves_it_out(
    case: Case, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(damaged_ranges, "PROBE_S", 0.6)

    async def test(tiered: TieredRig) -> None:
        everything = await filled(tiered)
        path = case.break_object(tiered)
        for how in case.reads:
            # A fetch is tried again until then, and a library of a bucket is slow at first.
            patience_ms = 4_000 if case.remote_dir.startswith("s3") else 1_000
            given = {"remote_reads": how, "poll_timeout_ms": patience_ms}
            with pytest.raises(CorruptBatchError) as caught:
                await rows(tiered, **given)
            assert caught.value.first_offset == case.left_out.start
            assert path in str(caught.value) or how is RemoteReads.BROKERS
            caplog.clear()
            found = await rows(tiered, **given, fail_on_corrupt_batch=False)
            assert found == [row for row in everything if row[0] not in case.left_out]
            span = f"offsets {case.left_out[0]} to {case.left_out[-1]} cannot be read"
            assert any(span in each for each in caplog.messages)

    case.run(test)


def test_damage_in_the_way_of_a_filter_by_time_costs_only_the_saving(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damaged_ranges, "PROBE_S", 0.6)
    monkeypatch.setattr(read_planner, "FILTER_SEARCH_S", 0.6)

    async def test(tiered: TieredRig) -> None:
        everything = await filled(tiered)
        case.break_object(tiered)
        found = await rows(
            tiered,
            after(case.left_out.start + 0.5),
            remote_reads=case.reads[0],
            fail_on_corrupt_batch=False,
            poll_timeout_ms=4_000,
        )
        wanted = [row for row in everything if row[0] > case.left_out[-1]]
        assert found[-len(wanted) :] == wanted

    case.run(test)
