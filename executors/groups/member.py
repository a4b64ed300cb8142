"""A member of a group.

Owns: the member's metadata, assignment, session timer, and the requests of it that wait.  Must not
know the rest of the group.  Kafka: ``ClassicGroupMember``.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from sparklog.executors.groups.record_schemas import MemberMetadata
from sparklog.executors.groups.timers import Timer
from sparklog.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol

#: An upper bound for the numbers, lengths and the UUID of a member in a record.
MEMBER_OVERHEAD_BYTES = 80
#: Most bytes of a character in UTF-8.
_CHARACTER_BYTES_MAX = 4


class WaitingRequest(NamedTuple):
    """A request that is answered by a later event."""

    request_id: int
    version: int


class Member:
    """A member of a group; timeouts are in milliseconds.

    ``is_new`` is true from the first JoinGroup to its response: until then the member does not
    know its id and cannot send heartbeats.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "metadata_bytes",
        "protocols",
        "rebalance_timeout_ms",
        "record_bytes",
        "session_timeout_ms",
        "session_timer",
        "sync",
    )

    def __init__(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timer: Timer,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timer = session_timer
        self.session_timeout_ms = 0
        self.rebalance_timeout_ms = 0
        self.protocols: tuple[JoinGroupRequestProtocol, ...] = ()
        #: The memory of the protocols.
        self.metadata_bytes = 0
        #: An upper bound for the member's part of the group's record, without the assignment.
        self.record_bytes = 0
        self.assignment = b""
        self.join: WaitingRequest | None = None
        self.sync: WaitingRequest | None = None
        self.is_new = False

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether a request of the member waits, which proves that the member lives."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def set_protocols(self, protocols: tuple[JoinGroupRequestProtocol, ...]) -> None:
        self.protocols = protocols
        self.metadata_bytes = protocols_bytes(protocols)
        texts = self.member_id, self.instance_id or "", self.client_id, self.client_host
        self.record_bytes = record_bytes_of(texts, protocols)

    def metadata_of(self, protocol_name: str | None) -> bytes:
        """The metadata for a protocol that every member of the group supports."""
        return next(each.metadata for each in self.protocols if each.name == protocol_name)

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate that the member prefers."""
        return next(each.name for each in self.protocols if each.name in candidates)

    def described(self, protocol_name: str | None) -> MemberMetadata:
        """The member as the group's record has it."""
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata_of(protocol_name),
            assignment=self.assignment,
        )


def record_bytes_of(texts: Iterable[str], protocols: Collection[JoinGroupRequestProtocol]) -> int:
    """An upper bound for the bytes of a member in the group's record, without its assignment.

    ``texts`` are the member's ids, client id and host.
    """
    metadata = max((len(each.metadata) for each in protocols), default=0)
    return MEMBER_OVERHEAD_BYTES + _CHARACTER_BYTES_MAX * sum(map(len, texts)) + metadata


def protocols_bytes(protocols: Collection[JoinGroupRequestProtocol]) -> int:
    """The memory of protocols, estimated."""
    return sum(len(each.name) + len(each.metadata) for each in protocols)


def rebalance_timeout_of(request: JoinGroupRequest, version: int) -> int:
    """A member's rebalance timeout in milliseconds; version 0 has only the session timeout."""
    return request.session_timeout_ms if version == 0 else max(request.rebalance_timeout_ms, 0)


def distinct_protocols(
    protocols: tuple[JoinGroupRequestProtocol, ...],
) -> tuple[JoinGroupRequestProtocol, ...]:
    """The protocols in their order; of several with one name the first."""
    by_name: dict[str, JoinGroupRequestProtocol] = {}
    for each in protocols:
        by_name.setdefault(each.name, each)
    return protocols if len(by_name) == len(protocols) else tuple(by_name.values())
