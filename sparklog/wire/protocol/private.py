"""Messages between members of a cluster: api keys from 20000 up, version 0, never advertised.

Owns: their fields and the proof of membership.  Must not know who sends them when.
Every response starts with ``error_code`` and ``error_message``.

Membership: the caller sends MemberHello with a fresh nonce; the answer carries the server's nonce
and the server's proof; the caller checks it and sends its own in MemberProof.  A proof is an
HMAC-SHA256 over both nonces and the prover's role, keyed with the cluster secret.
"""

import hashlib
import hmac
from dataclasses import field
from typing import ClassVar, Final
from uuid import UUID

from sparklog.wire.protocol.schema import Request, Response, Struct, many, message, one

FIRST_PRIVATE_KEY: Final = 20000
NONCE_BYTES: Final = 32
#: Who made a proof; without it a proof could be sent back to its maker.
SERVER_ROLE: Final = "server"
CLIENT_ROLE: Final = "client"


def member_proof(secret: bytes, client_nonce: bytes, server_nonce: bytes, role: str) -> bytes:
    """What only a holder of the cluster secret can compute for these two nonces."""
    mac = hmac.new(secret, digestmod=hashlib.sha256)
    for part in (b"sparklog member", role.encode(), client_nonce, server_nonce):
        mac.update(len(part).to_bytes(4, "big"))
        mac.update(part)
    return mac.digest()


def is_member_proof(
    proof: bytes, secret: bytes, client_nonce: bytes, server_nonce: bytes, role: str
) -> bool:
    """Whether a proof is right, in constant time."""
    return hmac.compare_digest(proof, member_proof(secret, client_nonce, server_nonce, role))


@message
class MemberHelloRequest(Request):
    """Starts the proof of membership on a connection."""

    API_KEY: ClassVar[int] = 20000

    nonce: bytes = field(default=b"", metadata=one("bytes"))


@message
class MemberHelloResponse(Response):
    API_KEY: ClassVar[int] = 20000

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    nonce: bytes = field(default=b"", metadata=one("bytes"))
    proof: bytes = field(default=b"", metadata=one("bytes"))


@message
class MemberProofRequest(Request):
    """Ends it; from here the connection counts as a member's."""

    API_KEY: ClassVar[int] = 20001

    proof: bytes = field(default=b"", metadata=one("bytes"))


@message
class MemberProofResponse(Response):
    API_KEY: ClassVar[int] = 20001

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))


@message
class OfflineReplica(Struct):
    """A partition whose replica on this broker does not work: a failed disk, a damaged log.

    ``lost``: the broker will never use this log again, and copies the leader's once another broker
    leads.
    """

    topic_id: UUID | None = field(default=None, metadata=one("uuid"))
    partition: int = field(default=0, metadata=one("int32"))
    lost: bool = field(default=False, metadata=one("bool"))


@message
class RegisterBrokerRequest(Request):
    """A broker announces itself after every start.

    ``clean_epoch`` is its broker epoch when it stopped cleanly; -1 if that is not known.
    ``offline`` are the replicas that its start found not to work.
    """

    API_KEY: ClassVar[int] = 20002

    cluster_id: str = field(default="", metadata=one("string"))
    broker_id: int = field(default=-1, metadata=one("int32"))
    directory_id: UUID | None = field(default=None, metadata=one("uuid"))
    incarnation: UUID | None = field(default=None, metadata=one("uuid"))
    host: str = field(default="", metadata=one("string"))
    port: int = field(default=0, metadata=one("int32"))
    executor_host: str = field(default="", metadata=one("string"))
    executor_id: str = field(default="", metadata=one("string"))
    job: str = field(default="", metadata=one("string"))
    rack: str = field(default="", metadata=one("string"))
    clean_stop: bool = field(default=False, metadata=one("bool"))
    clean_epoch: int = field(default=-1, metadata=one("int64"))
    offline: tuple[OfflineReplica, ...] = field(default=(), metadata=many(OfflineReplica))


@message
class RegisterBrokerResponse(Response):
    API_KEY: ClassVar[int] = 20002

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    broker_epoch: int = field(default=-1, metadata=one("int64"))
    controller_epoch: int = field(default=-1, metadata=one("int32"))


@message
class BrokerHeartbeatRequest(Request):
    """Keeps a broker's session, and tells which image it has reached.

    ``wants_stop``: move what it leads to others (KIP-631's controlled shutdown); ``stopping``: it
    has stopped cleanly; ``offline``: others lead these if they can (KIP-112).
    """

    API_KEY: ClassVar[int] = 20003

    broker_id: int = field(default=-1, metadata=one("int32"))
    broker_epoch: int = field(default=-1, metadata=one("int64"))
    metadata_version: int = field(default=-1, metadata=one("int64"))
    wants_stop: bool = field(default=False, metadata=one("bool"))
    stopping: bool = field(default=False, metadata=one("bool"))
    offline: tuple[OfflineReplica, ...] = field(default=(), metadata=many(OfflineReplica))


