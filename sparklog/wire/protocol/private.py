"""Messages between members of a cluster: api keys from 20000 up, version 0, not advertised.

Owns: their fields and the proof of membership.  Must not know when nodes send them.  Every response
starts with ``error_code`` and ``error_message``.

Membership: the caller sends MemberHello with a new nonce.  The response carries the server's nonce
and proof.  The caller checks this proof and sends its own proof in MemberProof.  A proof is an
HMAC-SHA256 over both nonces and the prover's role, keyed with the cluster secret.
"""

import hashlib
import hmac
from dataclasses import field
from typing import ClassVar, Final
from uuid import UUID

from sparklog.wire.protocol.private_clients import (
    ConsistentCutRequest,
    ConsistentCutResponse,
    ReadRemoteSegmentsRequest,
    ReadRemoteSegmentsResponse,
)
from sparklog.wire.protocol.private_replicas import REPLICA_MESSAGES
from sparklog.wire.protocol.schema import Request, Response, Struct, many, message, one

FIRST_PRIVATE_KEY: Final = 20000
NONCE_BYTES: Final = 32
#: The prover's role in a proof; without it a proof could be sent back to its maker.
SERVER_ROLE: Final = "server"
CLIENT_ROLE: Final = "client"


def member_proof(secret: bytes, client_nonce: bytes, server_nonce: bytes, role: str) -> bytes:
    """The proof for two nonces, which only a holder of the cluster secret can compute."""
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
    """Ends the proof of membership; from now on the connection belongs to a member."""

    API_KEY: ClassVar[int] = 20001

    proof: bytes = field(default=b"", metadata=one("bytes"))


@message
class MemberProofResponse(Response):
    API_KEY: ClassVar[int] = 20001

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))


@message
class OfflineReplica(Struct):
    """A partition whose replica on this broker is offline: a failed disk, a damaged log.

    ``lost``: the broker will never use this log again, and copies the leader's log once another
    broker leads.  ``gone``: nothing is left of this lost log, or the operator has accepted its
    loss; a tiered partition without another log goes on behind what is in the remote_dir.
    """

    topic_id: UUID | None = field(default=None, metadata=one("uuid"))
    partition: int = field(default=0, metadata=one("int32"))
    lost: bool = field(default=False, metadata=one("bool"))
    gone: bool = field(default=False, metadata=one("bool"))


@message
class RegisterBrokerRequest(Request):
    """A broker announces itself after every start.

    ``clean_epoch`` is its broker epoch at its last clean stop; -1 if that is not known.
    ``offline`` are the replicas that the broker found offline at its start.
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
    """Keeps a broker's session alive, and tells the image version that the broker has reached.

    ``wants_stop``: move the broker's leaderships to other brokers (KIP-631's controlled shutdown).
    ``has_stopped``: the broker has stopped cleanly.  ``offline``: replicas for which the controller
    elects other leaders, if possible (KIP-112).
    """

    API_KEY: ClassVar[int] = 20003

    broker_id: int = field(default=-1, metadata=one("int32"))
    broker_epoch: int = field(default=-1, metadata=one("int64"))
    metadata_version: int = field(default=-1, metadata=one("int64"))
    wants_stop: bool = field(default=False, metadata=one("bool"))
    has_stopped: bool = field(default=False, metadata=one("bool"))
    offline: tuple[OfflineReplica, ...] = field(default=(), metadata=many(OfflineReplica))


@message
class BrokerHeartbeatResponse(Response):
    """``may_stop``: the broker leads no partition any more that another broker could lead."""

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
    """The launcher asks which brokers to start, and for their last hosts."""

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
    """A broker that has died; without an incarnation, any process with that id."""

    broker_id: int = field(default=-1, metadata=one("int32"))
    incarnation: UUID | None = field(default=None, metadata=one("uuid"))


@message
class ReportLossRequest(Request):
    """These brokers were seen to die.

    The name of the message says "loss" for the death of a broker's process.  In all other names a
    log is *lost*, when its files are gone.
    """

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
    """Asks for a node's counters.  Clients may ask, too; they get the numbers."""

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
    """``response`` is sent to the client as it is, header included."""

    API_KEY: ClassVar[int] = 20010

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    response: bytes = field(default=b"", metadata=one("bytes"))


