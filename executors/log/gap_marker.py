"""The ``compacted`` file, which says that a log may have gaps between its batches.

Owns: the file, by which a start knows of the gaps whatever ``cleanup.policy`` says by then.  Must
not know where the gaps are.

In a log that was never compacted, a gap above the recovery point is damage.  So the file is
durable before the first gap: before a cleaned segment is swapped in, and before a follower appends
behind a gap of its leader.  A start writes it for a compacted topic whose log lacks it,
because Kafka may have written that log.  It stays as long as the partition directory.

A record is missing because of a later one, and a truncation that drops only the later one would
lose the key.  So the file also holds the *bound*: below it lies the later record of everything that
is missing.  An empty file says that the bound is not known.  A follower that copies a gap does not
know how far its leader had compacted.  It knows once it is in sync, because compacted is only
what all in-sync replicas have: then its own end is a bound.
"""

import contextlib
from collections.abc import Sequence

from sparklog.errors import StorageError
from sparklog.executors.log.names import COMPACTED_MARKER
from sparklog.executors.log.offset_file import decode_offset, encode_offset
from sparklog.storage_backends.base import FileHalf
from sparklog.wire.records.batch import BatchHeader


class GapMarker:
    """The file of one log; ``is_set`` tells whether it is there.

    ``set`` with a bound may run in another thread than all other calls.
    """

    __slots__ = ("_half", "_path", "bound", "is_set")

    def __init__(self, half: FileHalf, partition_dir: str) -> None:
        self._half = half
        self._path = f"{partition_dir}/{COMPACTED_MARKER}"
        self.is_set = False
        #: None: not known.
        self.bound: int | None = None

    def load(self) -> None:
        """Read the file.  Blocks.  Raises StorageError."""
        data = self._half.read_if_there(self._path)
        if data is not None:
            self.is_set, self.bound = True, decode_offset(data)

    def bound_in(self, log_end_offset: int) -> int:
        """Everything that is missing in a log has a later record below this offset: the bound, or
        the log's end while the bound is not known."""
        if not self.is_set:
            return 0
        return log_end_offset if self.bound is None else self.bound

    def set(self, bound: int | None) -> None:
        """Before there are gaps because of records below ``bound``: write the file, durably.

        Blocks.  Raises StorageError.
        """
        before = self.is_set, self.bound
        if self._is_unknown:
            return
        if bound is None:
            self.is_set, self.bound = True, None  # another thread that writes a bound must see it
            try:
                self._put(None)
            except StorageError:
                self.is_set, self.bound = before
                raise
        elif self.bound is None or bound > self.bound:
            self._put(bound)
            if (self.is_set, self.bound) == before:
                self.is_set, self.bound = True, bound
            else:
                self._put(self.bound)  # the log's own thread knows better by now

    def set_before(self, headers: Sequence[BatchHeader], log_end_offset: int) -> None:
        """Call ``set`` if there is a gap before one of the batches to append, of unknown bound."""
        if self._is_unknown:
            return
        for header in headers:
            if header.base_offset != log_end_offset:
                self.set(None)
                return
            log_end_offset = header.next_offset

    def learn(self, bound: int) -> None:
        """Take the bound if it is not known: the log has everything that its gaps are due to.

        Blocks, but once.  If it cannot be written, it stays unknown.
        """
        if self._is_unknown:
            with contextlib.suppress(StorageError):
                self._put(bound)
                self.bound = bound

    def _put(self, bound: int | None) -> None:
        self._half.put(self._path, b"" if bound is None else encode_offset(bound))

    @property
    def _is_unknown(self) -> bool:
        return self.is_set and self.bound is None
