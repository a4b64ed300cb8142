"""Replicas agree: below their high watermarks all of them hold the same bytes, at any time.

And at the end, when all are in sync, each holds the whole partition.
"""

from collections.abc import Iterator

from tests.simulation.checkers.promises import promises_of
from tests.simulation.events import LogId, ReplicaSeen
from tests.simulation.final_state import FinalState
from tests.simulation.history import History

#: Checksum of a batch and the broker that was seen to hold it, by base offset.
Known = dict[int, tuple[int, int]]


def check(history: History, final: FinalState) -> list[str]:
    promises = promises_of(history)
    known: dict[LogId, Known] = {}
    found: list[str] = []
    for at, seen in history.each(ReplicaSeen):
        if seen.log in final.compacted_logs or seen.log in final.cleaned_logs:
            continue  # see ``compaction``
        copies = promises.copies[seen.log]
        # After a legal loss one that has not heard of it may hold what was there before.
        if not promises.may_be_lost(seen.log, 0, at) and not copies.is_lost(seen.broker, at):
            found += _differences(seen, known.setdefault(seen.log, {}))
    last: dict[LogId, list[ReplicaSeen]] = {}
    for seen in final.replicas:
        last.setdefault(seen.log, []).append(seen)
    for log, replicas in last.items():
        agreed = {} if promises.may_be_lost(log, 0) else known.setdefault(log, {})
        for seen in replicas:
            found += _differences(seen, agreed)
        found += _shortcomings(replicas)
    return found


def _differences(seen: ReplicaSeen, known: Known) -> Iterator[str]:
    committed = {batch.base_offset: batch for batch in seen.batches}
    for base_offset, batch in committed.items():
        if batch.next_offset > seen.high_watermark:
            continue
        checksum, witness = known.setdefault(base_offset, (batch.checksum, seen.broker))
        if checksum != batch.checksum:
            yield (
                f"{seen.log}: brokers {witness} and {seen.broker} hold different bytes at offset "
                f"{base_offset}"
            )
            return
    for base_offset, (_, witness) in known.items():
        if seen.first <= base_offset < seen.high_watermark and base_offset not in committed:
            yield (
                f"{seen.log}: broker {witness} held a batch at offset {base_offset}, broker "
                f"{seen.broker} has none there below its high watermark {seen.high_watermark}"
            )
            return


def _shortcomings(replicas: list[ReplicaSeen]) -> Iterator[str]:
    high_watermark = max(seen.high_watermark for seen in replicas)
    for seen in replicas:
        end = seen.batches[-1].next_offset if seen.batches else seen.first
        if end < high_watermark:
            yield (
                f"{seen.log}: broker {seen.broker} holds records up to {end} at the end, "
                f"{high_watermark} were committed"
            )
