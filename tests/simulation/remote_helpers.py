"""The processes that talk to the bucket for brokers (``executors/tiering/__main__``), simulated.

Owns: their calls, each in slices, their ends, and the locks of their service.  Must not know what a
call does.  Messages go through their real encoding, so nothing is shared by accident.
"""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

from sparklog.errors import SparklogError, StorageError
from sparklog.executors.tiering.messages import (
    LENGTH,
    Answer,
    Call,
    MessageDecoder,
    encode_message,
)
from sparklog.remote_log.chunk_cache import ChunkCacheCounters
from sparklog.remote_log.service import RemoteLogService, RemotePartition
from sparklog.runtime_environment import RuntimeEnvironment
from sparklog.storage_backends.registry import open_backend, open_file_half
from tests.simulation.actors import Killed, Node, current_node
from tests.simulation.blocking_work import VirtualRunner
from tests.simulation.fibers import FIBER
from tests.simulation.loop import VirtualLoop

#: Seconds that a message takes, at most.
MESSAGE_S = 0.002


class HelperHome(Protocol):
    """The world, as far as helpers need it."""

    loop: VirtualLoop
    counters: Any

    def note(self, text: str) -> None: ...

    def new_node(self, name: str, host: str = "") -> Node: ...

    def runtime(self, node: Node) -> RuntimeEnvironment: ...


class FiberLock:
    """A lock of work that is done in slices: who waits for it stands still meanwhile."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._held = False

    def __enter__(self) -> None:
        fiber, node = FIBER.get(), current_node()
        assert fiber is not None
        assert fiber.sliced
        while self._held:
            fiber.park()
            if node is not None and node.dead:
                raise Killed
        self._held = True
        fiber.locked_s.append(self._loop.time())

    def __exit__(self, *_: object) -> None:
        self._held = False
        fiber = FIBER.get()
        assert fiber is not None
        fiber.locked_s.pop()


class Helper:
    """One process, from its first call on."""

    def __init__(self, world: HelperHome, node: Node, service: RemoteLogService) -> None:
        self.node = node
        self.service = service
        self.checked: asyncio.Lock = asyncio.Lock()
        self.is_checked = False
        self._world = world

    def end(self) -> None:
        if not self.node.dead:
            self._world.note(f"{self.node.name} has ended")
            self._world.loop.kill(self.node)


class HelperCalls:
    """The remote logs as one broker calls them (``RemoteLogs``)."""

    open_file = None

    def __init__(
        self,
        world: HelperHome,
        broker: Node,
        runner: VirtualRunner,
        chance: random.Random,
        remote_dir: str,
        *,
        cluster_id: str,
    ) -> None:
        self.closed = False
        self.cache = ChunkCacheCounters()  # there is none
        self.helper: Helper | None = None
        self.broker = broker
        self._world = world
        self._runner = runner
        self._chance = chance
        self._remote_dir = remote_dir
        self._cluster_id = cluster_id
        self._waiting: dict[asyncio.Future[Any], None] = {}

    @property
    def is_at_work(self) -> bool:
        """Whether a call has begun and is not answered."""
        return self.helper is not None and bool(self._waiting)

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See ``RemoteLogs``."""
        if self.closed:
            raise StorageError("the broker is stopping")
        helper = self.helper
        if helper is None:
            helper = self.helper = self._start()
        message = encode_message(Call(0, method, args, kwargs))
        answer: asyncio.Future[Any] = self._world.loop.create_future()
        self._waiting[answer] = None
        answer.add_done_callback(lambda _: self._waiting.pop(answer, None))
        helper.node.spawn(self._world.loop, self._serve(helper, method, message, answer))
        return await answer

    def forget(self, partition: RemotePartition) -> None:
        """See ``RemoteLogs``."""
        helper, loop = self.helper, self._world.loop
        if helper is not None and not self.closed:
            message = encode_message(Call(0, "forget", (partition,), {}))
            helper.node.spawn(loop, self._serve(helper, "forget", message, None))

    async def close(self) -> None:
        """See ``RemoteLogs``."""
        self.closed = True
        self.kill_helper()

    def kill_helper(self, outlives_s: float = 0.0) -> None:
        """Calls that wait fail; what they have begun goes on for so long."""
        self.end(outlives_s)
        for answer in list(self._waiting):
            if not answer.done():
                answer.set_exception(StorageError("the process for the remote_dir has ended"))

    def end(self, outlives_s: float) -> None:
        """The helper ends after so many seconds; the broker hears nothing."""
        helper, self.helper = self.helper, None
        if helper is None:
            return
        if outlives_s <= 0:
            helper.end()
            return
        self._world.note(f"{helper.node.name} is left over for {outlives_s:.3f} s")
        loop = self._world.loop
        loop.call_later(outlives_s, helper.end, context=loop.outside.context)

    def _start(self) -> Helper:
        node = self._world.new_node(f"{self.broker.host}-remote", self.broker.host)
        remote = open_backend(self._remote_dir)
        service = RemoteLogService(
            remote,
            open_file_half,
            new_lock=partial(FiberLock, self._world.loop),
            clock_ms=self._world.runtime(node).wall_ms,
        )
        self._world.counters["helper_starts"] += 1
        return Helper(self._world, node, service)

    async def _serve(
        self, helper: Helper, method: str, message: bytes, answer: "asyncio.Future[Any] | None"
    ) -> None:
        await asyncio.sleep(self._chance.random() * MESSAGE_S)
        call = _received(message)
        result = await self._answer(helper, call)
        if self.helper is not helper:
            self._world.note(f"{helper.node.name}, left over, has done {method}")
            self._world.counters["late_remote_calls"] += 1
        await asyncio.sleep(self._chance.random() * MESSAGE_S)
        told = _received(encode_message(result))
        if answer is None or answer.done() or self.broker.dead:
            return
        if told.error is not None:
            answer.set_exception(told.error)
        else:
            answer.set_result(told.result)

    async def _answer(self, helper: Helper, call: Call) -> Answer:
        service = helper.service
        try:
            async with helper.checked:
                if not helper.is_checked:
                    await self._run(partial(service.owner.check, self._cluster_id))
                    helper.is_checked = True
            work = partial(getattr(service, call.method), *call.args, **call.kwargs)
            return Answer(call.number, await self._run(work))
        except SparklogError as error:
            return Answer(call.number, None, error)

    async def _run(self, work: Callable[[], Any]) -> Any:
        return await self._runner(work)


def _received(data: bytes) -> Any:
    """The message whose bytes have gone through a pipe."""
    decoder = MessageDecoder()
    for start, end in pairwise((0, LENGTH.size, len(data))):
        decoder.room()[:] = data[start:end]
        message = decoder.received(end - start)
    return message
