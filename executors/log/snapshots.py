"""The ``.snapshot`` files of a log: producer state at certain offsets.

Owns: which snapshots exist, their writing, loading the newest whole snapshot, and dropping obsolete
snapshots.  Must not know the contents of a snapshot.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from sparklog.errors import DecodeError, StorageError
from sparklog.executors.log.names import SNAPSHOT_SUFFIX, file_name
from sparklog.executors.log.txn_index import AbortedTxn
from sparklog.storage_backends.base import FileHalf
from sparklog.wire.records.batch import BatchHeader
from sparklog.wire.records.control import EndTxnMarker


class ProducerState(Protocol):
    """The part of ``ProducerStateManager`` that a log needs."""

    def replay(
        self, header: BatchHeader, now_ms: int = 0, marker: EndTxnMarker | None = None
    ) -> AbortedTxn | None:
        """Take over a batch of the log; ``marker`` is the marker of a control batch."""

    def to_snapshot(self) -> bytes: ...

    def load_snapshot(self, data: bytes, now_ms: int = 0) -> None:
        """Replace everything.  Raises DecodeError and changes nothing."""

    def clear(self) -> None: ...


class SnapshotFiles:
    """The snapshots in one partition directory, by offset."""

    __slots__ = ("_half", "_partition_dir", "offsets")

    def __init__(self, half: FileHalf, partition_dir: str, offsets: Iterable[int] = ()) -> None:
        self._half = half
        self._partition_dir = partition_dir
        self.offsets = sorted(offsets)

    def path(self, offset: int) -> str:
        return f"{self._partition_dir}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def write(self, offset: int, data: bytes) -> None:
        """Write without waiting for the disk; a torn snapshot is recognised by its CRC."""
        path = self.path(offset)
        self._half.delete(path)
        handle = self._half.open(path, create=True)
        try:
            handle.writev([data])
        except StorageError:
            with suppress(StorageError):
                self._half.delete(path)
            raise
        finally:
            handle.close()
        self._add(offset)

    def put(self, offset: int, data: bytes) -> None:
        """Write durably."""
        self._half.put(self.path(offset), data)
        self._add(offset)

    def load_latest(
        self, producers: ProducerState, now_ms: int, at_most: int | None = None
    ) -> int | None:
        """Load the newest whole snapshot; return its offset.  Damaged snapshots are deleted.

        Snapshots above ``at_most`` are neither loaded nor deleted.
        """
        while usable := [o for o in self.offsets if at_most is None or o <= at_most]:
            offset = usable[-1]
            try:
                producers.load_snapshot(self._half.read(self.path(offset)), now_ms)
            except DecodeError:
                self.delete(offset)
            else:
                return offset
        producers.clear()
        return None

    def delete(self, offset: int) -> None:
        self._half.delete(self.path(offset))
        self.offsets.remove(offset)

    def keep_between(self, first: int, end: int) -> None:
        """Delete the snapshots outside of [``first``, ``end``], durably.

        A snapshot above the end would otherwise describe batches that newer batches have replaced.
        """
        outside = [offset for offset in self.offsets if not first <= offset <= end]
        for offset in outside:
            self.delete(offset)
        if outside:
            self._half.flush_folder(self._partition_dir)

    def delete_all(self) -> None:
        for offset in list(self.offsets):
            self.delete(offset)

    def keep_only(self, wanted: set[int]) -> None:
        """Delete all snapshots except these and the newest."""
        for offset in [offset for offset in self.offsets[:-1] if offset not in wanted]:
            self.delete(offset)

    def _add(self, offset: int) -> None:
        if offset not in self.offsets:
            self.offsets.append(offset)
            self.offsets.sort()
