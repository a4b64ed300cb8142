"""Kafka's error codes and sparklog's exception hierarchy.

Owns: every error that crosses a boundary, on the wire or in Python.  Must not know anything else
in the package.  Rule: code raises ``KafkaError(code)``; only dispatch turns it into bytes (and only
the client turns bytes back into it).  The world's failures are errors; our own bugs are asserts.
"""

import errno
from enum import IntEnum
from typing import Any


class ErrorCode(IntEnum):
    """Error codes of the Kafka protocol (``org.apache.kafka.common.protocol.Errors``, 4.3)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @classmethod
    def of(cls, code: int) -> "ErrorCode":
        """A code from the wire; UNKNOWN_SERVER_ERROR stands for every unknown code."""
        return cls(code) if code in cls._value2member_map_ else cls.UNKNOWN_SERVER_ERROR


#: Codes after which a client may retry unchanged (``RetriableException`` in Kafka).
RETRIABLE_CODES: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


class SparklogError(Exception):
    """Base of every error that sparklog raises on purpose."""


class KafkaError(SparklogError):
    """A refusal with a Kafka error code.

    ``str()`` gives code and message; the message names the subject and, if possible, the remedy.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE_CODES

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}" if self.message else self.code.name

    def __reduce__(self) -> tuple[type["KafkaError"], tuple[ErrorCode, str | None]]:
        return (KafkaError, (self.code, self.message))


class NoOffsetForPartitionError(SparklogError):
    """A partition without a committed offset, while ``auto_offset_reset`` is ``none``."""


class FrameError(SparklogError):
    """Bytes on a connection that cannot be a frame; the connection must be closed."""


class DecodeError(SparklogError):
    """Bytes that do not follow their schema (message, batch, index, snapshot)."""


class CorruptBatchError(DecodeError):
    """Records that cannot be read: their batch is damaged, or was never well-formed.

    The message names topic, partition, offsets and the reason, and how to skip the records.
    """

    def __init__(
        self, topic_partition: str, first_offset: int, last_offset: int, reason: str, remedy: str
    ) -> None:
        super().__init__(
            f"{topic_partition}: the records at offsets {first_offset} to {last_offset} cannot be "
            f"read: {reason}. {remedy}"
        )
        self.topic_partition = topic_partition
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.reason = reason
        self.remedy = remedy

    def __reduce__(self) -> tuple[type["CorruptBatchError"], tuple[str, int, int, str, str]]:
        given = (self.topic_partition, self.first_offset, self.last_offset)
        return (CorruptBatchError, (*given, self.reason, self.remedy))


class CorruptLogError(SparklogError):
    """A log file that is damaged before its recovery point.  Names the file and the position."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} is corrupt at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason

    def __reduce__(self) -> tuple[type["CorruptLogError"], tuple[Any, ...]]:
        return (CorruptLogError, (self.path, self.position, self.reason))


class DamagedRangeError(CorruptLogError):
    """A range of a log that is known to be damaged, while the rest of the log works.

    ``first_offset`` is the first offset in the range, ``end_offset`` the first offset behind it.
    """

    def __init__(
        self, path: str, position: int, reason: str, first_offset: int, end_offset: int
    ) -> None:
        super().__init__(
            path, position, f"{reason} (offsets {first_offset} to {end_offset - 1} are damaged)"
        )
        self.damage = reason
        self.first_offset = first_offset
        self.end_offset = end_offset

    def __reduce__(self) -> tuple[type["CorruptLogError"], tuple[Any, ...]]:
        fields = self.path, self.position, self.damage, self.first_offset, self.end_offset
        return (DamagedRangeError, fields)


class StorageError(SparklogError):
    """An operation of a storage backend failed (full, read-only, missing, unreachable).

    ``code`` is the system's error number, or 0.
    """

    code: int = 0

    @property
    def is_full(self) -> bool:
        """Whether the disk, or the quota of its user, has no room."""
        return self.code in (errno.ENOSPC, errno.EDQUOT)


class ChangedFileError(StorageError):
    """A file that a stranger to its owner made shorter, or replaced by another file."""


class LostLogError(StorageError):
    """Files of a log vanished, became shorter or were replaced while a broker owned them."""


class GoneLogError(LostLogError):
    """A lost log of which no log file is left."""


class DamagedLogError(StorageError):
    """A log that takes no appends because of a CorruptLogError; the message is that error's."""


class LockedError(StorageError):
    """A directory that another live process has locked."""


class ConfigError(SparklogError):
    """A setting or option that is unknown, malformed or contradictory."""


class DataLossError(SparklogError):
    """Records of a planned read are gone; the message names their offsets and the remedy."""


class StartError(SparklogError):
    """A cluster cannot start; the message names the requirement, the finding and the remedy."""


class ConnectError(SparklogError):
    """No broker could be reached within the deadline."""


class ClosedError(ConnectError):
    """A client or a cluster that its owner has closed.  Retries do not help; the message says
    what to open instead."""


class ProtocolError(SparklogError):
    """A peer that violates the protocol."""
