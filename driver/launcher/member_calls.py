"""The launcher's requests to the control plane and to brokers, as a member of the cluster.

Owns: connections that prove membership, and a deadline for every call.  Must not know why a call is
made.  Each call opens a connection of its own: calls are rare, and so a restarted node needs no
special handling.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.connection import Connection
from sparklog.client.deadline import check
from sparklog.client.event_loop_thread import EventLoopThread
from sparklog.client.replica_admin import ReplicaAdmin, ReplicasDescription
from sparklog.types import CONTROLLER_NODE_ID, Endpoint
from sparklog.wire.protocol.messages.metadata import MetadataRequest
from sparklog.wire.protocol.messages.unregister_broker import UnregisterBrokerRequest
from sparklog.wire.protocol.private import (
    AssignBrokersRequest,
    AssignedBroker,
    DrainBrokersRequest,
    DrainedBroker,
    GiveWorkRequest,
    LostBroker,
    NodeStatusRequest,
    ReportLossRequest,
    StopNodeRequest,
)
from sparklog.wire.protocol.schema import Request

log = logging.getLogger(__name__)

T = TypeVar("T")

CALL_SECONDS_MAX = 5.0


class ClusterMemberCalls:
    """Blocking calls to members of the cluster, from any thread.

    The calls run on an event loop of their own.  Each call takes at most ``2 * CALL_SECONDS_MAX``
    and raises SparklogError when the node refuses it or does not answer in time.

    Args:
        controller: the address of the control plane.
        secret: the cluster secret.
    """

    def __init__(self, controller: Endpoint, secret: bytes) -> None:
        self._controller = controller
        self._secret = secret
        self._loop = EventLoopThread("sparklog-launcher")

    def assign_brokers(self, count: int) -> tuple[AssignedBroker, ...]:
        """The brokers to start so that there are ``count``.  Raises SparklogError."""
        answer = self._ask(self._controller, AssignBrokersRequest(count=count))
        brokers: tuple[AssignedBroker, ...] = answer.brokers
        return brokers

    def report_broker_deaths(self, broker_ids: Iterable[int]) -> None:
        """Report that these brokers do not run any more.  Raises SparklogError."""
        dead = tuple(LostBroker(broker_id=broker_id) for broker_id in broker_ids)
        self._ask(self._controller, ReportLossRequest(brokers=dead))

    def alive_brokers(self) -> dict[int, Endpoint]:
        """The registered brokers and their addresses, by id.  Raises SparklogError."""
        answer = self._run(self._request(self._controller, MetadataRequest(topics=())))
        return {
            broker.node_id: Endpoint(broker.host, broker.port)
            for broker in answer.brokers
            if broker.node_id != CONTROLLER_NODE_ID
        }

    def partitions_of(self, broker_id: int) -> tuple[ReplicasDescription, ...]:
        """The partitions that have a replica on this broker.  Raises SparklogError."""

        async def describe() -> tuple[ReplicasDescription, ...]:
            async with ClusterClient((self._controller,)) as cluster:
                admin = ReplicaAdmin(cluster, timeout_s=CALL_SECONDS_MAX)
                found = (await admin.describe(internal=True)).values()
                return tuple(each for each in found if broker_id in each.replicas)

        return self._run(describe())

    def drain_brokers(
        self, broker_ids: Iterable[int], cancel: bool = False
    ) -> tuple[DrainedBroker, ...]:
        """Begin (or ``cancel``) draining brokers; without ids, ask about all draining brokers.

        Returns:
            The progress of each broker.

        Raises:
            SparklogError: the controller refused, or did not answer.
        """
        request = DrainBrokersRequest(broker_ids=tuple(broker_ids), cancel=cancel)
        brokers: tuple[DrainedBroker, ...] = self._ask(self._controller, request).brokers
        return brokers

    def unregister_broker(self, broker_id: int) -> None:
        """Unregister a broker that is stopped and drained.  Raises SparklogError."""
        self._ask(self._controller, UnregisterBrokerRequest(broker_id=broker_id))

    def give_work(self, spare: str, work: bytes) -> bool:
        """Give a spare its work.  Returns whether the spare was waiting.  Raises SparklogError."""
        asking: bool = self._ask(self._controller, GiveWorkRequest(spare=spare, work=work)).asking
        return asking

    def node_status(self, node: Endpoint) -> bytes:
        """A node's counters, as JSON.  Raises SparklogError."""
        status: bytes = self._ask(node, NodeStatusRequest()).status
        return status

    def stop_nodes(self, nodes: Iterable[Endpoint], reason: str) -> tuple[Endpoint, ...]:
        """Ask nodes for a clean stop, all at the same time.  Returns the nodes that agreed."""
        asked = tuple(nodes)

        async def ask_all() -> list[Any]:
            request = StopNodeRequest(reason=reason)
            calls = (self._request(node, request) for node in asked)
            return await asyncio.gather(*calls, return_exceptions=True)

        agreed = []
        for node, answer in zip(asked, self._run(ask_all()), strict=True):
            if isinstance(answer, BaseException) or answer.error_code:
                log.info("%s does not agree to stop: %s", node, answer)
            else:
                agreed.append(node)
        return tuple(agreed)

    def close(self) -> None:
        """End the event loop."""
        self._loop.close()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(call, 2 * CALL_SECONDS_MAX)

    def _ask(self, node: Endpoint, request: Request) -> Any:
        answer = self._run(self._request(node, request))
        check(answer.error_code, answer.error_message)
        return answer

    async def _request(self, node: Endpoint, request: Request) -> Any:
        connection = await Connection.open(
            node, client_id="sparklog-launcher", secret=self._secret, timeout_s=CALL_SECONDS_MAX
        )
        try:
            return await connection.request(request, timeout_s=CALL_SECONDS_MAX)
        finally:
            connection.close()
