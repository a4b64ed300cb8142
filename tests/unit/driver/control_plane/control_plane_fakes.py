"""A running control plane for one test, with the connections of a client and of a member."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sparklog.client.connection import Connection
from sparklog.driver.control_plane.control_plane import (
    ControlPlane,
)
from sparklog.driver.control_plane.options import ControlPlaneOptions
from sparklog.types import Endpoint
from sparklog.wire.protocol.schema import Request
from tests.unit.driver.control_plane.driver_fakes import registration

TIMEOUT_S = 60.0
#: Longer than a busy machine may stall.
ANSWER_S = 30.0


class UnderTest:
    """A running control plane, the connection of a client, and that of a member."""

    control_plane: ControlPlane
    client: Connection
    member: Connection
    running: "asyncio.Task[None]"

    async def ask(self, request: Request) -> Any:
        return await self.client.request(request, timeout_s=ANSWER_S)

    async def tell(self, request: Request) -> Any:
        return await self.member.request(request, timeout_s=ANSWER_S)

    async def register(self, broker_id: int = 1) -> Any:
        cluster_id = self.control_plane.image.cluster_id
        response = await self.tell(registration(broker_id, cluster_id=cluster_id))
        assert response.error_code == 0, response
        return response

    async def connect(self, *, member: bool) -> Connection:
        secret = self.control_plane.secret if member else None
        endpoint = Endpoint("127.0.0.1", self.control_plane.port)
        return await Connection.open(endpoint, secret=secret, timeout_s=ANSWER_S)


def run(
    request: pytest.FixtureRequest,
    story: Callable[[UnderTest], Coroutine[Any, Any, None]],
    **settings: str,
) -> None:
    """Run a test's story against a control plane with a journal of its own."""
    options = options_of(request, **settings)

    async def limited() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            under_test = UnderTest()
            under_test.control_plane = control_plane = ControlPlane(options)
            await control_plane.start()
            under_test.running = asyncio.create_task(control_plane.run())
            try:
                under_test.client = await under_test.connect(member=False)
                under_test.member = await under_test.connect(member=True)
                await story(under_test)
                under_test.client.close()
                under_test.member.close()
            finally:
                control_plane.stop("the test ends")
                await asyncio.wait([under_test.running])
            if not under_test.running.exception():
                control_plane.image.check_invariants()

    asyncio.run(limited())


def options_of(request: pytest.FixtureRequest, **settings: str) -> ControlPlaneOptions:
    name = f"memory://control-plane/{request.node.name}".replace("[", "-").replace("]", "")
    return ControlPlaneOptions(
        journal_dir=name,
        settings={key.replace("_", "."): value for key, value in settings.items()},
    )
