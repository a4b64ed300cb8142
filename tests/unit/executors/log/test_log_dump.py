from sparklog.executors.log.dump import (
    BatchDump,
    Damage,
    FileKind,
    dump_offset_index,
    dump_records,
    dump_segment,
    dump_time_index,
    identify,
)
from sparklog.storage_backends.base import FileHandle
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import Compression, TimestampType
from sparklog.wire.records.batch import read_header
from sparklog.wire.records.builder import Record, encode_batch
from tests.unit.executors.log.log_fixtures import Desk, batch, fill, put


def opened(data: bytes) -> FileHandle:
    backend = MemoryBackend()
    backend.put("x", data)
    return backend.open("x")


def test_names_say_what_a_file_is() -> None:
    digits = f"{42:020d}"
    kinds = {
        name: identify(name)
        for name in (
            f"{digits}.log",
            f"{digits}.index",
            f"{digits}.timeindex.deleted",
            f"{digits}.txnindex",
            f"{digits}.snapshot",
            "leader-epoch-checkpoint",
            "partition.metadata",
            "notes.txt",
            f"{digits}.jpg",
        )
    }
    assert list(kinds.values()) == [
        (FileKind.SEGMENT, 42),
        (FileKind.OFFSET_INDEX, 42),
        (FileKind.TIME_INDEX, 42),
        (FileKind.TXN_INDEX, 42),
        (FileKind.SNAPSHOT, 42),
        (FileKind.EPOCHS, 0),
        (FileKind.METADATA, 0),
        None,
        None,
    ]


def test_every_batch_is_shown() -> None:
    plain = batch(10, (5, 3), leader_epoch=2, producer_id=8, base_sequence=2**31 - 1)
    control = encode_batch(
        [Record(key=b"\0\0\0\1", value=b"", timestamp=7)],
        base_offset=12,
        compression=Compression.GZIP,
        transactional=True,
        control=True,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    shown = list(dump_segment(opened(plain + control)))
    assert shown == [
        BatchDump(
            base_offset=10,
            last_offset=11,
            count=2,
            base_sequence=2**31 - 1,
            last_sequence=0,
            producer_id=8,
            producer_epoch=0,
            partition_leader_epoch=2,
            is_transactional=False,
            is_control=False,
            position=0,
            timestamp=5,
            timestamp_type=TimestampType.CREATE_TIME,
            size=len(plain),
            magic=2,
            codec=Compression.NONE,
            crc=read_header(plain).crc,
            crc_valid=True,
        ),
        BatchDump(
            base_offset=12,
            last_offset=12,
            count=1,
            base_sequence=-1,
            last_sequence=-1,
            producer_id=-1,
            producer_epoch=-1,
            partition_leader_epoch=-1,
            is_transactional=True,
            is_control=True,
            position=len(plain),
            timestamp=7,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            size=len(control),
            magic=2,
            codec=Compression.GZIP,
            crc=read_header(control).crc,
            crc_valid=True,
        ),
    ]
    assert isinstance(shown[0], BatchDump)
    records = list(dump_records(opened(plain + control), shown[0]))
    assert [(r.offset, r.timestamp, r.value) for r in records] == [
        (10, 5, b"v" * 20),
        (11, 3, b"v" * 20),
    ]


def test_damage_is_shown_and_does_not_stop_the_show_before_it_must() -> None:
    one, two = bytearray(batch(0)), batch(1)
    one[-1] ^= 1
    shown = list(dump_segment(opened(bytes(one + two + two[:30]))))
    assert [item.crc_valid for item in shown if isinstance(item, BatchDump)] == [False, True]
    assert shown[2] == Damage(
        position=len(one + two), reason="a batch header is cut off", bytes_left=30
    )
    (zeros,) = dump_segment(opened(bytes(500)))
    assert zeros == Damage(position=0, reason="magic is 0", bytes_left=500)
    assert list(dump_segment(opened(b""))) == []
    (cut,) = dump_segment(opened(two[:-1]))
    assert isinstance(cut, Damage)
    assert "batch length" in cut.reason


def test_a_batch_larger_than_the_window_is_checked_in_parts() -> None:
    large = bytearray(batch(0, size=3_000_000))
    (sound,) = dump_segment(opened(bytes(large)))
    large[2_500_000] ^= 1
    (damaged,) = dump_segment(opened(bytes(large)))
    assert isinstance(sound, BatchDump)
    assert isinstance(damaged, BatchDump)
    assert (sound.crc_valid, damaged.crc_valid) == (True, False)


def test_indexes_of_a_live_log_are_shown() -> None:
    desk = Desk()
    log = desk.open(segment_bytes=10**6)
    fill(log, 20)
    put(log, 5)
    segment = log.segments[0]
    offsets = dump_offset_index(desk.half.read(segment.offset_index.path), 0)
    assert len(offsets) == segment.offset_index.entries > 3
    times = dump_time_index(desk.half.read(segment.time_index.path), 0)
    assert [(e.timestamp, e.offset) for e in times] == [(e.offset, e.offset) for e in offsets]
