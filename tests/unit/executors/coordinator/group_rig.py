"""The APIs of groups on a loopback socket, with a scripted state machine behind them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

from sparklog.errors import KafkaError
from sparklog.executors.coordinator import (
    Completion,
    CoordinatorRecord,
    CoordinatorRequest,
    CoordinatorRuntime,
    CoordinatorStateMachine,
    Decision,
    DeletedTopic,
    Now,
    StoredTopic,
)
from sparklog.executors.handlers.group_apis import handlers
from sparklog.executors.handlers.group_requests import GroupRequests
from sparklog.executors.replica_manager import no_coordinator
from sparklog.metadata.coordinators import partition_for
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from sparklog.service.dispatch import Dispatcher
from sparklog.service.handler import ApiHandler
from sparklog.transport import ClientConnection, Server, connect, serve
from sparklog.types import Endpoint
from sparklog.wire.protocol.codec import decode_response, encode_request, response_type
from sparklog.wire.protocol.schema import Request, Response
from tests.support.waiting import until
from tests.unit.executors.coordinator.replica_rig import NODE, OTHER, ReplicaRig, led

DEADLINE_S = 60.0
#: Broker 1 leads partition 0 of ``__consumer_offsets``, and broker 2 leads partition 1.
HERE = next(name for name in map(str, range(99)) if partition_for(name, 2) == 0)
ELSEWHERE = next(name for name in map(str, range(99)) if partition_for(name, 2) == 1)
#: What the script answers: a response, an error, or None for a request that waits.
Script = Callable[[CoordinatorRequest], Response | KafkaError | None]


class ScriptedGroups:
    """Answers each request as the script says; it writes and forgets nothing."""

    def __init__(self, rig: "GroupRig") -> None:
        self._rig = rig
        self.waiting: list[int] = []
        self.withdrawn: list[int] = []

    def replay(self, record: CoordinatorRecord) -> None:
        raise AssertionError(record)

    def replay_in_transaction(self, record: CoordinatorRecord, producer_id: int) -> None:
        raise AssertionError(record)

    def replay_transaction_end(self, producer_id: int, *, committed: bool) -> None:
        raise AssertionError(producer_id)

    def loaded(self, now: Now) -> None:
        pass

    def stored_topics(self) -> Collection[StoredTopic]:
        return ()

    def may_write(self, request: CoordinatorRequest) -> bool:
        return False

    def answer(self, body: Request, now: Now) -> Response | None:
        return self._rig.answer(body)

    def handle(self, request: CoordinatorRequest, now: Now) -> Decision:
        self._rig.seen.append(request)
        response = self._rig.script(request)
        if response is None:
            self.waiting.append(request.request_id)
            return Decision()
        done = Completion(request_id=request.request_id, response=response)
        return Decision(completions=(done,))

    def pass_time(self, now: Now) -> Decision:
        return Decision()

    def topics_deleted(self, topics: Collection[DeletedTopic], now: Now) -> None:
        pass

    def next_deadline_ms(self) -> int | None:
        return None

    def withdraw(self, request_id: int) -> None:
        self.waiting.remove(request_id)
        self.withdrawn.append(request_id)

    def unload(self, error: KafkaError) -> tuple[Completion, ...]:
        return tuple(Completion(request_id=number, response=error) for number in self.waiting)


class GroupRig:
    """``seen`` has the requests that reached a state machine; ``make`` makes another machine."""

    def __init__(
        self, replicas: ReplicaRig, make: Callable[[], CoordinatorStateMachine] | None = None
    ) -> None:
        self.replicas = replicas
        self.seen: list[CoordinatorRequest] = []
        self.script: Script = lambda request: response_type(request.body.API_KEY)()
        #: The answer to requests without a decision.
        self.answer: Callable[[Request], Response | None] = lambda _: None
        self.machines: list[ScriptedGroups] = []
        self.runtime = CoordinatorRuntime(
            replicas.replica_manager,
            CONSUMER_OFFSETS,
            self._make if make is None else make,
            load_buffer_bytes=lambda: 1 << 20,
            commit_timeout_ms=lambda: 5_000,
        )
        self.server: Server
        self._clients: list[ClientConnection] = []

    def _make(self) -> ScriptedGroups:
        self.machines.append(ScriptedGroups(self))
        return self.machines[-1]

    def apis(self, groups: GroupRequests) -> list[ApiHandler]:
        """The handlers of the server."""
        return handlers(groups, no_coordinator)

    async def start(self) -> None:
        groups = GroupRequests(self.runtime, lambda: self.replicas.replica_manager.image)
        self.server = await serve("127.0.0.1", 0, Dispatcher(self.apis(groups)))
        await self.replicas.create("t", led(), led())
        await self.replicas.create(CONSUMER_OFFSETS, led(), led(leader=OTHER, isr=(NODE, OTHER)))
        await until(lambda: self.runtime.as_json()["active_shards"] == 1)

    async def close(self) -> None:
        for client in self._clients:
            client.close()
        await self.runtime.close()
        await self.server.close(1.0)

    async def connect(self) -> ClientConnection:
        client = await connect(Endpoint("127.0.0.1", self.server.port), 20)
        self._clients.append(client)
        return client

    async def ask(
        self, request: Request, version: int | None = None, client: ClientConnection | None = None
    ) -> Any:
        """Send a request in a version, the newest without one."""
        version = type(request).MAX_VERSION if version is None else version
        connection = client or await self.connect()
        answer = await connection.request([encode_request(request, version, 5, "test")])
        _, response = decode_response(response_type(request.API_KEY), version, answer)
        return response


RigT = TypeVar("RigT", bound=GroupRig)


def run(
    test: Callable[[GroupRig], Awaitable[None]],
    make: Callable[[], CoordinatorStateMachine] | None = None,
) -> None:
    """Run a test with a fresh rig."""
    run_with(lambda replicas: GroupRig(replicas, make), test)


def run_with(
    make_rig: Callable[[ReplicaRig], RigT], test: Callable[[RigT], Awaitable[None]]
) -> None:
    """Run a test with a rig of another kind."""

    async def within() -> None:
        with ReplicaRig.open() as replicas:
            rig = make_rig(replicas)
            await rig.start()
            try:
                await asyncio.wait_for(test(rig), DEADLINE_S)
            finally:
                await rig.close()
                await replicas.replica_manager.close()

    asyncio.run(within())
