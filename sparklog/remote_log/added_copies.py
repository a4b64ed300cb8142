"""Whether a copy of a segment may be added to a manifest.

Owns: the rules for the copy's leader epoch and age, and for a copy that comes too late.  Must not
know how the manifest is stored.
"""

from typing import Final

from sparklog.remote_log import names
from sparklog.remote_log.manifest import Manifest, MisfitError
from sparklog.remote_log.manifest_log import DeposedLeaderError
from sparklog.remote_log.remote_segment import RemoteSegment

#: A copy that began longer ago than this, in milliseconds, is not added any more.
COPY_MS_MAX: Final = 12 * 60 * 60 * 1000


def check_copy(segment: RemoteSegment, leader_epoch: int, now_ms: int) -> None:
    """Raises DeposedLeaderError for a copy of another leader epoch, MisfitError for an old one."""
    name = segment.segment_id
    epoch, began_ms = names.copied_in_epoch(name), names.copied_at_ms(name)
    if epoch is None or began_ms is None:
        raise MisfitError(f"{name!r} is no id of a segment")
    if epoch != leader_epoch:
        raise DeposedLeaderError(
            f"segment {name} was copied in leader epoch {epoch}, and the manifest is of leader "
            f"epoch {leader_epoch}; only its leader may add a segment, from its own log"
        )
    if began_ms < now_ms - COPY_MS_MAX:
        raise MisfitError(
            f"the copy of segment {name} began {now_ms - began_ms} ms ago, so its objects may have "
            "been swept as orphans; it is copied again. A copy has to take less than "
            f"{COPY_MS_MAX} ms: raise remote.log.manager.copy.max.bytes.per.second, or lower "
            "segment.bytes"
        )


def has_passed(manifest: Manifest, segment: RemoteSegment) -> bool:
    """Whether the log has the first offset of a segment already, or starts above the segment."""
    if manifest.end_offset is not None:
        return segment.base_offset < manifest.end_offset
    start = manifest.log_start_offset
    return start is not None and segment.next_offset <= start
