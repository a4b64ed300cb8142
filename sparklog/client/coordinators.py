"""Requests about groups or transactional ids, each sent to the coordinators of its keys.

Owns: which node coordinates a key, and retries while coordinators move or load.  Must not know any
particular request.  Members of groups and transactional producers use their own connections to
their one coordinator (``coordinator_channel``).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeVar

from sparklog.client.cluster_client import UNKNOWN_TOPIC_GRACE_S, ClusterClient
from sparklog.client.connection import Connection
from sparklog.client.deadline import UNKNOWN_TOPIC_CODES, Backoff, Deadline, retry
from sparklog.client.find_coordinator_api import (
    CoordinatorType,
    coordinator_error,
    find_coordinator_request,
    found_coordinators,
)
from sparklog.errors import ClosedError, ConnectError, ErrorCode, KafkaError
from sparklog.types import Endpoint
from sparklog.wire.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse

T = TypeVar("T")

#: (node id, connection, keys, deadline) -> result or error by key.
CoordinatorCall = Callable[
    [int, Connection, tuple[str, ...], Deadline], Awaitable[Mapping[str, T | KafkaError]]
]
#: A coordinator: its node id and its address.
_Node = tuple[int, Endpoint]


class Coordinators:
    """The way to the coordinators of any number of keys: group ids, or transactional ids."""

    def __init__(
        self, cluster: ClusterClient, kind: CoordinatorType = CoordinatorType.GROUP
    ) -> None:
        self._cluster = cluster
        self._kind = kind

    async def ask(
        self, keys: Iterable[str], call: CoordinatorCall[T], deadline: Deadline
    ) -> dict[str, T | KafkaError]:
        """Call every coordinator with its keys, all at once; retriable failures are retried.

        ``call`` may raise ConnectError or KafkaError for all its keys.  An unknown
        partition is retried only for a moment, because brokers may learn of new topics late.

        Returns: a result or the last error for every key, in the order of ``keys``.
        """
        wanted = tuple(dict.fromkeys(keys))
        results: dict[str, T | KafkaError] = {}
        pending: Collection[str] = wanted
        backoff = Backoff(deadline)
        unknown_topic_grace = deadline.capped(UNKNOWN_TOPIC_GRACE_S)
        while pending:
            by_node, failed = await self._find(pending, deadline)
            results |= failed
            answers = await asyncio.gather(
                *(self._call(call, node, tuple(ids), deadline) for node, ids in by_node.items())
            )
            for answer in answers:
                results |= answer
            pending = [
                key for key in pending if _may_succeed_later(results[key], unknown_topic_grace)
            ]
            if pending and not await backoff.pause():
                break
        return {key: results[key] for key in wanted}

    async def _find(
        self, keys: Collection[str], deadline: Deadline
    ) -> tuple[dict[_Node, list[str]], dict[str, KafkaError]]:
        """The keys by coordinator, and the errors of keys without one.  Raises ConnectError."""
        by_node: dict[_Node, list[str]] = {}
        failed: dict[str, KafkaError] = {}
        left = list(keys)
        while left:
            found = await self._find_some(left, deadline)
            for each in found:
                error = coordinator_error(self._kind, each)
                if error is not None:
                    failed[each.key] = error
                else:
                    node = (each.node_id, Endpoint(each.host, each.port))
                    by_node.setdefault(node, []).append(each.key)
            done = {each.key for each in found}
            left = [key for key in left if key not in done]
        return by_node, failed

    async def _find_some(self, keys: list[str], deadline: Deadline) -> tuple[Coordinator, ...]:
        """The coordinators of these keys; before FindCoordinator v4, of the first one."""
        request = find_coordinator_request(self._kind, keys)
        found: FindCoordinatorResponse = await retry(
            lambda: self._cluster.ask_broker(request, deadline), deadline
        )
        return found_coordinators(found, set(keys), keys[0])

    async def _call(
        self, call: CoordinatorCall[T], node: _Node, keys: tuple[str, ...], deadline: Deadline
    ) -> dict[str, T | KafkaError]:
        """A result or an error for every key of one coordinator."""
        node_id, endpoint = node
        results: dict[str, T | KafkaError] = {
            key: KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"node {node_id} did not answer for {key!r}"
            )
            for key in keys
        }
        try:
            connection = await self._cluster.connect(endpoint, deadline)
            answers = await call(node_id, connection, keys, deadline)
        except ClosedError:
            raise
        except KafkaError as error:
            return dict.fromkeys(keys, error)
        except ConnectError as error:
            return dict.fromkeys(keys, KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)))
        return results | {key: answers[key] for key in keys if key in answers}


def _may_succeed_later(result: object, unknown_topic_grace: Deadline) -> bool:
    if not isinstance(result, KafkaError) or not result.retriable:
        return False
    return result.code not in UNKNOWN_TOPIC_CODES or not unknown_topic_grace.expired
