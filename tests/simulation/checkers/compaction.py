"""Compaction keeps the last record of every key, and never lets an older one come back.

What was committed is known record by record (``RecordsCommitted``).  Against that are held the
tables of readers, the copies of brokers, and lookups by time.  Of each key, a table that reaches
the offset ``end`` holds the last committed record below ``end``, unless a later one of the key is
committed by then: the cleaning of another copy may have known it.  A tombstone may be missing, but
a reader misses it only if it came there more than delete.retention.ms after the tombstone was
committed, and after the reader began.

After a legal loss nothing is known of a partition with several replicas.  The log of a partition
with one replica goes on from where it was cut, and the last record of each key below the cut is
still there: no cleaning knows records that a crash may take back.  A transaction whose marker was
lost is open again, and may end in another way than before.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sparklog.types import NO_OFFSET, NO_PRODUCER_ID
from tests.simulation.checkers.promises import Promises, promises_of
from tests.simulation.compaction_events import (
    CommittedMarker,
    CommittedRecord,
    CompactedReplica,
    LeaderBegan,
    RecordsCommitted,
    Step,
    TableRead,
    TimeLookedUp,
)
from tests.simulation.events import LogId, LogLost
from tests.simulation.final_state import FinalState
from tests.simulation.history import History
from tests.simulation.keyed_records import is_tombstone, key_of

#: How far the clocks of two brokers differ at most, and then some.
MARGIN_MS = 600
DEFAULT_RETENTION_MS = 86_400_000


@dataclass(slots=True)
class Truth:
    """The committed records of one log, as far as the history has come."""

    end: int = 0
    #: Every record and marker that was ever committed and not lost, aborted ones included.
    noted: dict[int, CommittedRecord] = field(default_factory=dict)
    noted_at_ms: dict[int, int] = field(default_factory=dict)
    #: Offsets of each key's records, ascending, without aborted ones and open transactions.
    by_key: dict[bytes, list[int]] = field(default_factory=dict)
    open: dict[int, list[int]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    #: Ended transactions: the offset of the marker, the producer, the offsets of the records.
    ended: list[tuple[int, int, list[int]]] = field(default_factory=list)
    #: Position of the last event that took something back.
    cut_at: int = -1
    #: Nothing is known any more.
    is_lost: bool = False

    @property
    def stable_end(self) -> int:
        """Where the first open transaction begins; readers of what is committed get no further."""
        return min([self.end, *(offsets[0] for offsets in self.open.values() if offsets)])

    def note(self, event: RecordsCommitted, now_ms: int) -> Iterator[str]:
        for each in event.records:
            if isinstance(each, CommittedMarker):
                self._end_transaction(each)
                continue
            before = self.noted.get(each.offset)
            if before is not None:
                if before != each:
                    yield (
                        f"{event.log}: offset {each.offset} held {_short(before.text)} and holds "
                        f"{_short(each.text)} on broker {event.broker}"
                    )
                continue
            if each.offset < self.end:
                yield (
                    f"{event.log}: {_short(each.text)} is at offset {each.offset} on broker "
                    f"{event.broker}, where nothing was committed"
                )
                continue
            self.noted[each.offset] = each
            self.noted_at_ms[each.offset] = now_ms
            if each.producer_id != NO_PRODUCER_ID:
                self.open.setdefault(each.producer_id, []).append(each.offset)
            else:
                self._add(each.offset)
        self.end = max(self.end, event.end)

    def cut(self, end: int, position: int) -> None:
        """Everything from an offset on is gone; with a marker, the end of its transaction."""
        while self.ended and self.ended[-1][0] >= end:
            _, producer_id, offsets = self.ended.pop()
            self._reopen(producer_id, offsets)
        self.end, self.cut_at = end, position
        self.noted = {at: each for at, each in self.noted.items() if at < end}
        for offsets in (*self.by_key.values(), *self.open.values()):
            del offsets[bisect_left(offsets, end) :]
        self.aborted = {at for at in self.aborted if at < end}

    def last(self, key: bytes, end: int) -> int | None:
        """The last offset of a key below ``end``; None if a later one is known, or none at all."""
        offsets = self.by_key.get(key, [])
        return offsets[-1] if offsets and offsets[-1] < end else None

    def _end_transaction(self, marker: CommittedMarker) -> None:
        offsets = self.open.pop(marker.producer_id, [])
        ended = [offset for offset in offsets if offset < marker.offset]
        if len(ended) < len(offsets):  # a new leader's marker of an earlier transaction
            self.open[marker.producer_id] = offsets[len(ended) :]
        if ended:
            self.ended.append((marker.offset, marker.producer_id, ended))
        for offset in ended:
            if marker.commits:
                self._add(offset)
            else:
                self.aborted.add(offset)

    def _reopen(self, producer_id: int, offsets: list[int]) -> None:
        for offset in offsets:
            self.aborted.discard(offset)
            with_key = self.by_key.get(key_of(self.noted[offset].text), [])
            if offset in with_key:
                with_key.remove(offset)
        self.open[producer_id] = [*offsets, *self.open.get(producer_id, [])]

    def _add(self, offset: int) -> None:
        offsets = self.by_key.setdefault(key_of(self.noted[offset].text), [])
        offsets.insert(bisect_left(offsets, offset), offset)


def check(history: History, final: FinalState) -> list[str]:
    walk = _Walk(history)
    found: list[str] = []
    for at, event in enumerate(history.events):
        match event:
            case RecordsCommitted():
                found += walk.committed(at, event)
            case LeaderBegan():
                found += walk.began(at, event)
            case LogLost():
                walk.truth(event.log).is_lost = True
            case TableRead():
                found += walk.table_read(at, event)
            case CompactedReplica():
                found += walk.replica_seen(at, event)
            case TimeLookedUp():
                found += walk.time_looked_up(at, event)
    found += _unknown_acknowledged(history, walk)
    for log in final.compacted_logs:
        if log not in walk.read_last:
            found.append(f"{log} could not be read at the end")
    return list(dict.fromkeys(found))


class _Walk:
    def __init__(self, history: History) -> None:
        self._history = history
        self._promises: Promises = promises_of(history)
        self._truths: dict[LogId, Truth] = {}
        #: Logs whose last table reached the end of what is stable.
        self.read_last: set[LogId] = set()

    def truth(self, log: LogId) -> Truth:
        return self._truths.setdefault(log, Truth())

    def knows(self, log: LogId, at: int) -> bool:
        """Whether anything is known of a log at a position."""
        truth, copies = self.truth(log), self._promises.copies.get(log)
        if copies is None or truth.is_lost:
            return False
        if not copies.is_alone and self._promises.may_be_lost(log, 0, at):
            truth.is_lost = True
        return not truth.is_lost

    def committed(self, at: int, event: RecordsCommitted) -> Iterator[str]:
        if self.knows(event.log, at):
            yield from self.truth(event.log).note(event, self._history.times_ms[at])

    def began(self, at: int, event: LeaderBegan) -> Iterator[str]:
        if not self.knows(event.log, at) or self._is_replaced(event, at):
            return
        truth = self.truth(event.log)
        if event.log_end >= truth.end:
            return
        if not self._promises.may_be_lost(event.log, 0, at):
            yield (
                f"{event.log}: broker {event.broker} leads with the log up to {event.log_end}, "
                f"{truth.end} were committed"
            )
        truth.cut(event.log_end, at)

    def _is_replaced(self, event: LeaderBegan, at: int) -> bool:
        """Whether another leads by the journal, and this broker hears late of its own epoch."""
        state = self._promises.copies[event.log].state_at(at)
        return state is not None and state.leader_epoch > event.leader_epoch

    def table_read(self, at: int, event: TableRead) -> Iterator[str]:
        truth = self.truth(event.log)
        if event.end >= truth.stable_end or not self.knows(event.log, at):
            self.read_last.add(event.log)
        else:
            self.read_last.discard(event.log)
        if not self.knows(event.log, at) or truth.cut_at >= event.asked:
            return
        who = f"{event.log}: {event.reader}, which has read up to {event.end},"
        yield from _strangers(truth, who, event.table)
        for offset, text in event.table:
            if offset in truth.aborted:
                yield f"{who} has {_short(text)} of offset {offset}, which was aborted"
        table = {key_of(text): offset for offset, text in event.table}
        for key, wrong in _wrong_keys(truth, table, event.start, event.end):
            if wrong is None or not self._came_too_late(event, truth, wrong):
                yield f"{who} {_story(truth, key, table.get(key), event.end)}"

    def replica_seen(self, at: int, event: CompactedReplica) -> Iterator[str]:
        truth = self.truth(event.log)
        if not self.knows(event.log, at):
            return
        who = f"{event.log}: the copy of broker {event.broker} up to {event.high_watermark}"
        yield from _strangers(truth, who, event.records)
        table = {
            key_of(text): offset for offset, text in event.records if offset not in truth.aborted
        }
        for key, _ in _wrong_keys(truth, table, event.start, event.high_watermark):
            yield f"{who} {_story(truth, key, table.get(key), event.high_watermark)}"

    def time_looked_up(self, at: int, event: TimeLookedUp) -> Iterator[str]:
        truth = self.truth(event.log)
        if not self.knows(event.log, at) or truth.cut_at >= event.asked:
            return
        where = f"{event.log}: the first record since {event.timestamp}"
        found = truth.noted.get(event.offset)
        if found is not None and found.timestamp != event.found_timestamp:
            yield f"{where} is that of {found.timestamp}, {event.found_timestamp} was answered"
        if event.offset != NO_OFFSET and event.found_timestamp < event.timestamp:
            yield f"{where} is said to be at offset {event.offset}, of {event.found_timestamp}"

    def _came_too_late(self, event: TableRead, truth: Truth, tombstone: int) -> bool:
        configs = self._promises.configs.get(event.log.topic_id, {})
        retention_ms = int(configs.get("delete.retention.ms", DEFAULT_RETENTION_MS))
        known_ms = max(truth.noted_at_ms[tombstone], event.began_ms)
        return _passed_ms(event.steps, tombstone) > known_ms + retention_ms - MARGIN_MS


def _wrong_keys(
    truth: Truth, table: Mapping[bytes, int], start: int, end: int
) -> Iterator[tuple[bytes, int | None]]:
    """Keys that a table has wrong, each with the tombstone that it may have missed, if any."""
    for key in truth.by_key:
        last = truth.last(key, end)
        if last is None:
            continue
        has = table.get(key)
        if has == last or (has is None and (last < start or is_tombstone(truth.noted[last].text))):
            continue
        # A record of an open transaction, or above the end that counts, is not judged.
        if has is not None and has > last:
            continue
        yield key, last if is_tombstone(truth.noted[last].text) else None


def _strangers(truth: Truth, who: str, records: tuple[tuple[int, bytes], ...]) -> Iterator[str]:
    for offset, text in records:
        known = truth.noted.get(offset)
        if known is not None and known.text != text:
            yield f"{who} has {_short(text)} at offset {offset}, where {_short(known.text)} was"


def _unknown_acknowledged(history: History, walk: _Walk) -> Iterator[str]:
    """An acknowledged record was committed where its acknowledgement says."""
    end = history.position
    for write, base_offset in history.base_offsets():
        configs = walk._promises.configs.get(write.log.topic_id, {})
        if "compact" not in configs.get("cleanup.policy", "") or not walk.knows(write.log, end):
            continue
        if walk._promises.write_may_be_lost(write):
            continue
        noted = walk.truth(write.log).noted
        for offset, text in enumerate(write.sent.values, base_offset):
            known = noted.get(offset)
            if known is None or known.text != text:
                yield (
                    f"{write.log}: {_short(text)} was acknowledged at offset {offset}, where "
                    + ("nothing" if known is None else _short(known.text))
                    + " was committed"
                )
                return


def _passed_ms(steps: tuple[Step, ...], offset: int) -> int:
    return next((step.at_ms for step in steps if step.end > offset), 0)


def _story(truth: Truth, key: bytes, has: int | None, end: int) -> str:
    last = truth.last(key, end)
    assert last is not None
    there = f"{_short(truth.noted[has].text)} of offset {has}" if has in truth.noted else "nothing"
    return f"has {there} where {_short(truth.noted[last].text)} of offset {last} is the last"


def _short(text: bytes) -> str:
    return text.rstrip(b".").decode(errors="replace")[:40]
