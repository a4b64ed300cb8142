"""Records of a log with the gaps of compaction, as a client reads them."""

from sparklog.client.damaged_ranges import end_of_answer
from sparklog.client.fetch_api import Fetched
from sparklog.client.fetched_records import FetchedRecords
from sparklog.types import TopicPartition
from sparklog.wire.records.builder import Record, encode_batch

TP = TopicPartition("t", 0)
#: Offsets 0 to 3 with a record at 2, a gap, 10 to 14 without records, a gap, 20 to 24.
BATCHES = [
    encode_batch([Record(value=b"c", offset=2)], base_offset=0, last_offset_delta=3),
    encode_batch([], base_offset=10, last_offset_delta=4),
    encode_batch(
        [Record(value=b"v", offset=21), Record(value=b"x", offset=23)],
        base_offset=20,
        last_offset_delta=4,
    ),
]


def fetched(batches: list[bytes]) -> Fetched:
    return Fetched(
        records=memoryview(b"".join(batches)),
        high_watermark=30,
        last_stable_offset=30,
        log_start_offset=0,
    )


def test_a_reader_goes_on_behind_the_last_batch_and_takes_no_gap_for_damage() -> None:
    for position, first, end in ((0, 0, 25), (3, 0, 25), (4, 1, 25), (15, 2, 25), (22, 2, 25)):
        found = fetched(BATCHES[first:])
        assert end_of_answer(found, position) == (end, len(found.records))
    only_empty = fetched(BATCHES[1:2])
    assert end_of_answer(only_empty, 5) == (15, len(only_empty.records))


def test_the_records_that_are_left_are_taken_from_any_offset() -> None:
    for position in range(25):
        records = FetchedRecords(TP, fetched(BATCHES), position, 25, None)
        left = [offset for offset in (2, 21, 23) if offset >= position]
        assert records.position == (left[0] if left else 25)
        assert [record.offset for record in records.take(10)] == left
        assert (records.done, records.position) == (True, 25)


def test_a_batch_without_records_is_nothing_to_take() -> None:
    records = FetchedRecords(TP, fetched(BATCHES[1:2]), 5, 15, None)
    assert (records.done, records.position, records.take(1)) == (True, 15, [])
