"""An acknowledged commit survives, what is read never goes back, and no member of the past commits.

The committed offset of a partition is a register.  A read is right when some commit put the value
there that may be the latest: no other one both began after it had ended and was known to be there
before the read was asked.  An attempt without an answer may take effect at any time.  One whose
transaction was aborted does so if the marker is lost, and the next one of its producer commits.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tests.simulation.checkers.coordinators import Coordinators, coordinators_of
from tests.simulation.events import (
    LogId,
    OffsetCommitAcked,
    OffsetCommitInvoked,
    OffsetCommitRefused,
    OffsetsRead,
    PartitionsAssigned,
)
from tests.simulation.final_state import FinalState
from tests.simulation.history import NEVER, History
from tests.simulation.transaction_events import ABORTED, MarkerAppended


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """An offset that took its place between two positions; without an answer ``end`` is NEVER."""

    offset: int
    start: int
    end: int


def check(history: History, final: FinalState) -> list[str]:
    coordinators = coordinators_of(history)
    return [*_reads(history, coordinators), *_generations(history, coordinators)]


def _reads(history: History, coordinators: Coordinators) -> Iterator[str]:
    attempts = _attempts(history, coordinators)
    #: What earlier reads have shown to be there.
    seen: dict[tuple[str, LogId], list[_Known]] = defaultdict(list)
    for at, read in history.each(OffsetsRead):
        if not coordinators.led(read.group, read.node, read.asked, at):
            continue
        for log, value in read.offsets:
            commits = attempts.get((read.group, log), [])
            # Commits are in the order of their starts, and there are many.
            known = (
                each
                for some in (reversed(commits), sorted(seen[read.group, log], key=_start)[::-1])
                for each in islice(
                    (
                        each
                        for each in some
                        if each.end < read.asked
                        and not coordinators.may_be_lost(read.group, each.start, at)
                    ),
                    1,
                )
            )
            latest = max(known, key=_start, default=None)
            fitting = [
                each
                for each in commits
                if each.offset == value
                and each.start < at
                and (latest is None or each.end >= latest.start)
            ]
            if fitting and value is not None:
                start = min(each.start for each in fitting)
                seen[read.group, log].append(_Known(offset=value, start=start, end=at))
            elif value is not None or latest is not None:
                there = "nothing" if latest is None else f"offset {latest.offset}"
                yield (
                    f"group {read.group} read the committed offset {value} of {log} of broker "
                    f"{read.node}, {there} was committed before"
                )


def _start(known: _Known) -> int:
    return known.start


def _attempts(
    history: History, coordinators: Coordinators
) -> dict[tuple[str, LogId], list[_Known]]:
    acked = history.ends(OffsetCommitAcked)
    refused = history.ends(OffsetCommitRefused)
    markers = list(history.each(MarkerAppended))
    found: dict[tuple[str, LogId], list[_Known]] = defaultdict(list)
    for start, sent in history.each(OffsetCommitInvoked):
        if sent.op not in refused:
            ends = [acked[sent.op][0] if sent.op in acked else NEVER]
        elif refused[sent.op][1].code == ABORTED:
            ends = list(_revivals(markers, coordinators, start, sent))
        else:
            continue
        for end in ends:
            for log, offset in sent.offsets:
                found[sent.group, log].append(_Known(offset=offset, start=start, end=end))
    return found


def _revivals(
    markers: list[tuple[int, MarkerAppended]],
    coordinators: Coordinators,
    start: int,
    sent: OffsetCommitInvoked,
) -> Iterator[int]:
    """Where an aborted attempt may have been committed, by the first marker after a loss."""
    log = coordinators.log(sent.group)
    of_it = [
        (at, marker)
        for at, marker in markers
        if marker.log == log and marker.producer.producer_id == sent.producer_id
    ]
    for loss in coordinators.losses(sent.group, start):
        kept = {marker for at, marker in of_it if at < loss}  # they are seen again
        fresh = ((at, marker) for at, marker in of_it if at > loss and marker not in kept)
        at, marker = next(fresh, (NEVER, None))
        if marker is not None and marker.committed:
            yield at


def _generations(history: History, coordinators: Coordinators) -> Iterator[str]:
    """A commit of a generation that was followed by another one before it was sent."""
    acked = history.ends(OffsetCommitAcked)
    newest: dict[str, tuple[int, int]] = {}
    for at, event in enumerate(history.events):
        match event:
            case PartitionsAssigned():
                since, generation = newest.get(event.group, (at, -1))
                if event.generation > generation or coordinators.may_be_lost(
                    event.group, since, at
                ):
                    newest[event.group] = (at, event.generation)
            case OffsetCommitInvoked() if event.generation >= 0 and event.op in acked:
                since, generation = newest.get(event.group, (at, -1))
                lost = coordinators.may_be_lost(event.group, since, acked[event.op][0])
                if event.generation < generation and not lost:
                    yield (
                        f"group {event.group} took a commit of generation {event.generation}, "
                        f"and was in generation {generation} before it was sent"
                    )
            case _:
                pass
