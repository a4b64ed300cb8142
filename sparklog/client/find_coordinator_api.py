"""The bodies of FindCoordinator, for groups and for transactional ids.

Owns: making a request from keys, and coordinators and errors from a response.  Must not know which
node is asked, nor any request to a coordinator.
"""

from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import Final

from sparklog.client.deadline import kafka_error
from sparklog.errors import ErrorCode, KafkaError
from sparklog.wire.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)


class CoordinatorType(IntEnum):
    """The kind of a coordinator's keys; the values are Kafka's key types."""

    GROUP = 0
    TRANSACTION = 1


#: The coordinator has moved, or cannot answer: find it anew.
COORDINATOR_MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)

_NOUNS: Final = {
    CoordinatorType.GROUP: "group",
    CoordinatorType.TRANSACTION: "transactional id",
}


def find_coordinator_request(kind: CoordinatorType, keys: Sequence[str]) -> FindCoordinatorRequest:
    """Ask for the coordinators of these keys; before v4, of the first key only."""
    return FindCoordinatorRequest(key=keys[0], key_type=kind, coordinator_keys=tuple(keys))


def found_coordinators(
    response: FindCoordinatorResponse, keys: Collection[str], first_key: str
) -> tuple[Coordinator, ...]:
    """The coordinators that a response names; before v4, of ``first_key`` only."""
    named = tuple(each for each in response.coordinators if each.key in keys)
    if named:
        return named
    first = Coordinator(
        key=first_key,
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
        error_message=response.error_message,
    )
    return (first,)


def coordinator_error(kind: CoordinatorType, found: Coordinator) -> KafkaError | None:
    """The error of a key without coordinator; None if it has one."""
    if not found.error_code:
        return None
    text = f"the coordinator of the {_NOUNS[kind]} {found.key!r} is not known"
    return kafka_error(
        found.error_code, f"{text}: {found.error_message}" if found.error_message else text
    )
