"""Requests about groups, each sent to the coordinators of its groups.

Owns: which node coordinates a group, and retries while coordinators move or load.  Must not know
any particular request.  Members have a way of their own to the one coordinator of their group, with
connections of their own (``groups/coordinator_link``).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, TypeVar

from sparklog.client.cluster_client import UNKNOWN_TOPIC_GRACE_S, ClusterClient
from sparklog.client.connection import Connection
from sparklog.client.deadline import UNKNOWN_TOPIC_CODES, Backoff, Deadline, kafka_error, retry
from sparklog.errors import ClosedError, ConnectError, ErrorCode, KafkaError
from sparklog.types import Endpoint
from sparklog.wire.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

T = TypeVar("T")

_GROUP: Final = 0

#: (node id, connection, groups, deadline) -> result or error by group.
CoordinatorCall = Callable[
    [int, Connection, tuple[str, ...], Deadline], Awaitable[Mapping[str, T | KafkaError]]
]
#: A coordinator: its node id and its address.
_Node = tuple[int, Endpoint]


class GroupCoordinators:
    """The way to the coordinators of any number of groups."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def ask(
        self, group_ids: Iterable[str], call: CoordinatorCall[T], deadline: Deadline
    ) -> dict[str, T | KafkaError]:
        """Call every coordinator with its groups, all at once; retriable failures are retried.

        ``call`` may raise ConnectError or KafkaError for all its groups.  A partition that is
        unknown is retried only for a moment, as brokers learn of new topics a moment later.

        Returns: a result or the last error for every group, in the order of ``group_ids``.
        """
        wanted = tuple(dict.fromkeys(group_ids))
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
                group_id
                for group_id in pending
                if _may_succeed_later(results[group_id], unknown_topic_grace)
            ]
            if pending and not await backoff.pause():
                break
        return {group_id: results[group_id] for group_id in wanted}

    async def _find(
        self, group_ids: Collection[str], deadline: Deadline
    ) -> tuple[dict[_Node, list[str]], dict[str, KafkaError]]:
        """The groups by coordinator, and why others have none.  Raises ConnectError."""
        by_node: dict[_Node, list[str]] = {}
        failed: dict[str, KafkaError] = {}
        left = list(group_ids)
        while left:
            found = await self._find_some(left, deadline)
            for each in found:
                if each.error_code:
                    text = f"the coordinator of the group {each.key!r} is not known"
                    message = f"{text}: {each.error_message}" if each.error_message else text
                    failed[each.key] = kafka_error(each.error_code, message)
                else:
                    node = (each.node_id, Endpoint(each.host, each.port))
                    by_node.setdefault(node, []).append(each.key)
            done = {each.key for each in found}
            left = [group_id for group_id in left if group_id not in done]
        return by_node, failed

    async def _find_some(self, group_ids: list[str], deadline: Deadline) -> tuple[Coordinator, ...]:
        """The coordinators of these groups; before FindCoordinator v4, of the first one."""
        request = FindCoordinatorRequest(
            key=group_ids[0], key_type=_GROUP, coordinator_keys=tuple(group_ids)
        )
        found: FindCoordinatorResponse = await retry(
            lambda: self._cluster.ask_broker(request, deadline), deadline
        )
        wanted = set(group_ids)
        named = tuple(each for each in found.coordinators if each.key in wanted)
        if named:
            return named
        first = Coordinator(
            key=group_ids[0],
            node_id=found.node_id,
            host=found.host,
            port=found.port,
            error_code=found.error_code,
            error_message=found.error_message,
        )
        return (first,)

    async def _call(
        self, call: CoordinatorCall[T], node: _Node, group_ids: tuple[str, ...], deadline: Deadline
    ) -> dict[str, T | KafkaError]:
        """A result or an error for every group of one coordinator."""
        node_id, endpoint = node
        results: dict[str, T | KafkaError] = {
            group_id: KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"node {node_id} did not answer for {group_id!r}"
            )
            for group_id in group_ids
        }
        try:
            connection = await self._cluster.connect(endpoint, deadline)
            answers = await call(node_id, connection, group_ids, deadline)
        except ClosedError:
            raise
        except KafkaError as error:
            return dict.fromkeys(group_ids, error)
        except ConnectError as error:
            return dict.fromkeys(group_ids, KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)))
        return results | {key: answers[key] for key in group_ids if key in answers}


def _may_succeed_later(result: object, unknown_topic_grace: Deadline) -> bool:
    if not isinstance(result, KafkaError) or not result.retriable:
        return False
    return result.code not in UNKNOWN_TOPIC_CODES or not unknown_topic_grace.expired
