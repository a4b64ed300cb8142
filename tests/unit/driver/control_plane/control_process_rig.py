"""Control planes as processes, and requests to them.

Owns: the processes, which end with the test.  Must not know what the requests are.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

from sparklog.client.connection import Connection
from sparklog.process import Child, python_command, spawn_child
from sparklog.types import Endpoint
from sparklog.wire.protocol.schema import Request

WAIT_S = 45.0
#: Time limit of a start, also on a busy machine.
READY_S = 45.0


class Processes:
    """Control planes that end with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.children: list[Child] = []

    def start(self, **options: Any) -> Child:
        line = {"journal_dir": str(self.folder / "journal"), "listen_host": "127.0.0.1", **options}
        child = spawn_child(
            python_command("sparklog.driver"),
            json.dumps(line),
            self.folder / "control-plane.log",
            ready_timeout=READY_S,
        )
        self.children.append(child)
        return child

    def log(self) -> str:
        return (self.folder / "control-plane.log").read_text()


def ask(child: Child, *requests: Request, member: bool = True) -> list[Any]:
    """Send requests over one connection, in order."""
    secret = bytes.fromhex(child.ready["secret"]) if member else None

    async def exchange() -> list[Any]:
        endpoint = Endpoint("127.0.0.1", child.ready["port"])
        connection = await Connection.open(endpoint, secret=secret, timeout_s=WAIT_S)
        try:
            return [await connection.request(request, timeout_s=WAIT_S) for request in requests]
        finally:
            connection.close()

    return asyncio.run(exchange())
