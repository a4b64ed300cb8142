"""What was written to a compacted topic and what was read of it, and whether that goes together.

Owns: the verdict about compaction: the last acknowledged value of each key is there, no older value
comes back, offsets never change, and what is clean holds each key once.  Must not know how records
are written or read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparklog.types import NO_OFFSET


@dataclass(slots=True)
class KeyedWrite:
    """A record that was sent to a partition; ``value`` None is a tombstone.

    Times are milliseconds of the run; ``acked_ms`` and ``offset`` come with the acknowledgement.
    librdkafka acknowledges without an offset when a broker refuses a repeat of a batch that it does
    not remember, though later batches of the producer were acknowledged.
    """

    partition: int
    key: bytes
    value: bytes | None
    sent_ms: int
    acked_ms: int | None = None
    offset: int = NO_OFFSET


class KeyedRecord(NamedTuple):
    """A record as a reader, or a file, has it."""

    offset: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One reading of a partition from its beginning to its end.

    ``is_steady``: one leader served all of it, and soon enough that no tombstone went meanwhile.  A
    new leader may not know at once how far the log is committed, and each replica is cleaned at
    times of its own.
    """

    reader: str
    partition: int
    began_ms: int
    ended_ms: int
    records: tuple[KeyedRecord, ...]
    is_steady: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedReplica:
    """What one broker's files hold of a partition; below ``clean_offset`` the log is compacted."""

    broker: int
    partition: int
    clean_offset: int
    records: tuple[KeyedRecord, ...]


def stale_keys(writes: Sequence[KeyedWrite], passage: Passage) -> list[str]:
    """Keys whose last value in a passage is older than what was acknowledged before it began."""
    if not passage.is_steady:
        return []
    last = {record.key: record for record in passage.records}
    found: list[str] = []
    for key, written in _by_key(writes, passage.partition).items():
        acked = [
            write
            for write in written
            if write.acked_ms is not None and write.acked_ms < passage.began_ms
        ]
        if not acked:
            continue
        newest, record = acked[-1], last.get(key)
        if record is None:
            if newest.value is not None and not _may_be_deleted(written, newest, passage):
                found.append(_says(passage, key, "is missing", newest))
            continue
        told = next((write for write in reversed(acked) if write.offset != NO_OFFSET), newest)
        if record.offset < told.offset:
            found.append(_says(passage, key, f"has its value of offset {record.offset}", told))
    return found


def changed_records(writes: Sequence[KeyedWrite], passage: Passage) -> list[str]:
    """Records that are not what was acknowledged at their offset, and offsets that go back."""
    there = {
        write.offset: write
        for write in writes
        if write.partition == passage.partition and write.offset != NO_OFFSET
    }
    found: list[str] = []
    before = NO_OFFSET
    for record in passage.records:
        write = there.get(record.offset)
        if write is not None and (write.key, write.value) != (record.key, record.value):
            found.append(
                f"{passage.reader}: partition {passage.partition} holds {_short(record.key)} at "
                f"offset {record.offset}, where {_short(write.key)} was acknowledged"
            )
        if record.offset <= before:
            found.append(
                f"{passage.reader}: partition {passage.partition} has offset {record.offset} "
                f"behind {before}"
            )
        before = record.offset
    return found


def doubled_keys(replica: KeyedReplica) -> list[str]:
    """Keys that a replica holds twice where it is clean."""
    first: dict[bytes, int] = {}
    found: list[str] = []
    for record in replica.records:
        if record.offset >= replica.clean_offset:
            break
        if record.key in first:
            found.append(
                f"broker {replica.broker}: partition {replica.partition} is clean below offset "
                f"{replica.clean_offset} and has {_short(record.key)} at {first[record.key]} and "
                f"{record.offset}"
            )
        first[record.key] = record.offset
    return found


def verdict(
    writes: Sequence[KeyedWrite], passages: Iterable[Passage], replicas: Iterable[KeyedReplica]
) -> list[str]:
    """What all of them find."""
    found = [
        line
        for passage in passages
        for check in (stale_keys, changed_records)
        for line in check(writes, passage)
    ]
    return found + [line for replica in replicas for line in doubled_keys(replica)]


def as_passage(replica: KeyedReplica, at_ms: int) -> Passage:
    """The files of a replica, read when all is over."""
    return Passage(
        reader=f"broker {replica.broker}",
        partition=replica.partition,
        began_ms=at_ms,
        ended_ms=at_ms,
        records=replica.records,
    )


def _by_key(writes: Sequence[KeyedWrite], partition: int) -> Mapping[bytes, list[KeyedWrite]]:
    found: dict[bytes, list[KeyedWrite]] = {}
    for write in writes:
        if write.partition == partition:
            found.setdefault(write.key, []).append(write)
    return found


def _may_be_deleted(written: Sequence[KeyedWrite], newest: KeyedWrite, passage: Passage) -> bool:
    """Whether a later tombstone may have taken the key away before the passage ended."""
    later = written[written.index(newest) + 1 :]
    return any(write.value is None and write.sent_ms <= passage.ended_ms for write in later)


def _says(passage: Passage, key: bytes, what: str, newest: KeyedWrite) -> str:
    kind = "deletion" if newest.value is None else "value"
    return (
        f"{passage.reader}: {_short(key)} of partition {passage.partition} {what}, its {kind} at "
        f"offset {newest.offset} was acknowledged {passage.began_ms - (newest.acked_ms or 0)} ms "
        "before"
    )


def _short(key: bytes) -> str:
    return key.decode(errors="replace")[:40]
