"""What a new leader changes in a manifest, so that the manifest agrees with the leader's log.

Owns: where the segments and the log diverge, and where the log starts afterwards.  Must not know
how the manifest is stored, or which brokers there are.

After an unclean election the segments may have records that the leader does not have.  These leave
the manifest.  If the leader's files begin above the remaining end, the records between them are
lost, and so all segments leave the manifest: a log has no hole.
"""

from dataclasses import dataclass

from sparklog.errors import SparklogError
from sparklog.remote_log.manifest import Manifest
from sparklog.remote_log.remote_segment import EpochStart, RemoteSegment


class ShortLineageError(SparklogError):
    """A leader's log does not know its leader epochs down to the log start.

    The broker takes the missing ones from ``follower_state`` and takes over again.  Nothing but the
    leader of the manifest has changed.
    """


class MissingManifestError(SparklogError):
    """A leader's log has older records in a store that never had a manifest of the partition.

    Nothing has changed.  An operator brings the store back, or accepts the loss.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderLog:
    """The log of a leader: its offsets, and its leader epochs from the log start on."""

    log_start_offset: int
    local_log_start_offset: int
    log_end_offset: int
    leader_epochs: tuple[EpochStart, ...]


def check_new_manifest(log: LeaderLog, partition: str, store_url: str) -> None:
    """Check that the first manifest of a partition does not hide older records of its log.

    The leader's files begin above the log start only because a manifest had the records below.  So
    the store is not the one that has them: it is not mounted, an old copy, or was emptied.

    Raises MissingManifestError.
    """
    start, stop = log.log_start_offset, log.local_log_start_offset
    if start < stop:
        raise MissingManifestError(
            f"{store_url} never had a segment of partition {partition}, but the log of the leader "
            f"starts at offset {start}, and its files only at {stop}; mount or restore the "
            f"remote_dir that has [{start}, {stop}), or accept the loss of these records with "
            f"DeleteRecords up to offset {stop}"
        )


def diverges_at(manifest: Manifest, log: LeaderLog, url: str) -> int | None:
    """The first offset at which the segments differ from the leader's log, or go beyond its end.

    None if they agree, and if no segment stays for another reason: all of them end below the log
    start, or below the leader's files.

    Args:
        url: of the manifest, for the error.

    Raises:
        ShortLineageError: the leader's epochs do not tell.
    """
    end = manifest.end_offset
    first = max(manifest.log_start_offset or 0, log.log_start_offset)
    if end is None or end <= first or end < log.local_log_start_offset:
        return None
    if ends_below_start(manifest, log):
        return log.log_end_offset
    # An epoch that begins at the end of the log has no records.
    epochs = [each for each in log.leader_epochs if each.start_offset < log.log_end_offset]
    if not epochs or epochs[0].start_offset > first:
        begin = f"begin at offset {epochs[0].start_offset}" if epochs else "are unknown"
        raise ShortLineageError(
            f"the leader epochs of the leader's log [{log.local_log_start_offset}, "
            f"{log.log_end_offset}) {begin}, but the segments of {url} have [{first}, {end}); "
            "restore the leader epochs of the log from follower_state before it takes over"
        )
    return manifest.divergence(epochs, log.log_end_offset)


def ends_below_start(manifest: Manifest, log: LeaderLog) -> bool:
    """Whether the leader's log ends below the log start, after an unclean election.

    All segments leave the manifest, and the log starts where the leader's log does: otherwise the
    old log start would hide what this leader acknowledges.
    """
    return log.log_end_offset < (manifest.log_start_offset or 0)


def segment_to_shorten(manifest: Manifest, log: LeaderLog, offset: int) -> RemoteSegment | None:
    """The segment of which the beginning up to ``offset``, where the logs diverge, must stay.

    That beginning is copied again if the leader's files have it: None then.  It is also None if it
    would not close the gap below the leader's files, and if the log starts behind it.
    """
    segment = manifest.segment_at(offset)
    if segment is None or not segment.base_offset < log.local_log_start_offset <= offset:
        return None
    return segment if (manifest.log_start_offset or 0) < offset else None


def log_start(manifest: Manifest, log: LeaderLog) -> int:
    """Where the log starts, by the leader's log, once the segments agree with it."""
    return log.local_log_start_offset if _has_gap(manifest, log) else log.log_start_offset


def lost_offsets(manifest: Manifest, log: LeaderLog) -> range:
    """The offsets that were in the log and are in neither tier, before the log start has moved.

    An unclean election has cut the manifest, or the store has lost some of it.
    """
    first = max(manifest.log_start_offset or 0, log.log_start_offset)
    return range(first, log.local_log_start_offset if _has_gap(manifest, log) else first)


def _has_gap(manifest: Manifest, log: LeaderLog) -> bool:
    end = manifest.end_offset
    return end is None or end < log.local_log_start_offset
