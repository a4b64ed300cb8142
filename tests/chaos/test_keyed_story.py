"""The verdict about compaction finds each thing that may go wrong, and nothing else."""

from dataclasses import replace

from sparklog.types import NO_OFFSET
from tests.chaos.keyed_story import (
    KeyedRecord,
    KeyedReplica,
    KeyedWrite,
    Passage,
    as_passage,
    changed_records,
    doubled_keys,
    stale_keys,
    verdict,
)


def written(key: bytes, value: bytes | None, offset: int, acked_ms: int | None) -> KeyedWrite:
    return KeyedWrite(0, key, value, (acked_ms or 100) - 1, acked_ms, offset)


#: Key a has two values, key b was deleted, key c has one value and is deleted late.
WRITES = [
    written(b"a", b"1", 0, 10),
    written(b"b", b"2", 1, 11),
    written(b"a", b"3", 2, 12),
    written(b"b", None, 3, 13),
    written(b"c", b"4", 4, 14),
    written(b"c", None, 5, 90),
]


def passage(*records: tuple[int, bytes, bytes | None], began_ms: int = 50) -> Passage:
    return Passage(
        reader="r",
        partition=0,
        began_ms=began_ms,
        ended_ms=began_ms + 5,
        records=tuple(KeyedRecord(*record) for record in records),
    )


LAST = ((2, b"a", b"3"), (3, b"b", None), (4, b"c", b"4"))


def test_the_last_acknowledged_value_of_every_key_is_there() -> None:
    assert stale_keys(WRITES, passage(*LAST)) == []
    assert stale_keys(WRITES, passage((0, b"a", b"1"), (1, b"b", b"2"), *LAST)) == []
    assert stale_keys(WRITES, passage(LAST[0], LAST[2])) == []  # the tombstone's time was over
    assert stale_keys(WRITES, passage(*LAST[1:])) == [
        "r: a of partition 0 is missing, its value at offset 2 was acknowledged 38 ms before"
    ]
    assert stale_keys(WRITES, passage((0, b"a", b"1"), *LAST[1:])) == [
        "r: a of partition 0 has its value of offset 0, its value at offset 2 was acknowledged "
        "38 ms before"
    ]


def test_a_value_may_be_acknowledged_without_its_offset() -> None:
    writes = [*WRITES, written(b"a", b"5", NO_OFFSET, 20)]
    assert stale_keys(writes, passage((6, b"a", b"5"), *LAST[1:])) == []
    assert len(stale_keys(writes, passage((0, b"a", b"1"), *LAST[1:]))) == 1
    assert len(stale_keys(writes, passage(*LAST[1:]))) == 1


def test_a_deleted_key_does_not_come_back() -> None:
    back = passage((1, b"b", b"2"), LAST[0], LAST[2])
    assert stale_keys(WRITES, back) == [
        "r: b of partition 0 has its value of offset 1, its deletion at offset 3 was acknowledged "
        "37 ms before"
    ]
    assert stale_keys(WRITES, replace(back, is_steady=False)) == []


def test_what_was_acknowledged_after_a_passage_began_may_be_there_or_not() -> None:
    assert stale_keys(WRITES, passage(*LAST, (5, b"c", None), began_ms=80)) == []
    assert stale_keys(WRITES, passage(*LAST[:2], began_ms=88)) == []  # c may be deleted by then
    assert len(stale_keys(WRITES, passage(*LAST[:2], began_ms=70))) == 1
    assert stale_keys(WRITES, passage(began_ms=10)) == []


def test_a_write_without_an_outcome_promises_nothing() -> None:
    lost = KeyedWrite(0, b"a", b"9", 20)
    assert stale_keys([*WRITES, lost], passage(*LAST)) == []
    assert stale_keys([*WRITES, lost], passage(*LAST, (6, b"a", b"9"))) == []


def test_offsets_keep_their_records_and_their_order() -> None:
    assert changed_records(WRITES, passage(*LAST, (7, b"z", b""))) == []
    assert changed_records(WRITES, passage((2, b"a", b"1"))) == [
        "r: partition 0 holds a at offset 2, where a was acknowledged"
    ]
    assert changed_records(WRITES, passage((4, b"a", b"4"))) == [
        "r: partition 0 holds a at offset 4, where c was acknowledged"
    ]
    assert changed_records(WRITES, passage(LAST[1], LAST[0])) == [
        "r: partition 0 has offset 2 behind 3"
    ]


def test_what_is_clean_has_every_key_once() -> None:
    records = tuple(KeyedRecord(*each) for each in ((0, b"a", b"1"), *LAST))
    replica = KeyedReplica(broker=3, partition=0, clean_offset=2, records=records)
    assert doubled_keys(replica) == []
    assert doubled_keys(replace(replica, clean_offset=3)) == [
        "broker 3: partition 0 is clean below offset 3 and has a at 0 and 2"
    ]


def test_files_are_judged_as_readings_are() -> None:
    stale = KeyedReplica(
        broker=3,
        partition=0,
        clean_offset=0,
        records=tuple(KeyedRecord(*each) for each in ((0, b"a", b"1"), *LAST[1:])),
    )
    files = as_passage(stale, 60)
    assert len(verdict(WRITES, [files], [stale])) == 1
    doubled = replace(stale, clean_offset=9, records=(*stale.records, KeyedRecord(8, b"a", b"")))
    assert len(verdict(WRITES, [], [doubled])) == 1
