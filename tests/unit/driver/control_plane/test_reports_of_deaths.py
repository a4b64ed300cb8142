"""Reports of a broker's death, with a supervisor, its broker and a control plane."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest

from sparklog.executors.supervisor.death_report import DeathReporter
from sparklog.executors.supervisor.supervisor import Supervisor, SupervisorPayload
from sparklog.types import Endpoint
from tests.support.waiting import until
from tests.unit.driver.control_plane.control_plane_fakes import UnderTest, run
from tests.unit.driver.control_plane.driver_fakes import registration

FAKE_BROKER = str(Path(__file__).parents[2] / "process" / "fake_child.py")


def is_fenced(test: UnderTest, broker_id: int = 1) -> bool:
    broker = test.control_plane.image.broker(broker_id)
    assert broker is not None
    return broker.fenced


async def register(test: UnderTest, incarnation: UUID) -> None:
    cluster_id = test.control_plane.image.cluster_id
    message = registration(1, cluster_id=cluster_id, incarnation=incarnation)
    assert (await test.tell(message)).error_code == 0


async def supervised(test: UnderTest, folder: Path, story: Callable[[], Awaitable[None]]) -> None:
    """Run a test's story against a supervised fake broker."""
    broker = {
        "broker_id": 1,
        "data_dir": str(folder),
        "new": True,
        "controller": f"127.0.0.1:{test.control_plane.port}",
        "secret": test.control_plane.secret.hex(),
        "settings": {"echo": str(folder / "lives")},
    }
    command = [sys.executable, FAKE_BROKER, "serve"]
    supervisor = Supervisor(SupervisorPayload(broker=broker, command=command), executor_id=None)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        await until(lambda: supervisor._deaths is not None and _has_told_its_pid(folder))
        await story()
    finally:
        supervisor.stop()
        await asyncio.to_thread(thread.join, 60)


def _has_told_its_pid(folder: Path) -> bool:
    lives = folder / "lives"
    return lives.exists() and '"pid": ' in lives.read_text()


def test_a_killed_broker_is_fenced_at_once(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    async def story(test: UnderTest) -> None:
        async def kill() -> None:
            pid = int((tmp_path / "lives").read_text().partition('"pid": ')[2].partition(",")[0])
            await register(test, UUID(int=pid))
            os.kill(pid, signal.SIGKILL)
            await until(lambda: is_fenced(test))

        await supervised(test, tmp_path, kill)

    run(request, story, broker_session_timeout_ms="600000")


def test_the_death_of_a_former_process_leaves_the_present_one_alone(
    request: pytest.FixtureRequest,
) -> None:
    async def story(test: UnderTest) -> None:
        endpoint = Endpoint("127.0.0.1", test.control_plane.port)
        reporter = DeathReporter(endpoint, test.control_plane.secret, 1)
        await register(test, UUID(int=8))
        reporter.report(UUID(int=7))
        await asyncio.to_thread(reporter.finish, 60)
        assert not is_fenced(test)
        reporter.report(UUID(int=8))
        await asyncio.to_thread(reporter.finish, 60)
        assert is_fenced(test)

    run(request, story, broker_session_timeout_ms="600000")


def test_a_report_waits_for_a_control_plane_that_is_restarting(
    request: pytest.FixtureRequest,
) -> None:
    async def story(test: UnderTest) -> None:
        await register(test, UUID(int=8))
        refused = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal refused
            if refused < 2:
                refused += 1
                writer.close()
                return
            inner = await asyncio.open_connection("127.0.0.1", test.control_plane.port)
            await asyncio.gather(copy(reader, inner[1]), copy(inner[0], writer))

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        endpoint = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        reporter = DeathReporter(endpoint, test.control_plane.secret, 1)
        reporter.report(UUID(int=8))
        await until(lambda: is_fenced(test))
        await asyncio.to_thread(reporter.finish, 60)
        server.close()
        assert refused == 2

    run(request, story, broker_session_timeout_ms="600000")


async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
    sink.close()
