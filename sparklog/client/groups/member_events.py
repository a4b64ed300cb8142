"""Events, actions and settings of a group member, as values.

Owns: the events for ``Membership``, and its actions.  Must not know how a member decides, nor how
an action is carried out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from sparklog.client.groups.assignors import Assignment, Assignor
from sparklog.client.groups.consumer_protocol import Subscription
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest
from sparklog.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from sparklog.wire.protocol.messages.leave_group import LeaveGroupRequest
from sparklog.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The settings of a member; times in seconds."""

    group_id: str
    assignors: tuple[Assignor, ...]
    group_instance_id: str | None = None
    rack: str | None = None
    session_timeout_s: float = 45.0
    heartbeat_interval_s: float = 3.0
    max_poll_interval_s: float = 300.0
    retry_backoff_s: float = 0.1
    retry_backoff_s_max: float = 1.0


class MemberState(Enum):
    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    LEAVING = "leaving"
    FAILED = "failed"


class CallbackKind(Enum):
    """The callbacks of a rebalance listener (``ConsumerRebalanceListener``)."""

    REVOKED = "revoked"
    ASSIGNED = "assigned"
    LOST = "lost"


# Events: what happened.


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionChanged:
    """The application wants these topics; no topics mean that it unsubscribed or closes."""

    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PollBegan:
    """The application called ``poll``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollEnded:
    """``poll`` returned to the application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """``Membership.wake_at`` has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorFound:
    """The coordinator of the group was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorNotFound:
    """The search for the coordinator has failed."""

    error: KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswered:
    request_id: int
    response: JoinGroupResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswered:
    request_id: int
    response: SyncGroupResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswered:
    request_id: int
    code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveAnswered:
    """The coordinator answered LeaveGroup; whatever the answer, this member has left."""

    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed:
    """A request had no response: its connection was lost, or the time is up."""

    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentComputed:
    """The assignment of every member, from these numbers of partitions by topic."""

    request_id: int
    assignment: Assignment
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputationFailed:
    """The assignment could not be computed, for example for lack of metadata."""

    request_id: int
    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRefreshed:
    """The numbers of partitions by topic, from the cluster's metadata."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackDone:
    """The first outstanding callback was carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipLost:
    """An OffsetCommit of a generation was refused, so this member is not in the group any more."""

    generation: int
    code: ErrorCode


Event = (
    SubscriptionChanged | PollBegan | PollEnded | TimePassed | CoordinatorFound
    | CoordinatorNotFound | JoinAnswered | SyncAnswered | HeartbeatAnswered | LeaveAnswered
    | RequestFailed | AssignmentComputed | ComputationFailed | MetadataRefreshed | CallbackDone
    | MembershipLost
)  # fmt: skip


# Actions

MemberRequest = JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinator:
    """Find the coordinator again, because the last known node is not the coordinator now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest:
    """Send a request to the coordinator; the answering event carries ``request_id``."""

    request_id: int
    request: MemberRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeAssignment:
    """This member leads the group: compute the assignment from fresh metadata."""

    request_id: int
    assignor: Assignor
    members: Mapping[str, Subscription]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCallback:
    """Carry out a change of the assignment within ``poll``, and call the listener.

    Callbacks come one after the other: the next one begins after ``CallbackDone``.
    """

    kind: CallbackKind
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The member has left the group on its own request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """The group refuses the member for good; ``poll`` raises the error."""

    error: Exception


Action = FindCoordinator | SendRequest | ComputeAssignment | RunCallback | Left | Fail

#: The coordinator does not know this member (any more): it starts anew.
MEMBER_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
#: Refusals of a commit that say that the member is not in the group as it believes.
MEMBERSHIP_DOUBTED: Final = MEMBER_UNKNOWN | {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
}
