"""Committed offsets by group, topic and partition.

Owns: the offsets, which only the ``replay`` methods change, and beside them those of transactions
that are open.  Must not know groups, requests or time.
"""

from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from sparklog.executors.groups.pending_offsets import PendingOffsets
from sparklog.executors.groups.record_schemas import OffsetCommitKey, OffsetCommitValue
from sparklog.executors.groups.records import OffsetRecord

PartitionOffsets = Mapping[int, OffsetCommitValue]
_NO_TOPICS: Mapping[str, PartitionOffsets] = {}


class OffsetStore:
    """The committed offsets of all groups of a state machine."""

    __slots__ = ("_groups", "pending")

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, OffsetCommitValue]]] = {}
        self.pending = PendingOffsets()

    def replay(self, record: OffsetRecord) -> None:
        key, value = record
        if value is None:
            self._remove(key)
            self.pending.remove(key)
        else:
            self._put(key, value)
            self.pending.overtake(key)

    def replay_in_transaction(self, record: OffsetRecord, producer_id: int) -> None:
        """Keep the offset of an open transaction; a tombstone has its effect at once."""
        key, value = record
        if value is None:
            self.replay(record)
        else:
            self.pending.add(producer_id, key, value)

    def replay_transaction_end(self, producer_id: int, *, committed: bool) -> set[str]:
        """Commit or drop the offsets of a transaction; return the groups that they belong to."""
        ended = self.pending.end(producer_id)
        for key, (value, position) in ended.items():
            if committed and position:
                self._put(key, value)
                self.pending.overtake(key, position)
        return {key.group for key in ended}

    def _put(self, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        topics = self._groups.setdefault(key.group, {})
        topics.setdefault(key.topic, {})[key.partition] = value

    def _remove(self, key: OffsetCommitKey) -> None:
        topics = self._groups.get(key.group, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is None:
            return
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self._groups[key.group]

    def get(self, key: OffsetCommitKey) -> OffsetCommitValue | None:
        return self.of_group(key.group).get(key.topic, {}).get(key.partition)

    def of_group(self, group_id: str) -> Mapping[str, PartitionOffsets]:
        """The offsets of a group by topic and partition; empty for an unknown group."""
        return self._groups.get(group_id, _NO_TOPICS)

    def count_of(self, group_id: str) -> int:
        """The number of committed offsets of a group."""
        return sum(map(len, self.of_group(group_id).values()))

    def keys_of(
        self, group_id: str, topics: Iterable[str] | None = None
    ) -> Iterator[OffsetCommitKey]:
        """The keys of the committed offsets of a group, of some topics or of all.

        The offsets may change between two keys.
        """
        for topic in tuple(self.of_group(group_id) if topics is None else topics):
            for partition in tuple(self.of_group(group_id).get(topic, ())):
                yield OffsetCommitKey(group=group_id, topic=topic, partition=partition)

    def topics(self) -> set[tuple[str, UUID | None]]:
        """Name and id of every topic of which offsets are committed or pending."""
        found = {
            (topic, value.topic_id)
            for topics in self._groups.values()
            for topic, partitions in topics.items()
            for value in partitions.values()
        }
        return found | {(key.topic, value.topic_id) for key, value in self.pending.items()}

    def group_ids(self) -> Iterator[str]:
        """The groups with committed offsets, then those with pending ones."""
        yield from self._groups
        yield from self.pending.group_ids()

    def __contains__(self, group_id: str) -> bool:
        """Whether the group has offsets, committed or pending ones."""
        return group_id in self._groups or self.pending.has_group(group_id)
