"""New committed offsets for a group: where ``sparklog groups reset-offsets`` sets them.

Owns: the ways to name a position, and the offsets that they stand for, within what the logs hold.
Must not know how offsets are committed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from sparklog.client.admin import Admin
    from sparklog.client.group_admin import GroupOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReset:
    """One way to set offsets; exactly one attribute is set, or true.

    Attributes:
        to_earliest: To the first record.
        to_latest: Behind the last record.
        to_offset: To this offset.
        to_timestamp_ms: To the first record at or after this time, in milliseconds.
        shift_by: From the committed offset by this number of offsets, back if negative.
    """

    to_earliest: bool = False
    to_latest: bool = False
    to_offset: int | None = None
    to_timestamp_ms: int | None = None
    shift_by: int | None = None

    @property
    def given(self) -> int:
        """The number of ways that are given."""
        others = (self.to_offset, self.to_timestamp_ms, self.shift_by)
        return self.to_earliest + self.to_latest + sum(each is not None for each in others)


async def new_offsets(
    admin: "Admin", reset: OffsetReset, present: "Mapping[TopicPartition, GroupOffset]"
) -> dict[TopicPartition, int]:
    """The new offset of every partition.

    An offset outside of a log becomes the nearest one inside, as in Kafka's tool.  A time after
    the last record is the log's end.

    Raises:
        KafkaError: A partition has no leader, or is to be shifted and has no committed offset.
    """
    earliest = await _offsets(admin, present, OffsetSpec.EARLIEST)
    latest = await _offsets(admin, present, OffsetSpec.LATEST)
    if reset.to_earliest:
        return earliest
    if reset.to_latest:
        return latest
    if reset.to_timestamp_ms is not None:
        found = await _offsets(admin, present, reset.to_timestamp_ms)
        return {tp: latest[tp] if offset < 0 else offset for tp, offset in found.items()}
    wanted = {tp: _moved(tp, reset, each.committed) for tp, each in present.items()}
    return {tp: min(max(each, earliest[tp]), latest[tp]) for tp, each in wanted.items()}


def parse_datetime(text: str) -> int:
    """Milliseconds of an ISO 8601 time, in UTC unless it has an offset.  Raises BadParameter."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{error}; expected a time like 2026-01-31T13:00:00", param_hint="--to-datetime"
        ) from None
    timestamp_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if timestamp_ms < 0:
        raise typer.BadParameter(f"{text} is before 1970", param_hint="--to-datetime")
    return timestamp_ms


async def _offsets(
    admin: "Admin", partitions: Mapping[TopicPartition, object], timestamp: int
) -> dict[TopicPartition, int]:
    found = await admin.list_offsets(dict.fromkeys(partitions, int(timestamp)))
    return {tp: each.offset for tp, each in found.items()}


def _moved(tp: TopicPartition, reset: OffsetReset, committed: int | None) -> int:
    if reset.shift_by is None:
        assert reset.to_offset is not None
        return reset.to_offset
    if committed is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{tp} cannot be shifted: it has no committed offset"
        )
    return committed + reset.shift_by
