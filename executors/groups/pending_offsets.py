"""Offsets that transactions have committed and that are not decided yet.

Owns: which offsets are pending, and their order in the log.  Must not know what is committed, nor
how a transaction is decided.  Kafka: the open transactions of ``OffsetMetadataManager``.

An offset is *unstable* while a transaction that commits it is open.  When a transaction commits, an
offset of it does not replace one that was written later, by another transaction or without one.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from sparklog.executors.groups.record_schemas import OffsetCommitKey, OffsetCommitValue


class PendingOffset(NamedTuple):
    """A pending offset; a higher ``position`` was written later."""

    value: OffsetCommitValue
    position: int


class PendingOffsets:
    """The pending offsets of all groups of a state machine."""

    __slots__ = ("_groups", "_position", "_transactions")

    def __init__(self) -> None:
        #: By producer id.
        self._transactions: dict[int, dict[OffsetCommitKey, PendingOffset]] = {}
        #: The producers with a pending offset, by group and offset.
        self._groups: dict[str, dict[OffsetCommitKey, set[int]]] = {}
        self._position = 0

    def add(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        """A transaction commits an offset."""
        self._position += 1
        pending = self._transactions.setdefault(producer_id, {})
        pending[key] = PendingOffset(value, self._position)
        self._groups.setdefault(key.group, {}).setdefault(key, set()).add(producer_id)

    def end(self, producer_id: int) -> dict[OffsetCommitKey, PendingOffset]:
        """Take out the offsets of a transaction that was decided."""
        ended = self._transactions.pop(producer_id, {})
        for key in ended:
            self._forget(key, producer_id)
        return ended

    def overtake(self, key: OffsetCommitKey, position: int | None = None) -> None:
        """An offset was committed that was written at this position, or only now.

        The offsets of open transactions that were written before stay pending, without effect.
        """
        before = self._position + 1 if position is None else position
        for producer_id in self._producers(key):
            pending = self._transactions[producer_id]
            if 0 < pending[key].position < before:
                pending[key] = pending[key]._replace(position=0)

    def remove(self, key: OffsetCommitKey) -> None:
        """The offset was deleted, so no transaction commits it any more."""
        for producer_id in tuple(self._producers(key)):
            pending = self._transactions[producer_id]
            del pending[key]
            if not pending:
                del self._transactions[producer_id]
            self._forget(key, producer_id)

    def is_unstable(self, key: OffsetCommitKey) -> bool:
        """Whether a transaction that commits the offset is open."""
        return key in self._groups.get(key.group, ())

    def has_group(self, group_id: str) -> bool:
        return group_id in self._groups

    def group_ids(self) -> Iterator[str]:
        return iter(self._groups)

    def keys_of(self, group_id: str) -> Collection[OffsetCommitKey]:
        """The keys of the unstable offsets of a group as of now."""
        return tuple(self._groups.get(group_id, ()))

    def values_of(self, key: OffsetCommitKey) -> list[OffsetCommitValue]:
        """What the open transactions commit for an offset."""
        return [self._transactions[each][key].value for each in self._producers(key)]

    def items(self) -> Iterator[tuple[OffsetCommitKey, OffsetCommitValue]]:
        """Every pending offset of every transaction."""
        for pending in self._transactions.values():
            for key, (value, _) in pending.items():
                yield key, value

    def _producers(self, key: OffsetCommitKey) -> Collection[int]:
        return self._groups.get(key.group, {}).get(key, ())

    def _forget(self, key: OffsetCommitKey, producer_id: int) -> None:
        keys = self._groups[key.group]
        keys[key].discard(producer_id)
        if not keys[key]:
            del keys[key]
        if not keys:
            del self._groups[key.group]

    def check_invariants(self) -> None:
        """Assert what holds between events."""
        by_key: dict[OffsetCommitKey, set[int]] = {}
        for producer_id, pending in self._transactions.items():
            assert pending
            for key in pending:
                by_key.setdefault(key, set()).add(producer_id)
        assert by_key == {key: ids for keys in self._groups.values() for key, ids in keys.items()}
        assert all(self._groups.values())
