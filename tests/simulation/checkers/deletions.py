"""Deleted is what was asked to be deleted, no less and no more: records, and whole topics.

A log that every replica has lost, and of which the bucket has no record, begins behind the offsets
that its replicas had used.  After an unclean election a log begins where the leader's files do, if
the records between the bucket and these files are lost.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from uuid import UUID

from sparklog.remote_log.manifest_records import LeaderBegan, TruncatedAfter
from sparklog.types import NO_OFFSET
from tests.simulation.checkers.promises import Promises, promises_of
from tests.simulation.checkers.tiers import tiers_of
from tests.simulation.events import (
    ConfigChangeInvoked,
    DeleteRecordsInvoked,
    HighWatermarkSeen,
    LogId,
    ReplicaSeen,
)
from tests.simulation.final_state import FinalState
from tests.simulation.history import NEVER, History


def check(history: History, final: FinalState) -> list[str]:
    promises = promises_of(history)
    found: list[str] = []
    limits = _limits(history, promises)
    retained = retained_topics(history, promises)
    for log, state in final.logs.items():
        if log.topic_id not in retained and state.start > limits.get(log, 0):
            found.append(
                f"{log} starts at {state.start}, deletion was asked up to {limits.get(log, 0)}"
            )
    found += _kept(history, final, promises)
    found += _left_behind(final)
    return found


def retained_topics(history: History, promises: Promises) -> set[UUID]:
    """The topics whose records may expire."""
    found = {e.topic_id for _, e in history.each(ConfigChangeInvoked) if _retention(e.name)}
    return found | {
        id_ for id_, configs in promises.configs.items() if any(map(_retention, configs))
    }


def _limits(history: History, promises: Promises) -> dict[LogId, int]:
    limits: dict[LogId, int] = {}
    for _, asked in history.each(DeleteRecordsInvoked):
        before = NEVER if asked.before == NO_OFFSET else asked.before
        limits[asked.log] = max(before, limits.get(asked.log, 0))
    for log, begin in (*_begun_anew(history, promises), *_begun_behind_gaps(history, promises)):
        limits[log] = max(begin, limits.get(log, 0))
    return limits


def _begun_behind_gaps(history: History, promises: Promises) -> Iterator[tuple[LogId, int]]:
    """Where leaders that lacked records have begun logs, above the end of the bucket."""
    for log, states in tiers_of(history).states.items():
        for before, after in pairwise(states):
            is_lossy = promises.may_be_lost(log, 0, after.at)
            takes_over = any(
                isinstance(each, LeaderBegan | TruncatedAfter) for each in before.commit.records
            )
            if is_lossy and takes_over and after.log_start > max(before.end, before.log_start):
                yield log, after.log_start


def _begun_anew(history: History, promises: Promises) -> Iterator[tuple[LogId, int]]:
    """Where a recovery from a bucket without records may have begun a log, at most."""
    used: dict[LogId, list[tuple[int, int]]] = {}
    for at, event in enumerate(history.events):
        if isinstance(event, HighWatermarkSeen | ReplicaSeen):
            used.setdefault(event.log, []).append((at, _end_of(event)))
    tiers = tiers_of(history)
    for log, copies in promises.copies.items():
        for recovery in copies.recoveries:
            manifest = tiers.state_at(log, recovery.at)
            has_records = manifest is not None and manifest.log_start < manifest.end
            if recovery.from_bucket and recovery.excused and not has_records:
                ends = used.get(log, [])
                before = bisect_left(ends, (recovery.at, 0))
                yield log, max((end for _, end in ends[:before]), default=0)


def _end_of(seen: HighWatermarkSeen | ReplicaSeen) -> int:
    """The highest offset that a replica was seen to have used."""
    if isinstance(seen, ReplicaSeen):
        return max([seen.start, *(batch.next_offset for batch in seen.batches)])
    return max([seen.high_watermark, *(replica.end for replica in seen.ends)])


def _retention(name: str) -> bool:
    return name.startswith("retention.")


def _kept(history: History, final: FinalState, promises: Promises) -> Iterator[str]:
    """What an acknowledged DeleteRecords left, and nothing may have brought back: no stop may."""
    for deletion in history.deletions():
        log, low_watermark = deletion.log, deletion.low_watermark
        if low_watermark < deletion.before:
            yield (
                f"{log}: records below {deletion.before} were to be deleted, the answer was "
                f"{low_watermark}"
            )
        state = final.logs.get(log)
        undone = promises.deletion_may_be_undone(deletion, NEVER)
        if state is not None and not undone and state.start < low_watermark:
            yield (
                f"{log}: records below {low_watermark} had been deleted, the log starts at "
                f"{state.start}"
            )


def _left_behind(final: FinalState) -> Iterator[str]:
    """Partition directories that the cluster does not know."""
    image = final.image_at(len(final.journal))
    topics: dict[UUID | None, str] = {id_: topic.name for id_, topic in image.topics_by_id.items()}
    for broker, partition_dirs in final.partition_dirs.items():
        for name, topic_id in partition_dirs.items():
            if topic_id not in topics:
                yield f"broker {broker} holds {name} of topic {topic_id}, which does not exist"
