"""A test beside a server that listens on loopback.

Owns: the server's start and its end, after which no connection may be left.  Must not know what is
tested.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from sparklog.transport import HandlerResult, Server, ServerConnection, ServerLimits, serve

HOST = "127.0.0.1"

Handler = Callable[[ServerConnection, deque[memoryview]], Sequence[HandlerResult]]


def run_with_server(
    test: Callable[[Server], Awaitable[None]],
    handler: Handler,
    *,
    limits: ServerLimits | None = None,
    over_limit_handler: Handler | None = None,
    check_closed: Callable[[Server], None] = lambda _: None,
) -> None:
    """Run a test in at most 60 s; ``check_closed`` looks at the server once it is closed."""

    async def main() -> None:
        server = await serve(HOST, 0, handler, limits=limits, over_limit_handler=over_limit_handler)
        try:
            async with asyncio.timeout(60):
                await test(server)
        finally:
            await server.close(1.0)
        assert server.connections == set()
        check_closed(server)

    asyncio.run(main())
