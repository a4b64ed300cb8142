"""Reads of a segment whose offset index or time index is damaged or gone: the log object has all.

Owns: which of these parts cannot be used, the warning, and from where walks begin without an offset
index.  Must not know how a walk checks batches.

Without a sound time index a lookup looks at every batch from its start offset on.  Without a sound
offset index a walk begins at the start of the log object, or at a batch that an earlier walk has
proved: so reads that follow each other read the object once or twice, and not once per read.
"""

import logging
from typing import Final

from sparklog.remote_log.damaged_object import DamagedObjectError, GoneObjectError
from sparklog.remote_log.index_search import entries_around
from sparklog.remote_log.parts import PartCache, ReadRange, read_part
from sparklog.remote_log.remote_segment import PartName, RemoteSegment
from sparklog.segment_files.index_entries import OFFSET_ENTRY
from sparklog.storage_backends.base import MissingPathError

log = logging.getLogger(__name__)

_WARNED: Final = "damage was logged"
_WALKED: Final = "offset index of walks"

#: Bytes of the log object from one proved batch that is kept to the next one, at least.
APART_BYTES: Final = 64 * 1024


class DamagedIndexes:
    """The offset indexes and time indexes that cannot be used.

    ``read`` reads the bucket, not a cache before it: what seems damaged may be so in the cache
    only.  ``cache`` remembers what was found for about as long as it keeps the parts of segments.
    """

    def __init__(self, read: ReadRange, cache: PartCache) -> None:
        self._read = read
        self._cache = cache

    def is_known(self, path: str, name: PartName) -> bool:
        """Whether a part of the indexes object ``path`` was found to be damaged."""
        return self._cache.get((path, _damaged(name))) is not None

    def read_again(
        self, path: str, segment: RemoteSegment, name: PartName, error: DamagedObjectError
    ) -> bytes | None:
        """The bytes of a part that seems damaged, from the bucket; None if it is damaged or gone.

        Raises StorageError: the bucket does not answer.
        """
        try:
            return read_part(self._read, path, segment, name)
        except (DamagedObjectError, MissingPathError) as still:
            error = still if isinstance(still, DamagedObjectError) else error
        reason = str(error)  # the error itself would keep what its traceback holds
        self._cache.put((path, _damaged(name)), reason, len(reason))
        # A segment that was deleted has no indexes object either, and is no damage.
        if not isinstance(error, GoneObjectError):
            self._warn(path, segment, reason)
        return None

    def begin(self, path: str, segment: RemoteSegment, offset: int) -> bytes:
        """An offset index with the last proved batch that ends at or below ``offset``, if any.

        It has no entry above, as a walk reads what lies between two entries at once.
        """
        known: bytes = self._cache.get((path, _WALKED)) or b""
        entry, _ = entries_around(known, segment.base_offset, offset)
        if not entry.position:
            return b""
        return OFFSET_ENTRY.pack(entry.offset - segment.base_offset, entry.position)

    def walked(self, path: str, segment: RemoteSegment, last_offset: int, position: int) -> None:
        """A walk has taken the batch at ``position`` of the log object, which is proved by its CRC
        and the batches before it, and has the last offset ``last_offset``."""
        reason = self._cache.get((path, _damaged(PartName.OFFSET_INDEX)))
        if reason is not None:
            self._warn(path, segment, reason)
        known: bytes = self._cache.get((path, _WALKED)) or b""
        last = OFFSET_ENTRY.unpack_from(known, len(known) - OFFSET_ENTRY.size)[1] if known else 0
        if position >= last + APART_BYTES:
            known += OFFSET_ENTRY.pack(last_offset - segment.base_offset, position)
            self._cache.put((path, _WALKED), known, len(known))

    def _warn(self, path: str, segment: RemoteSegment, reason: str) -> None:
        if self._cache.get((path, _WARNED)) is None:
            self._cache.put((path, _WARNED), True, 0)
            log.warning(
                "the indexes of the offsets %d to %d cannot be used, so reads walk the log object, "
                "which is slow; put the object back from a copy of the bucket: %s",
                segment.base_offset,
                segment.next_offset - 1,
                reason,
            )


def _damaged(name: PartName) -> str:
    return f"damaged {name.value}"