@message
class LogEnd(Struct):
    """The end of one replica's log: the log end offset and the epoch of the last record.

    ``current_leader_epoch`` is the epoch of the leaderless partition at that time (KIP-966).
    """

    topic_id: UUID | None = field(default=None, metadata=one("uuid"))
    partition: int = field(default=0, metadata=one("int32"))
    current_leader_epoch: int = field(default=-1, metadata=one("int32"))
    leader_epoch: int = field(default=-1, metadata=one("int32"))
    log_end_offset: int = field(default=-1, metadata=one("int64"))


@message
class ReportLogEndsRequest(Request):
    """A broker's log ends of partitions without a replica that is known to be complete."""

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
    """Move the replicas of these brokers to other brokers, or (``cancel``) stop moving them.  A
    repeated request tells the progress; without ids, the progress of all drained brokers."""

    API_KEY: ClassVar[int] = 20012

    broker_ids: tuple[int, ...] = field(default=(), metadata=many("int32"))
    cancel: bool = field(default=False, metadata=one("bool"))


@message
class DrainedBroker(Struct):
    """``partitions_left`` still have a replica on the broker.  ``partitions_stuck`` of them have no
    leader to copy from, or too few other brokers."""

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
    """A spare supervisor, which holds a slot without a broker, asks for work and waits."""

    API_KEY: ClassVar[int] = 20020

    spare: str = field(default="", metadata=one("string"))
    max_wait_ms: int = field(default=0, metadata=one("int32"))


@message
class AwaitWorkResponse(Response):
    """``work`` is a JSON object; empty: no work yet."""

    API_KEY: ClassVar[int] = 20020

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    work: bytes = field(default=b"", metadata=one("bytes"))


@message
class GiveWorkRequest(Request):
    """The launcher gives work to a spare supervisor; repeating the request is harmless."""

    API_KEY: ClassVar[int] = 20021

    spare: str = field(default="", metadata=one("string"))
    work: bytes = field(default=b"", metadata=one("bytes"))


@message
class GiveWorkResponse(Response):
    """``asking``: the spare has asked for work; otherwise it has work, or is gone."""

    API_KEY: ClassVar[int] = 20021

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))
    asking: bool = field(default=False, metadata=one("bool"))


@message
class ReportDamageRequest(Request):
    """A batch that this broker sent was damaged: the broker must check its log from ``offset``."""

    API_KEY: ClassVar[int] = 20013

    topic_id: UUID | None = field(default=None, metadata=one("uuid"))
    partition: int = field(default=0, metadata=one("int32"))
    offset: int = field(default=0, metadata=one("int64"))


@message
class ReportDamageResponse(Response):
    API_KEY: ClassVar[int] = 20013

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))


@message
class CreateInternalTopicRequest(Request):
    """A broker asks for an internal topic; repeating the request is harmless."""

    API_KEY: ClassVar[int] = 20014

    name: str = field(default="", metadata=one("string"))


@message
class CreateInternalTopicResponse(Response):
    """The topic exists."""

    API_KEY: ClassVar[int] = 20014

    error_code: int = field(default=0, metadata=one("int16"))
    error_message: str | None = field(default=None, metadata=one("string", nullable=0))


#: Request and response classes by api key.
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
        (CreateInternalTopicRequest, CreateInternalTopicResponse),
        (AwaitWorkRequest, AwaitWorkResponse),
        (GiveWorkRequest, GiveWorkResponse),
        (ConsistentCutRequest, ConsistentCutResponse),
        (ReadRemoteSegmentsRequest, ReadRemoteSegmentsResponse),
    )
} | {request.API_KEY: (request, response) for request, response in REPLICA_MESSAGES}