@message
class BrokerHeartbeatResponse(Response):
    """``may_stop``: the broker leads nothing any more that another could lead."""

    API_KEY: ClassVar[int] = 20003

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    fenced: bool = field(default=False, metadata=one("bool"))
    may_stop: bool = field(default=False, metadata=one("bool"))


@message
class WatchMetadataRequest(Request):
    """Long-polls for the commits after version ``since``; -1 asks for a snapshot."""

    API_KEY: ClassVar[int] = 20004

    since: int = field(default=-1, metadata=one("int64"))
    max_wait_ms: int = field(default=0, metadata=one("int32"))


@message
class WatchMetadataResponse(Response):
    """Each commit is the JSON of its records; with ``snapshot`` the image is emptied first."""

    API_KEY: ClassVar[int] = 20004

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    controller_epoch: int = field(default=-1, metadata=one("int32"))
    snapshot: bool = field(default=False, metadata=one("bool"))
    version: int = field(default=-1, metadata=one("int64"))
    commits: tuple[bytes, ...] = field(default=(), metadata=many("bytes"))


@message
class AllocateProducerIdsRequest(Request):
    """A broker asks for a block of producer ids."""

    API_KEY: ClassVar[int] = 20005

    broker_id: int = field(default=-1, metadata=one("int32"))
    broker_epoch: int = field(default=-1, metadata=one("int64"))


@message
class AllocateProducerIdsResponse(Response):
    API_KEY: ClassVar[int] = 20005

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    first_producer_id: int = field(default=-1, metadata=one("int64"))
    count: int = field(default=0, metadata=one("int32"))


@message
class AssignBrokersRequest(Request):
    """The launcher asks which brokers to start, and where they were last."""

    API_KEY: ClassVar[int] = 20006

    count: int = field(default=0, metadata=one("int32"))


@message
class AssignedBroker(Struct):
    """``new`` allows the supervisor to create the directory."""

    broker_id: int = field(default=-1, metadata=one("int32"))
    directory_id: UUID | None = field(default=None, metadata=one("uuid"))
    host: str | None = field(default=None, metadata=one("string", nullable=0))
    new: bool = field(default=False, metadata=one("bool"))


@message
class AssignBrokersResponse(Response):
    API_KEY: ClassVar[int] = 20006

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    brokers: tuple[AssignedBroker, ...] = field(default=(), metadata=many(AssignedBroker))


@message
class LostBroker(Struct):
    """Without an incarnation, whatever runs under that id is meant."""

    broker_id: int = field(default=-1, metadata=one("int32"))
    incarnation: UUID | None = field(default=None, metadata=one("uuid"))


@message
class ReportLossRequest(Request):
    """The launcher saw these brokers die."""

    API_KEY: ClassVar[int] = 20007

    brokers: tuple[LostBroker, ...] = field(default=(), metadata=many(LostBroker))


@message
class ReportLossResponse(Response):
    API_KEY: ClassVar[int] = 20007

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))


@message
class StopNodeRequest(Request):
    """Asks a broker or the control plane for a clean stop."""

    API_KEY: ClassVar[int] = 20008

    reason: str = field(default="", metadata=one("string"))


@message
class StopNodeResponse(Response):
    API_KEY: ClassVar[int] = 20008

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))


@message
class NodeStatusRequest(Request):
    """Asks for a node's counters."""

    API_KEY: ClassVar[int] = 20009


@message
class NodeStatusResponse(Response):
    """``status`` is a JSON object."""

    API_KEY: ClassVar[int] = 20009

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    status: bytes = field(default=b"{}", metadata=one("bytes"))


@message
class ForwardRequestRequest(Request):
    """A client's request, header included, that only the controller can answer."""

    API_KEY: ClassVar[int] = 20010

    principal: str | None = field(default=None, metadata=one("string", nullable=0))
    api_version: int = field(default=0, metadata=one("int16"))
    request: bytes = field(default=b"", metadata=one("bytes"))


@message
class ForwardRequestResponse(Response):
    """``response`` is what goes to the client, header included."""

    API_KEY: ClassVar[int] = 20010

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    response: bytes = field(default=b"", metadata=one("bytes"))


