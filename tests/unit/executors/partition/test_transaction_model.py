"""Transactions between plain writes, through crashes: a partition does what a simple model says.

The model is a list of batches and markers with their offsets.  After every step the last stable
offset, the aborted transactions of every read and the records that readers of committed data get
must be what the list gives.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.executors.partition.partition import Partition
from sparklog.executors.partition.producer_state import TransactionEnd
from sparklog.types import Isolation
from sparklog.wire.protocol.messages.fetch import AbortedTransaction
from sparklog.wire.records.aborted import AbortedFilter
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.control import ControlType, EndTxnMarker
from tests.unit.executors.partition.partition_maker import NOW, Maker, batch, led

PAIR = led(replicas=(1, 2), isr=(1, 2), last_known=(1, 2))
COMMITTED = Isolation.READ_COMMITTED
READ_BYTES = 200


class Item(NamedTuple):
    """A batch, or a marker (one offset); ``pid`` -1: not in a transaction."""

    first: int
    last: int
    pid: int = -1
    marker: ControlType | None = None


class Txn(NamedTuple):
    pid: int
    first: int
    #: Of the marker; None: open.
    last: int | None
    aborted: bool
    offsets: tuple[int, ...]


@dataclass
class Model:
    items: list[Item] = field(default_factory=list)
    start: int = 0
    high_watermark: int = 0

    @property
    def end(self) -> int:
        """A log that lost everything behind its start goes on there."""
        return max(self.items[-1].last + 1 if self.items else 0, self.start)

    def transactions(self) -> list[Txn]:
        found: list[Txn] = []
        current: dict[int, tuple[int, list[int]]] = {}
        for item in self.items:
            if item.pid < 0:
                continue
            if item.marker is None:
                _, offsets = current.setdefault(item.pid, (item.first, []))
                offsets += range(item.first, item.last + 1)
            elif item.pid in current:
                first, offsets = current.pop(item.pid)
                aborted = item.marker is ControlType.ABORT
                found.append(Txn(item.pid, first, item.last, aborted, tuple(offsets)))
        return found + [Txn(p, f, None, False, tuple(o)) for p, (f, o) in current.items()]

    def last_stable_offset(self) -> int:
        unstable = [
            txn.first
            for txn in self.transactions()
            if txn.last is None or txn.last >= self.high_watermark
        ]
        return max(min([self.high_watermark, *unstable]), self.start)

    def aborted(self, start: int, end: int) -> list[tuple[int, int]]:
        return [
            (txn.pid, txn.first)
            for txn in sorted(self.transactions(), key=lambda txn: txn.last or 0)
            if txn.aborted and txn.first < end and txn.last is not None and txn.last >= start
        ]

    def committed(self) -> list[int]:
        hidden = {o for txn in self.transactions() if txn.aborted for o in txn.offsets}
        stable = self.last_stable_offset()
        return [
            offset
            for item in self.items
            if item.marker is None
            for offset in range(item.first, item.last + 1)
            if self.start <= offset < stable and offset not in hidden
        ]

    def cut(self, end: int) -> None:
        self.items = [item for item in self.items if item.last < end]


class Pair:
    """The partition and its model, and the steps that both take."""

    def __init__(self, replicated: bool) -> None:
        self.maker = Maker()
        self.model = Model()
        self.state = PAIR if replicated else led()
        self.replicated = replicated
        self.sequences: dict[int, int] = {}
        self.flushed = 0
        self.partition = self._open()

    def _open(self, clean: bool = False, recovery_point: int = 0) -> Partition:
        self.maker.files.close()
        partition = self.maker.open(
            self.state,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=self.model.start,
            segment_bytes=500,
            index_interval_bytes=100,
            retention_ms=-1,
        )
        self.sequences = {pid: e.last_sequence for pid, e in partition.producers.entries.items()}
        return partition

    def plain(self, count: int, pid: int) -> None:
        del pid
        self._put(batch(*[b"p"] * count), count, -1)

    def data(self, count: int, pid: int) -> None:
        sequence = self.sequences.get(pid, -1) + 1
        records = batch(
            *[b"t"] * count, producer_id=pid, epoch=0, sequence=sequence, transactional=True
        )
        self._put(records, count, pid)
        self.sequences[pid] = sequence + count - 1

    def _put(self, records: bytes, count: int, pid: int) -> None:
        first = self.model.end
        self.partition.append_as_leader(records, acks=1, now_ms=NOW, verified=pid >= 0)
        self.model.items.append(Item(first, first + count - 1, pid))

    def abort(self, count: int, pid: int) -> None:
        self._end(pid, ControlType.ABORT, count)

    def commit(self, count: int, pid: int) -> None:
        self._end(pid, ControlType.COMMIT, count)

    def _end(self, pid: int, kind: ControlType, coordinator_epoch: int) -> None:
        del coordinator_epoch
        end = TransactionEnd(
            producer_id=pid,
            producer_epoch=0,
            marker=EndTxnMarker(control_type=kind, coordinator_epoch=1),
        )
        self.partition.end_transaction(end, now_ms=NOW)
        self.model.items.append(Item(self.model.end, self.model.end, pid, kind))

    def replicate(self, count: int, pid: int) -> None:
        """The follower is some batches behind."""
        ends = [0, *(item.last + 1 for item in self.model.items)]
        self.partition.update_follower_fetch_state(
            2, ends[max(0, len(ends) - 1 - (count - 1) * pid)]
        )

    def delete(self, count: int, pid: int) -> None:
        target = min(self.model.start + count * pid, self.partition.last_stable_offset)
        self.partition.delete_records(target)
        self.model.start = target
        self.partition.log.delete_old_segments(NOW, self.partition.unclamped_last_stable_offset)

    def flush(self, count: int, pid: int) -> None:
        del count, pid
        job = self.partition.log.start_flush(NOW, force=True)
        assert job is not None
        job.run()
        self.partition.log.finish_flush(job, NOW)
        self.flushed = self.model.end

    def restart(self, count: int, pid: int) -> None:
        del count, pid
        before = _producers(self.partition)
        self.partition.log.close(NOW)
        self.flushed = self.model.end
        self.partition = self._open(clean=True)
        assert _producers(self.partition) == before

    def crash(self, count: int, pid: int) -> None:
        """Unflushed bytes are lost but for some; names too for some ``pid``."""
        before, size = _producers(self.partition), self.partition.log.size
        point = self.partition.log.recovery_point if count > 1 else 0
        self.maker.backend.crash(
            (0, 40, 300, 10**6)[count] if count < 4 else count * 61, lose_names=pid == 2
        )
        self.partition = self._open(recovery_point=point)
        end = self.partition.log.log_end_offset
        assert max(self.flushed, self.model.start) <= end <= self.model.end
        if (end, self.partition.log.size) == (self.model.end, size):
            assert _producers(self.partition) == before
        # A log that lost even what it had deleted starts anew, and knows of no transaction.
        self.model.cut(end if self.partition.log.size else 0)

    def check(self) -> None:
        partition, model = self.partition, self.model
        log = partition.log
        partition.check_invariants()
        assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
        model.high_watermark = partition.high_watermark
        if not self.replicated:
            assert model.high_watermark == model.end
        assert partition.last_stable_offset == model.last_stable_offset()
        seen: list[int] = []
        offset = model.start
        while offset < partition.last_stable_offset:
            found = partition.read(offset, READ_BYTES, isolation=COMMITTED)
            assert found.records is not None
            data = found.records.read()
            found.records.release()
            headers = list(iter_batches(data))
            end = headers[-1][0].next_offset
            aborted = [(txn.producer_id, txn.first_offset) for txn in found.aborted]
            assert aborted == model.aborted(offset, end)
            drops = AbortedFilter(
                [AbortedTransaction(producer_id=p, first_offset=f) for p, f in aborted]
            ).drops
            for header, start in headers:
                if not drops(data, start, header) and not header.is_control:
                    seen += range(max(header.base_offset, offset), header.next_offset)
            offset = end
        assert seen == model.committed()


def _producers(partition: Partition) -> object:
    """What a snapshot keeps of them."""
    entries = partition.producers.entries.values()
    return {e.producer_id: e._replace(batches=e.batches[-1:]) for e in entries}


def steps(*kinds: str) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    step = st.tuples(st.sampled_from(kinds), st.integers(1, 4), st.integers(1, 3))
    return st.lists(step, min_size=10, max_size=60)


WRITES = ("plain", "commit", *["data"] * 5, *["abort"] * 3)


def run(pair: Pair, moves: Sequence[tuple[str, int, int]]) -> None:
    for kind, count, pid in moves:
        getattr(pair, kind)(count, pid)
        pair.check()


@settings(max_examples=120)
@given(moves=steps(*WRITES, "delete", "flush", "crash", "restart"))
def test_readers_see_what_the_model_sees_through_crashes(moves: list[tuple[str, int, int]]) -> None:
    run(Pair(replicated=False), moves)


@settings(max_examples=80)
@given(moves=steps(*WRITES, "delete", "replicate"))
def test_readers_see_what_the_model_sees_while_followers_lag(
    moves: list[tuple[str, int, int]],
) -> None:
    run(Pair(replicated=True), moves)
