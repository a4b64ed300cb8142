"""How far the segments of a manifest agree with the log of a new leader.

Owns: the rule of the largest common leader epoch (KIP-101, KIP-279).  Must not know what happens to
segments that diverge.

Two logs that have records of the same leader epoch agree up to the end of the shorter part of that
epoch, because one leader wrote both parts.
"""

from bisect import bisect_right
from collections.abc import Sequence

from sparklog.remote_log.remote_segment import EpochStart
from sparklog.remote_log.segment_list import SegmentList


def agreed_end(segments: SegmentList, leader_epochs: Sequence[EpochStart], log_end: int) -> int:
    """The offset up to which the segments agree with a leader's log.

    Epochs below the first of ``leader_epochs`` are not known to differ.

    Args:
        segments: at least one.
        leader_epochs: the leader epochs of the leader's log, ascending.
        log_end: the log end offset of the leader.
    """
    epoch, end = segments.last_epoch_at(len(segments) - 1), segments.end_offset
    while True:
        found, leader_end = _end_offset_for(leader_epochs, epoch, log_end)
        if found == epoch:
            return min(end, leader_end)
        older = _largest_epoch(segments, found)
        if older is None:
            return min(segments.base_offset_at(0), leader_end)
        epoch, end = older


def _end_offset_for(epochs: Sequence[EpochStart], epoch: int, log_end: int) -> tuple[int, int]:
    """The largest epoch of the log that is at most ``epoch``, and its end offset."""
    index = bisect_right(epochs, epoch, key=lambda each: each.epoch)
    found = epochs[index - 1].epoch if index else epoch
    return found, epochs[index].start_offset if index < len(epochs) else log_end


def _largest_epoch(segments: SegmentList, epoch: int) -> tuple[int, int] | None:
    """The largest epoch of the segments that is at most ``epoch``, and its end offset."""
    index = segments.count_up_to_epoch(epoch)
    if index < len(segments):
        starts = segments[index].leader_epochs  # the last one of them is too large
        count = bisect_right(starts, epoch, key=lambda each: each.epoch)
        if count:
            return starts[count - 1].epoch, starts[count].start_offset
    if index:
        return segments.last_epoch_at(index - 1), segments.next_offset_at(index - 1)
    return None