@message
class LogEnd(Struct):
    """How far one replica's log reaches: where it ends, and the epoch of its last record.

    ``current_leader_epoch`` is that of the partition, without a leader, when this was so (KIP-966).
    """

    topic_id: UUID | None = field(default=None, metadata=one("uuid"))
    partition: int = field(default=0, metadata=one("int32"))
    current_leader_epoch: int = field(default=-1, metadata=one("int32"))
    leader_epoch: int = field(default=-1, metadata=one("int32"))
    log_end_offset: int = field(default=-1, metadata=one("int64"))


@message
class ReportLogEndsRequest(Request):
    """What a broker has of partitions that lost every safe replica, for an unclean recovery."""

    API_KEY: ClassVar[int] = 20011

    broker_id: int = field(default=-1, metadata=one("int32"))
    broker_epoch: int = field(default=-1, metadata=one("int64"))
    ends: tuple[LogEnd, ...] = field(default=(), metadata=many(LogEnd))


@message
class ReportLogEndsResponse(Response):
    API_KEY: ClassVar[int] = 20011

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))


@message
class DrainBrokersRequest(Request):
    """These brokers are to lose their replicas to the others, or (``cancel``) may keep what they
    have left.  Asked again, it tells how far that is; without ids, of all that lose theirs."""

    API_KEY: ClassVar[int] = 20012

    broker_ids: tuple[int, ...] = field(default=(), metadata=many("int32"))
    cancel: bool = field(default=False, metadata=one("bool"))


@message
class DrainedBroker(Struct):
    """``partitions_left`` have a replica on it still; of those, ``partitions_stuck`` have no leader
    that others could copy, or too few other brokers."""

    broker_id: int = field(default=-1, metadata=one("int32"))
    partitions_left: int = field(default=0, metadata=one("int32"))
    partitions_stuck: int = field(default=0, metadata=one("int32"))


@message
class DrainBrokersResponse(Response):
    API_KEY: ClassVar[int] = 20012

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    brokers: tuple[DrainedBroker, ...] = field(default=(), metadata=many(DrainedBroker))


@message
class AwaitWorkRequest(Request):
    """A spare supervisor, which holds a slot and runs no broker, asks for one; it waits so long."""

    API_KEY: ClassVar[int] = 20020

    spare: str = field(default="", metadata=one("string"))
    max_wait_ms: int = field(default=0, metadata=one("int32"))


@message
class AwaitWorkResponse(Response):
    """``work`` is a JSON object; empty: there is none yet."""

    API_KEY: ClassVar[int] = 20020

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    work: bytes = field(default=b"", metadata=one("bytes"))


@message
class GiveWorkRequest(Request):
    """The launcher has work for a spare supervisor; the same may be given again."""

    API_KEY: ClassVar[int] = 20021

    spare: str = field(default="", metadata=one("string"))
    work: bytes = field(default=b"", metadata=one("bytes"))


@message
class GiveWorkResponse(Response):
    """``asking``: the spare has just asked for work; otherwise it has some, or is not there."""

    API_KEY: ClassVar[int] = 20021

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    asking: bool = field(default=False, metadata=one("bool"))


@message
class ReportDamageRequest(Request):
    """A batch that this broker sent was damaged: it is to check its log from ``offset`` on."""

    API_KEY: ClassVar[int] = 20013

    topic_id: UUID | None = field(default=None, metadata=one("uuid"))
    partition: int = field(default=0, metadata=one("int32"))
    offset: int = field(default=0, metadata=one("int64"))


@message
class ReportDamageResponse(Response):
    API_KEY: ClassVar[int] = 20013

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))


#: By api key.
PRIVATE_MESSAGES: Final[dict[int, tuple[type[Request], type[Response]]]] = {
    request.API_KEY: (request, response)
    for request, response in (
        (MemberHelloRequest, MemberHelloResponse),
        (MemberProofRequest, MemberProofResponse),
        (RegisterBrokerRequest, RegisterBrokerResponse),
        (BrokerHeartbeatRequest, BrokerHeartbeatResponse),
        (WatchMetadataRequest, WatchMetadataResponse),
        (AllocateProducerIdsRequest, AllocateProducerIdsResponse),
        (AssignBrokersRequest, AssignBrokersResponse),
        (ReportLossRequest, ReportLossResponse),
        (StopNodeRequest, StopNodeResponse),
        (NodeStatusRequest, NodeStatusResponse),
        (ForwardRequestRequest, ForwardRequestResponse),
        (ReportLogEndsRequest, ReportLogEndsResponse),
        (DrainBrokersRequest, DrainBrokersResponse),
        (ReportDamageRequest, ReportDamageResponse),
        (AwaitWorkRequest, AwaitWorkResponse),
        (GiveWorkRequest, GiveWorkResponse),
    )
}
