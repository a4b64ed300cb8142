"""Aborted transactions in the segments of a log that shrinks, grows and opens again."""

from dataclasses import dataclass, field

from sparklog.executors.log.log import Log
from sparklog.executors.log.segment_list import aborted_overlapping
from sparklog.executors.log.txn_index import AbortedTxn
from sparklog.wire.records.builder import Record, encode_batch
from sparklog.wire.records.control import ControlType, EndTxnMarker, encode_marker
from tests.unit.executors.log.log_fixtures import Desk, fill, headers_of

MARKER = EndTxnMarker(control_type=ControlType.ABORT, coordinator_epoch=0)


@dataclass
class Writer:
    """A log of small segments, and the aborted transactions that it should have."""

    desk: Desk = field(default_factory=Desk)
    log: Log = field(init=False)
    expected: list[AbortedTxn] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = self.desk.open()

    def begin(self, producer_id: int) -> None:
        entry = self.desk.producers.entries.get(producer_id)
        data = encode_batch(
            [Record(value=b"t")],
            base_offset=self.log.log_end_offset,
            leader_epoch=0,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0 if entry is None else entry.last_sequence + 1,
            transactional=True,
        )
        (header,) = headers_of(data)
        self.log.append([data], [header], 0)
        self.desk.producers.replay(header)

    def abort(self, producer_id: int) -> None:
        end = encode_marker(
            MARKER,
            base_offset=self.log.log_end_offset,
            leader_epoch=0,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=0,
        )
        (header,) = headers_of(end)
        txn = self.desk.producers.aborted_by(header, MARKER)
        assert txn is not None
        self.log.append([end], [header], 0, txn)
        self.desk.producers.replay(header, 0, MARKER)
        self.expected.append(txn)

    def segments(self, count: int, first_pid: int = 1) -> None:
        """Segments of four offsets: two aborted transactions in every second one."""
        for number in range(count):
            if number % 2:
                fill(self.log, 4)
            else:
                for pid in (first_pid, first_pid + 1):
                    self.begin(pid)
                    self.abort(pid)
            self.log.roll(0)

    def check(self) -> None:
        """Every range gives what overlaps it, and Kafka's rule finds no more."""
        log = self.log
        log.check_invariants()
        for start in range(log.log_start_offset, log.log_end_offset):
            found = log.read(start, 1, end_offset=log.log_end_offset, with_aborted=True)
            assert found.region is not None
            (header,) = headers_of(found.region.read())
            found.region.release()
            assert list(found.aborted) == [
                txn
                for txn in self.expected
                if txn.last_offset >= start and txn.first_offset < header.next_offset
            ]


def test_segments_with_and_without_aborted_transactions() -> None:
    writer = Writer()
    writer.begin(9)
    writer.segments(6)
    writer.abort(9)
    fill(writer.log, 1)
    writer.check()
    assert [txn.last_stable_offset for txn in writer.expected] == [0] * 6 + [26]
    writer.log.close(0)
    writer.log = writer.desk.open(clean=True)
    writer.check()


def test_retention_deletes_segments_with_aborted_transactions() -> None:
    writer = Writer()
    writer.segments(6)
    fill(writer.log, 1)
    writer.log.flush(0)
    writer.log.advance_log_start(13)
    assert writer.log.delete_old_segments(0, writer.log.log_end_offset) == 3
    writer.expected = [txn for txn in writer.expected if txn.last_offset >= 12]
    assert len(writer.expected) == 2
    writer.check()
    writer.log.advance_log_start(24)
    assert writer.log.delete_old_segments(0, writer.log.log_end_offset) == 3
    writer.expected = []
    writer.check()
    writer.segments(1, first_pid=3)
    fill(writer.log, 1)
    writer.check()


def test_a_truncation_takes_transactions_and_more_are_aborted_afterwards() -> None:
    writer = Writer()
    writer.segments(6)
    for offset in (20, 19, 18, 6):
        writer.log.truncate_to(offset, 0)
        writer.expected = [txn for txn in writer.expected if txn.last_offset < offset]
        writer.check()
    writer.segments(2, first_pid=20)
    fill(writer.log, 1)
    writer.check()
    writer.log.truncate_fully_and_start_at(3, 0)
    writer.expected = []
    writer.check()
    writer.segments(2, first_pid=30)
    fill(writer.log, 1)
    writer.check()


def test_an_index_that_was_damaged_is_found_again() -> None:
    writer = Writer()
    writer.segments(4)
    fill(writer.log, 1)
    writer.log.close(0)
    for name in writer.desk.names(".txnindex"):
        writer.desk.half.put(writer.desk.path(name), b"nonsense")
    writer.log = writer.desk.open(clean=True)
    writer.check()


def test_each_segment_has_a_complete_list_wherever_the_markers_lie() -> None:
    writer = Writer()
    writer.begin(9)  # in every segment but the last two
    writer.segments(3)
    writer.begin(8)
    writer.abort(9)
    writer.segments(2, first_pid=20)
    writer.abort(8)
    fill(writer.log, 1)
    lists = [list(aborted_overlapping(writer.log.segments, s)) for s in writer.log.segments]
    assert lists == [
        [
            txn
            for txn in writer.expected
            if txn.last_offset >= segment.base_offset and txn.first_offset < segment.next_offset
        ]
        for segment in writer.log.segments
    ]
    assert [[txn.producer_id for txn in found] for found in lists] == [
        [1, 2, 9],
        [9],
        [1, 2, 9],
        [9, 20, 21, 8],
        [8],
        [8],
    ]
