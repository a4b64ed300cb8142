"""The process for the remote_dir: real calls, its end, and what it cannot be started with."""

import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.tiering.remote_process import RemoteProcess
from sparklog.executors.tiering.tiering import open_remote_logs
from sparklog.remote_log.remote_segment import EpochStart
from sparklog.remote_log.service import (
    LeaderLog,
    NotLeadingError,
    RemoteLogService,
    RemoteLogState,
    RemotePartition,
)
from sparklog.storage_backends.registry import open_backend, open_file_half
from tests.support.waiting import until

PARTITION = RemotePartition(UUID(int=5), 3)
EMPTY = LeaderLog(
    log_start_offset=0,
    local_log_start_offset=0,
    log_end_offset=10,
    leader_epochs=(EpochStart(1, 0),),
)


def run(
    folder: Path,
    test: Callable[[RemoteProcess], Awaitable[None]],
    owner: str | None = "c",
    **changes: Any,
) -> None:
    """``owner`` is the cluster whose control plane has claimed the store."""
    if owner is not None:
        RemoteLogService(open_backend(str(folder / "bucket")), open_file_half).owner.claim(owner)

    async def within() -> None:
        values: dict[str, Any] = {
            "remote_dir": str(folder / "bucket"),
            "options": {},
            "cluster_id": "c",
            "data_dir": str(folder),
            "cache_name": "cache",
            "cache_bytes": 1 << 24,
        }
        process = open_remote_logs(**values | changes)
        assert isinstance(process, RemoteProcess)
        try:
            await asyncio.wait_for(test(process), 60)
        finally:
            await process.close()

    asyncio.run(within())


def test_calls_and_their_errors_go_through_the_pipes(tmp_path: Path) -> None:
    async def test(process: RemoteProcess) -> None:
        assert process.pid is None, "it is started by the first call"
        state = await process.call("begin_leadership", PARTITION, 1, "broker-1", EMPTY, 1_000)
        assert state == RemoteLogState(0, -1, 0, 0, 0)
        with pytest.raises(KafkaError) as caught:
            await process.call("read", PARTITION, 5, 100, with_aborted=False)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        several = [process.call("find_timestamp", PARTITION, 5, 0) for _ in range(20)]
        assert await asyncio.gather(*several) == [None] * 20

    run(tmp_path, test)


def test_a_process_that_was_killed_is_started_again(tmp_path: Path) -> None:
    async def test(process: RemoteProcess) -> None:
        await process.call("begin_leadership", PARTITION, 1, "broker-1", EMPTY, 1_000)
        first = process.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)

        async def is_back() -> bool:
            try:
                await process.call("find_timestamp", PARTITION, 5, 0)
            except StorageError:
                return False
            return process.pid != first

        while not await is_back():
            await asyncio.sleep(0)
        state = await process.call("begin_leadership", PARTITION, 1, "broker-1", EMPTY, 1_000)
        assert state == RemoteLogState(0, -1, 0, 0, 0)

    run(tmp_path, test)


def test_a_manifest_is_forgotten_in_the_process_if_there_is_one(tmp_path: Path) -> None:
    async def test(process: RemoteProcess) -> None:
        process.forget(PARTITION)
        assert process.pid is None, "it is not started for this"
        await process.call("begin_leadership", PARTITION, 1, "broker-1", EMPTY, 1_000)
        process.forget(PARTITION)

        async def is_forgotten() -> bool:
            try:
                await process.call("move_log_start", PARTITION, 1, 0, 1_000)
            except NotLeadingError:
                return True
            return False

        while not await is_forgotten():
            await asyncio.sleep(0)

    run(tmp_path, test)


def test_a_process_that_ends_before_it_has_forgotten_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(process: RemoteProcess) -> None:
        await process.call("find_timestamp", PARTITION, 5, 0)
        process.forget(PARTITION)
        await process.close()
        process.forget(PARTITION)
        gc.collect()

    gc.collect()  # what other tests have left
    caplog.clear()
    run(tmp_path, test)
    assert "never retrieved" not in caplog.text


def test_the_process_ends_with_the_broker(tmp_path: Path) -> None:
    async def test(process: RemoteProcess) -> None:
        await process.call("find_timestamp", PARTITION, 5, 0)
        pid = process.pid
        assert pid is not None
        await process.close()
        await until(lambda: not Path(f"/proc/{pid}").exists())
        with pytest.raises(StorageError, match="stopping"):
            await process.call("find_timestamp", PARTITION, 5, 0)

    run(tmp_path, test)


def test_a_store_of_another_cluster_is_refused_in_one_line(tmp_path: Path) -> None:
    async def test(process: RemoteProcess) -> None:
        for _ in range(2):
            with pytest.raises(StorageError, match="of cluster c, not of d; choose another"):
                await process.call("find_timestamp", PARTITION, 5, 0)

    run(tmp_path, test, cluster_id="d")


def test_a_folder_that_is_not_mounted_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    mount_point = tmp_path / "bucket"
    mount_point.mkdir()

    async def test(process: RemoteProcess) -> None:
        with pytest.raises(StorageError, match=r"belongs to no cluster, .* mounted on this host"):
            await process.call("begin_leadership", PARTITION, 1, "broker-1", EMPTY, 1_000)

    run(tmp_path, test, owner=None)
    assert list(mount_point.iterdir()) == []


def test_a_store_that_cannot_be_opened_is_refused_in_one_line(tmp_path: Path) -> None:
    async def test(process: RemoteProcess) -> None:
        with pytest.raises(StorageError, match="no storage for nosuch://"):
            await process.call("find_timestamp", PARTITION, 5, 0)

    run(tmp_path, test, remote_dir="nosuch://bucket")
