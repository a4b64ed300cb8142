"""The options of a consumer with a group, under the names of Kafka's settings.

Owns: names, defaults and their checks.  Must not know the use of an option.  Defaults are Java's,
except that read_committed is the default isolation level.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Final

from sparklog.client.consumer import ConsumerOptions
from sparklog.client.groups.assignors import assignors_named
from sparklog.client.groups.member_events import MemberSettings
from sparklog.types import Isolation, OffsetSpec

_RESETS: Final[dict[str, OffsetSpec | None]] = {
    "earliest": OffsetSpec.EARLIEST,
    "latest": OffsetSpec.LATEST,
    "none": None,
}
_ISOLATION: Final = {
    "read_committed": Isolation.READ_COMMITTED,
    "read_uncommitted": Isolation.READ_UNCOMMITTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConsumerOptions:
    """The options of ``sparklog.Consumer`` and ``sparklog.AsyncConsumer``.

    ``group_id``: the group; needed for ``subscribe`` and for commits.  ``group_instance_id``: a
    name that survives restarts; the member keeps its partitions if it is back within
    ``session_timeout_ms`` (KIP-345).  ``client_rack``: read from replicas in this rack (KIP-392).

    ``auto_offset_reset``: ``latest``, ``earliest`` or ``none`` (an error): where to start without
    a committed offset, and to go on when an offset is out of range.

    ``partition_assignment_strategy``: assignors in order of preference.  A consumer keeps its
    partitions during rebalances when all of them are ``cooperative-sticky``.

    ``prefetch_max_bytes``: while the application works on records, the next ones are fetched, as
    long as the waiting and the requested records stay within this many bytes; 0 turns this off.
    Kafka has no such setting.

    ``skip_undecodable``: records that cannot be read are skipped, logged and counted.
    """

    group_id: str | None = None
    group_instance_id: str | None = None
    client_rack: str = ""
    auto_offset_reset: str = "latest"
    isolation_level: str = "read_committed"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    partition_assignment_strategy: Sequence[str] = ("range", "cooperative-sticky")
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    metadata_max_age_ms: int = 300_000
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 1024 * 1024
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 1024 * 1024
    prefetch_max_bytes: int = 64 * 1024 * 1024
    skip_undecodable: bool = False

    def __post_init__(self) -> None:
        _check_choice("auto_offset_reset", self.auto_offset_reset, _RESETS)
        _check_choice("isolation_level", self.isolation_level, _ISOLATION)
        if isinstance(self.partition_assignment_strategy, str):
            raise ValueError("partition_assignment_strategy is a list of names, not one string")
        assignors_named(self.partition_assignment_strategy)
        if self.group_id == "":
            raise ValueError("group_id is empty: give the group a name, or leave it out")
        if self.group_instance_id is not None and not self.group_id:
            raise ValueError("group_instance_id needs a group_id")
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name.endswith(("_ms", "_bytes")) and value < 0:
                raise ValueError(f"{each.name}={value} is negative")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be less than "
                f"session_timeout_ms={self.session_timeout_ms}"
            )

    @classmethod
    def of(cls, given: dict[str, Any]) -> "GroupConsumerOptions":
        """Options by name.  Raises TypeError for an unknown name, ValueError for a bad value."""
        known = [each.name for each in fields(cls)]
        for name in given:
            if name not in known:
                close = get_close_matches(name, known, 1)
                hint = f"; did you mean {close[0]!r}?" if close else f": {', '.join(known)}"
                raise TypeError(f"{name!r} is not an option of a consumer{hint}")
        return cls(**given)

    @property
    def reset(self) -> OffsetSpec | None:
        """The start without a committed offset; None raises an error."""
        return _RESETS[self.auto_offset_reset]

    @property
    def isolation(self) -> Isolation:
        return _ISOLATION[self.isolation_level]

    @property
    def is_read_committed(self) -> bool:
        return self.isolation is Isolation.READ_COMMITTED

    @property
    def record_options(self) -> ConsumerOptions:
        """The options of the consumer of assigned partitions."""
        return ConsumerOptions(
            isolation=self.isolation,
            max_wait_ms=self.fetch_max_wait_ms,
            min_bytes=self.fetch_min_bytes,
            partition_bytes_max=self.max_partition_fetch_bytes,
            fetch_bytes_max=self.fetch_max_bytes,
            prefetch_bytes_max=self.prefetch_max_bytes,
            on_out_of_range=self.reset,
            request_timeout_s=self.request_timeout_ms / 1000,
            skip_undecodable=self.skip_undecodable,
            rack=self.client_rack,
        )

    @property
    def member_settings(self) -> MemberSettings:
        """The settings of the group member; there must be a ``group_id``."""
        assert self.group_id is not None
        return MemberSettings(
            group_id=self.group_id,
            assignors=assignors_named(self.partition_assignment_strategy),
            group_instance_id=self.group_instance_id,
            rack=self.client_rack or None,
            session_timeout_s=self.session_timeout_ms / 1000,
            heartbeat_interval_s=self.heartbeat_interval_ms / 1000,
            max_poll_interval_s=self.max_poll_interval_ms / 1000,
        )


def _check_choice(name: str, value: str, choices: dict[str, Any]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(choices)}")
