"""What a broker learns of a remote log: its state after a call, and a follower's start.

Owns: the values.  Must not know how a call comes by them.
"""

from typing import NamedTuple

from sparklog.remote_log.manifest import Manifest
from sparklog.remote_log.reading import RemoteReader
from sparklog.remote_log.remote_segment import EpochStart, RemoteSegment
from sparklog.types import MAX_INT64, NO_OFFSET


class RemoteLogState(NamedTuple):
    """A remote log after a call.  Without segments ``end_offset`` is NO_OFFSET.

    The log starts at ``log_start_offset`` or, if the leader knows better, above.  After an unclean
    election the leader's log may end below: all its records were deleted before, so it continues at
    the log start.

    ``log_bytes`` are those that retention counts, ``remote_bytes`` those of all objects.
    """

    log_start_offset: int
    end_offset: int
    segments: int
    log_bytes: int
    remote_bytes: int


class FollowerState(NamedTuple):
    """The state with which a follower may start at ``offset``.

    ``leader_epochs`` reach from the log start, as it was when the segment was copied, exactly to
    the offset.  ``producer_snapshot`` is None if the log that was copied had none there, or if it
    is not known (see ``SegmentShortened``).
    """

    offset: int
    leader_epochs: tuple[EpochStart, ...]
    producer_snapshot: bytes | None


def follower_state(reader: RemoteReader, segment: RemoteSegment) -> FollowerState:
    """The state at the end of a segment.  Raises what the reader raises."""
    return FollowerState(
        segment.next_offset, reader.leader_epochs(segment), reader.producer_snapshot(segment)
    )


def state_of(manifest: Manifest) -> RemoteLogState:
    start, end = manifest.log_start_offset, manifest.end_offset
    return RemoteLogState(
        log_start_offset=NO_OFFSET if start is None else start,
        end_offset=NO_OFFSET if end is None else end,
        segments=manifest.segment_count,
        log_bytes=manifest.log_bytes,
        remote_bytes=manifest.remote_bytes,
    )


def lineage_of(manifest: Manifest) -> tuple[EpochStart, ...]:
    """The leader epochs of the segments, each with its first offset."""
    lineage: list[EpochStart] = []
    for segment in manifest.segments_between(0, MAX_INT64):
        for each in segment.leader_epochs:
            if not lineage or each.epoch > lineage[-1].epoch:
                lineage.append(each)
    return tuple(lineage)
