"""What a manifest names is a part of the committed log, whole and undistorted.

When a segment is added, its batches follow each other from its base offset to its end, all of them
are below a high watermark, and every transaction with records in it has ended below one.  Its bytes
are those that replicas hold there.  Its leader epochs are those of its batches, and its aborted
transactions are all that have records in it.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from tests.simulation.checkers.promises import Promises, promises_of
from tests.simulation.checkers.tiers import Tiers, TierState, tiers_of
from tests.simulation.events import LogId, ReplicaSeen
from tests.simulation.final_state import FinalState
from tests.simulation.history import NEVER, History
from tests.simulation.tier_events import TierBatch, TierSegment

#: Checksums by base offset.
Known = dict[int, int]


def check(history: History, final: FinalState) -> list[str]:
    tiers, promises = tiers_of(history), promises_of(history)
    found: list[str] = []
    known = _known(history, promises)
    for log, states in tiers.states.items():
        markers = _Transactions(tiers, final, log)
        for state in states:
            for added in state.commit.added:
                where = f"{log}: segment {added.segment.base_offset} of epoch {state.leader_epoch}"
                if added.damage:
                    found.append(f"{where} is damaged: {added.damage}")
                    continue
                problems = [*_gaps(added), *_epochs(added), *_uncommitted(tiers, state, added)]
                if not promises.may_be_lost(log, 0):
                    problems += _differences(added, known.setdefault(log, {}))
                    problems += markers.problems(tiers.high_watermark(log, state.at), added)
                found += [f"{where} {problem}" for problem in problems]
    return found


def _known(history: History, promises: Promises) -> dict[LogId, Known]:
    """What replicas were seen to hold below their high watermarks."""
    found: dict[LogId, Known] = {}
    for at, seen in history.each(ReplicaSeen):
        copies = promises.copies.get(seen.log)
        if copies is not None and copies.is_lost(seen.broker, at):
            continue
        known = found.setdefault(seen.log, {})
        for batch in seen.batches:
            if batch.next_offset <= seen.high_watermark:
                known.setdefault(batch.base_offset, batch.checksum)
    return found


def _gaps(added: TierSegment) -> Iterator[str]:
    segment, batches = added.segment, added.batches
    bounds = (batches[0].base_offset, batches[-1].next_offset) if batches else None
    if bounds != (segment.base_offset, segment.next_offset):
        yield f"should have [{segment.base_offset}, {segment.next_offset}) and has {bounds}"
    for before, after in pairwise(batches):
        if before.next_offset != after.base_offset:
            yield f"has offset {after.base_offset} after {before.next_offset - 1}"


def _epochs(added: TierSegment) -> Iterator[str]:
    for batch in added.batches:
        for name, epochs in (("list", added.epochs), ("manifest", added.segment.leader_epochs)):
            below = [epoch for epoch, start in epochs if start <= batch.base_offset]
            if below[-1:] != [batch.leader_epoch]:
                yield (
                    f"has a batch of leader epoch {batch.leader_epoch} at {batch.base_offset}, its "
                    f"{name} of epochs is {[tuple(each) for each in epochs]}"
                )
                return


def _uncommitted(tiers: Tiers, state: TierState, added: TierSegment) -> Iterator[str]:
    high_watermark = tiers.high_watermark(state.commit.log, state.at)
    if added.segment.next_offset > high_watermark:
        yield (
            f"reaches up to {added.segment.next_offset} when it is added, the highest high "
            f"watermark is {high_watermark}"
        )


def _differences(added: TierSegment, known: Known) -> Iterator[str]:
    """The first difference; what the segment holds is known from now on."""
    for batch in added.batches:
        if known.setdefault(batch.base_offset, batch.checksum) != batch.checksum:
            yield f"has other bytes at offset {batch.base_offset} than the log"
            return


class _Transactions:
    """The transactions of one log, as its batches in both tiers tell."""

    def __init__(self, tiers: Tiers, final: FinalState, log: LogId) -> None:
        batches: dict[int, TierBatch] = {}
        for state in tiers.states[log]:
            for added in state.commit.added:
                batches |= {batch.base_offset: batch for batch in added.batches}
        for replica in final.tiered_replicas:
            if replica.log == log:
                batches |= {batch.base_offset: batch for batch in replica.batches}
        #: (producer id, first offset, offset of the marker, whether it commits).
        self._ended = list(_ended(batch for _, batch in sorted(batches.items())))

    def problems(self, high_watermark: int, added: TierSegment) -> Iterator[str]:
        first, end = added.segment.base_offset, added.segment.next_offset
        inside = [each for each in self._ended if each[1] < end and each[2] >= first]
        for producer_id, begins, marker, _ in inside:
            if marker >= high_watermark:
                yield (
                    f"has records of a transaction of producer {producer_id} from {begins} on, "
                    f"whose end is not below the high watermark {high_watermark} when it is added"
                )
                return
        aborted = {each[:3] for each in inside if not each[3]}
        if aborted != {tuple(each) for each in added.aborted}:
            yield (
                f"lists the aborted transactions {[tuple(each) for each in added.aborted]}, "
                f"{sorted(aborted)} have records in it"
            )


def _ended(batches: Iterable[TierBatch]) -> Iterator[tuple[int, int, int, bool]]:
    open_from: dict[int, int] = {}
    for batch in batches:
        if batch.ends_transaction:
            first = open_from.pop(batch.producer_id, None)
            if first is not None:
                yield batch.producer_id, first, batch.base_offset, batch.commits
        elif batch.is_transactional:
            open_from.setdefault(batch.producer_id, batch.base_offset)
    for producer_id, first in open_from.items():
        yield producer_id, first, NEVER, True
