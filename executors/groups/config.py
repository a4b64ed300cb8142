"""The settings of the group coordinator's state machine, with the limits that are no settings.

Owns: the values that decisions about groups depend on.  Must not know where settings come from
other than from a ``BrokerConfig``.
"""

from dataclasses import dataclass

from sparklog.config import TOPIC_SETTING_BY_NAME, BrokerConfig
from sparklog.types import MAX_INT32

MINUTE_MS = 60_000
#: How long a dynamic member may wait in a rebalance before it has proven that it lives (Kafka's
#: ``CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS``).
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
#: Longest text in a record in UTF-8: its length has 16 bits with a sign.
TEXT_BYTES_MAX = 32_767
#: Members of one group that were given an id and have not joined with it yet.
PENDING_MEMBERS_MAX = 10_000
#: How much smaller a group's record stays than ``max.message.bytes``: room for the header of the
#: batch, and for a record without members.
RECORD_MARGIN_BYTES = 48_588
#: Most committed offsets that are removed without a pause.
REMOVED_AT_ONCE = 1_000
#: Most timers, such as sessions of members, that end without a pause.
TIMERS_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The settings of groups and committed offsets.  Names say the unit.

    ``group_bytes_max`` bounds the record of a group in ``__consumer_offsets``, which has the
    metadata and assignments of all members.
    """

    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    size_max: int = MAX_INT32
    metadata_bytes_max: int = 4_096
    retention_ms: int = 10_080 * MINUTE_MS
    retention_check_interval_ms: int = 600_000
    group_bytes_max: int = 1_000_000

    @classmethod
    def of(cls, config: BrokerConfig) -> "GroupConfig":
        """The part of a broker's settings that decisions about groups depend on."""
        message_max_bytes: int = config.topic_defaults.get(
            "max_message_bytes", TOPIC_SETTING_BY_NAME["max.message.bytes"].default
        )
        batch_bytes_max = min(message_max_bytes, config.offsets_topic_segment_bytes)
        return cls(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            size_max=config.group_max_size,
            metadata_bytes_max=config.offset_metadata_max_bytes,
            retention_ms=config.offsets_retention_minutes * MINUTE_MS,
            retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            group_bytes_max=max(batch_bytes_max - RECORD_MARGIN_BYTES, 0),
        )
